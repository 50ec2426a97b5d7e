"""Crops of training and evaluation, as in torchvision."""

import io
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from resnet_fn.config.recipe import FILTERS, Recipe
from resnet_fn.data.augment import choose
from resnet_fn.data.preprocess import draw_box, eval_pixels, open_upright, training_pixels
from resnet_fn.data.sources.scan import examine
from resnet_fn.evaluation.picture import open_picture


@pytest.fixture
def samples(make_photograph, encode):
    """Four JPEGs of several sizes, upright and wide."""
    sizes = ((500, 375), (333, 500), (256, 256), (640, 427))
    return [
        encode(make_photograph(number, *size), quality=75 + 5 * number)
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("resize", "crop"), [(236, 224), (232, 224), (256, 225), (33, 32), (224, 224)]
)
def test_resize_and_crop_equal_torchvision_for_odd_sizes(resize, crop, torchvision, samples):
    transforms = torchvision.transforms
    both = transforms.Compose([transforms.Resize(resize), transforms.CenterCrop(crop)])
    for data in samples:
        np.testing.assert_array_equal(
            eval_pixels(data, resize, crop), np.asarray(both(open_upright(data)))
        )


@pytest.mark.parametrize("filter_", FILTERS)
def test_each_filter_is_pillows(filter_, make_photograph, encode):
    data = encode(make_photograph(0, 97, 61), "PNG")
    resized = open_upright(data).resize((50, 32), Image.Resampling[filter_.upper()])
    expected = np.asarray(resized.crop((9, 0, 41, 32)))
    np.testing.assert_array_equal(eval_pixels(data, 32, 32, filter_), expected)


def test_extreme_shapes_are_cropped_before_resizing(encode):
    assert eval_pixels(encode(Image.new("RGB", (1, 1), (200, 9, 9))), 36, 32).shape == (32, 32, 3)
    long = Image.fromarray(np.random.default_rng(0).integers(0, 256, (2, 1600, 3), dtype=np.uint8))
    data = encode(long, "PNG")
    whole = np.asarray(long.resize((256 * 800, 256), Image.BILINEAR))
    middle = (whole.shape[1] - 224) // 2
    # More than 50 million pixels if it were resized whole: only the crop is computed.
    assert (
        np.abs(eval_pixels(data, 256, 224).astype(int) - whole[16:240, middle : middle + 224]).max()
        <= 1
    )


KINDS = [
    ("RGB", "JPEG"),
    ("L", "JPEG"),
    ("CMYK", "JPEG"),
    ("RGB", "WEBP"),
    ("RGBA", "WEBP"),
    ("RGB", "TIFF"),
    *((mode, "PNG") for mode in ("RGB", "L", "P", "RGBA", "LA", "1")),
]


@pytest.mark.parametrize("orientation", range(9))
def test_training_evaluation_prediction_see_the_same_upright_picture(
    orientation, make_photograph, encode
):
    """Any mode and format as Pillow reads it, turned by EXIF; 0, which means nothing, and 1 change
    nothing.
    """
    exif = Image.Exif()
    exif[0x112] = orientation
    for mode, kind in KINDS:
        name = f"{mode}.{kind}"
        data = encode(make_photograph(3, 50, 40).convert(mode), kind, exif=exif)
        Path(name).write_bytes(data)
        reference = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
        assert (reference.shape == (50, 40, 3)) == (orientation > 4), name
        evaluation = eval_pixels(data, 40, 40)
        top = (reference.shape[0] - 40) // 2
        left = (reference.shape[1] - 40) // 2
        assert examine(name)[1] == ""
        assert open_upright(data).tobytes() == reference.tobytes(), name
        assert evaluation.tobytes() == reference[top : top + 40, left : left + 40].tobytes(), name
        assert open_picture(name, "RGB").tobytes() == reference.tobytes(), name
        grey = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("L")
        assert open_picture(name, "L").tobytes() == grey.tobytes(), name


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_16_bits_are_scaled_not_cut(kind, encode, raises_line):
    """PIL's own convert makes all above 255 white; where no white is defined, the file is a bad
    one.
    """
    grey = np.uint16([[0, 128, 129, 29298], [51914, 65278, 65407, 65535]])
    path = Path("a")
    path.write_bytes(encode(Image.fromarray(grey), kind))
    expected = [[0, 0, 1, 114], [202, 254, 255, 255]]
    assert np.asarray(open_upright(path.read_bytes()))[..., 1].tolist() == expected
    assert np.asarray(open_picture(path, "L")).tolist() == expected
    for unclear in (grey.astype(np.int32), grey.astype(np.float32)):
        path.write_bytes(encode(Image.fromarray(unclear), "TIFF"))
        assert "white is not defined; save it with 8 or 16 bits" in examine("a")[1]
        with raises_line("white is not defined"):
            open_upright(path.read_bytes())


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_odd_metadata_are_no_fault_of_the_pixels(make_photograph, encode):
    picture = make_photograph(3)
    upright = np.asarray(open_upright(encode(picture)))
    for exif in (
        b"",
        b"Exif",
        b"Exif\0\0garbage",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x09",
        bytes(range(200)),
    ):
        assert np.array_equal(open_upright(encode(picture, exif=exif)), upright)
    for value in (9, 77, 65535):
        odd = Image.Exif()
        odd[0x112] = value
        assert np.array_equal(open_upright(encode(picture, exif=odd)), upright), value


