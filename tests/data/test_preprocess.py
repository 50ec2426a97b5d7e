"""Crops of training and evaluation, as in torchvision."""

import io
import warnings
from concurrent.futures import ThreadPoolExecutor
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
    whole = long.resize((256 * 800, 256), Image.BILINEAR)
    left = (256 * 800 - 224) // 2
    expected = np.asarray(whole.crop((left, 16, left + 224, 240)), int)
    # More than 50 million pixels if it were resized whole: only the crop is computed.
    np.testing.assert_allclose(eval_pixels(encode(long, "PNG"), 256, 224), expected, atol=1, rtol=0)


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
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        reference = upright.convert("RGB")
        assert (reference.size == (40, 50)) == (orientation > 4), name
        left, top = ((side - 40) // 2 for side in reference.size)
        centre = reference.crop((left, top, left + 40, top + 40))
        assert examine(name)[1] == ""
        assert open_upright(data).tobytes() == reference.tobytes(), name
        assert eval_pixels(data, 40, 40).tobytes() == centre.tobytes(), name
        assert open_picture(name, "RGB").tobytes() == reference.tobytes(), name
        assert open_picture(name, "L").tobytes() == upright.convert("L").tobytes(), name


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
    assert examine("a")[1] == ""
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


def test_crop_flip_and_colours_equal_torchvisions_pixels(make_photograph, encode, torchvision):
    functional = torchvision.transforms.functional
    nearest = torchvision.transforms.InterpolationMode.NEAREST

    def drawn(kind):
        return np.random.default_rng([3, 2, kind, 1, 5])

    def assert_trained_on(image, **changes):
        pixels = training_pixels(data, RECIPE.changed(**changes), 2, 1, 5)
        assert pixels.tobytes() == image.tobytes()

    for number in range(12):
        data = encode(make_photograph(number, 130 + 17 * number, 100), quality=90)
        image = Image.open(io.BytesIO(data)).convert("RGB")
        rng = drawn(8)
        left, top, right, bottom = draw_box(*image.size, RECIPE.crop_scale, rng)
        expected = functional.resized_crop(
            image, top, left, bottom - top, right - left, [48, 48], antialias=True
        )
        if rng.random() < 0.5:
            expected = functional.hflip(expected)
        assert_trained_on(expected)
        # The pixels of each operation are compared in test_augment.py.
        image = expected
        for name, magnitude in choose(RECIPE.changed(policy="randaugment"), 48, drawn(10)):
            image = torchvision.transforms.autoaugment._apply_op(
                image, name, magnitude, nearest, None
            )
        assert_trained_on(image, policy="randaugment")
        image = expected
        rng = drawn(9)
        for place, factor in zip(rng.permutation(3), rng.uniform(0.6, 1.4, 3), strict=True):
            adjust = ("brightness", "contrast", "saturation")[place]
            image = getattr(functional, f"adjust_{adjust}")(image, factor)
        assert_trained_on(image, color_jitter=0.4)


def test_random_crops_have_the_given_areas_and_ratios():
    rng = np.random.default_rng(0)
    boxes = np.array([draw_box(500, 375, 0.3, rng) for _ in range(4000)])
    assert boxes.min() == 0
    assert (boxes.max(0) <= [500, 375, 500, 375]).all()
    wide, tall = (boxes[:, 2:] - boxes[:, :2]).T
    area = wide * tall / (500 * 375)
    assert area.min() == pytest.approx(0.3, abs=0.01)
    assert np.min(wide / tall) == pytest.approx(0.75, abs=0.01)
    assert np.max(wide / tall) == pytest.approx(1.335, abs=0.015)
    fits = area < 0.5  # here, the ratio is log-uniform
    assert np.mean(np.log(wide / tall)[fits]) == pytest.approx(0, abs=0.02)
    centre = boxes[fits].mean(0) / [500, 375, 500, 375]
    assert (centre[:2] + centre[2:]) / 2 == pytest.approx(0.5, abs=0.02)


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