def test_threads_that_decode_leave_the_processs_warnings_alone(make_photograph, encode):
    """Filters that are changed and put back in threads end up changed: one puts back what another
    had changed.
    """
    data = encode(make_photograph(1))
    Path("a.jpg").write_bytes(data)
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: (open_upright(data), examine("a.jpg")), range(2000)))
    assert warnings.filters == before


RECIPE = Recipe(dataset="imagefolder", image_size=48, flip=True, seed=3)


def drawn(kind, number=5):
    return np.random.default_rng([3, 2, kind, 1, number])


def test_crop_flip_and_colours_equal_torchvisions_pixels(make_photograph, encode, torchvision):
    transforms = torchvision.transforms
    autoaugment = torchvision.transforms.autoaugment
    functional = transforms.functional
    nearest = transforms.InterpolationMode.NEAREST
    for number in range(12):
        data = encode(make_photograph(number, 130 + 17 * number, 100), quality=90)
        image = Image.open(io.BytesIO(data)).convert("RGB")
        rng = drawn(8)
        left, top, right, bottom = draw_box(*image.size, RECIPE.crop_scale, rng)
        mirrored = rng.random() < 0.5
        expected = functional.resized_crop(
            image, top, left, bottom - top, right - left, [48, 48], antialias=True
        )
        if mirrored:
            expected = functional.hflip(expected)
        assert training_pixels(data, RECIPE, 2, 1, 5).tobytes() == expected.tobytes()
        for policy in ("trivialaugment", "randaugment", "autoaugment"):
            recipe = replace(RECIPE, policy=policy)
            image = expected
            for name, magnitude in choose(recipe, 48, drawn(10)):
                image = autoaugment._apply_op(image, name, magnitude, nearest, None)
            assert training_pixels(data, recipe, 2, 1, 5).tobytes() == image.tobytes()
        rng = drawn(9)
        image = expected
        adjust = (
            functional.adjust_brightness,
            functional.adjust_contrast,
            functional.adjust_saturation,
        )
        for place, factor in zip(rng.permutation(3), rng.uniform(0.6, 1.4, 3), strict=True):
            image = adjust[place](image, factor)
        jittered = training_pixels(data, replace(RECIPE, color_jitter=0.4), 2, 1, 5)
        assert jittered.tobytes() == image.tobytes()


def test_random_crops_have_the_given_areas_and_ratios():
    rng = np.random.default_rng(0)
    boxes = np.array([draw_box(500, 375, 0.3, rng) for _ in range(4000)])
    left, top, right, bottom = boxes.T
    assert left.min() == 0 <= top.min()
    assert right.max() <= 500
    assert bottom.max() <= 375
    wide = right - left
    tall = bottom - top
    area = wide * tall / (500 * 375)
    ratio = wide / tall
    assert 0.29 < area.min() < 0.31
    assert area.max() < 1.01
    assert 0.74 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.35
    # log-uniform where all fit
    assert np.mean(np.log(ratio[area < 0.5])) == pytest.approx(0, abs=0.02)
    centred = (left + right)[area < 0.5].mean() / 1000, (top + bottom)[area < 0.5].mean() / 750
    assert centred == pytest.approx((0.5, 0.5), abs=0.02)


@pytest.mark.parametrize(
    ("size", "box"),
    [
        ((1000, 10), (493, 0, 506, 10)),
        ((10, 1000), (0, 493, 10, 506)),
        ((1, 1), (0, 0, 1, 1)),
        ((1, 9), (0, 4, 1, 5)),
    ],
)
def test_where_no_crop_fits_the_middle_is_taken(size, box):
    assert draw_box(*size, 1.0, np.random.default_rng(0)) == box
