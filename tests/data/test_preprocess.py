"""Evaluation's pixels are torchvision's, at odd sizes and shapes too."""

import io
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from mindspore.dataset import vision
from PIL import Image, ImageOps

from resnet_fn.data.fake_photos import photograph
from resnet_fn.data.preprocess import as_decodable, eval_pixels, open_upright
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.scan import examine
from resnet_fn.evaluation.predict import read_pixels


def sample_files() -> list[bytes]:
    """Four JPEGs of several sizes, upright and wide."""
    files = []
    for number, size in enumerate(((500, 375), (333, 500), (256, 256), (640, 427))):
        buffer = io.BytesIO()
        Image.fromarray(photograph(number, *size)).save(buffer, "JPEG", quality=75 + 5 * number)
        files.append(buffer.getvalue())
    return files


def reference_transform(data: bytes, resize: int, crop: int) -> np.ndarray:
    """torchvision's steps, written with PIL."""
    image = open_upright(data)
    scale = resize / min(image.size)
    # The shorter side is exact, the longer one is cut down to whole pixels.
    size = tuple(resize if side == min(image.size) else int(side * scale + 1e-9) for side in image.size)
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR) if size != image.size else image)
    top, left = (int(np.rint((side - crop) / 2)) for side in pixels.shape[:2])
    return pixels[top : top + crop, left : left + crop]


SIZES = [(236, 224), (232, 224), (256, 225), (33, 32), (224, 224)]


@pytest.mark.parametrize(("resize", "crop"), SIZES)
def test_odd_sizes_round_as_torchvision_does(resize, crop):
    for data in sample_files():
        np.testing.assert_array_equal(eval_pixels(data, resize, crop), reference_transform(data, resize, crop))


def test_the_steps_are_torchvisions(torchvision):
    transforms = torchvision.transforms
    for resize, crop in SIZES:
        both = transforms.Compose([transforms.Resize(resize), transforms.CenterCrop(crop)])
        for data in sample_files():
            pixels = np.asarray(both(open_upright(data)))
            np.testing.assert_array_equal(reference_transform(data, resize, crop), pixels)


def test_a_wrong_preprocessing_would_show():
    """The comparison has teeth: one pixel's shift, or no antialiasing, is far beyond the limit."""
    data = sample_files()[0]
    shifted = np.asarray(open_upright(data).resize((341, 256), Image.BILINEAR))[17:241, 59:283]
    plain = vision.Resize((256, 341))(np.asarray(open_upright(data)))[16:240, 58:282]
    ours = eval_pixels(data, 256, 224).astype(int)
    assert np.abs(shifted - ours).max() > 5
    assert np.abs(plain - ours).max() > 5


def test_extreme_shapes(encode):
    assert eval_pixels(encode(Image.new("RGB", (1, 1), (200, 9, 9))), 36, 32).shape == (32, 32, 3)
    long = Image.fromarray(np.random.default_rng(0).integers(0, 256, (2, 1600, 3), dtype=np.uint8))
    data = encode(long, "PNG")
    whole = np.asarray(long.resize((256 * 800, 256), Image.BILINEAR))
    middle = (whole.shape[1] - 224) // 2
    # More than 50 million pixels if it were resized whole: only the crop is computed.
    assert np.abs(eval_pixels(data, 256, 224).astype(int) - whole[16:240, middle : middle + 224]).max() <= 1


def test_converted_files_keep_their_pixels(make_photograph, encode):
    data = encode(make_photograph(3), "WEBP")
    for kind in ("BMP", "PNG"):
        assert np.array_equal(np.asarray(open_upright(as_decodable(data, kind))), np.asarray(open_upright(data)))


KINDS = {
    "colour.jpg": ("RGB", "JPEG"),
    "grey.jpg": ("L", "JPEG"),
    "cmyk.jpg": ("CMYK", "JPEG"),
    "colour.png": ("RGB", "PNG"),
    "grey.png": ("L", "PNG"),
    "palette.png": ("P", "PNG"),
    "alpha.png": ("RGBA", "PNG"),
    "grey alpha.png": ("LA", "PNG"),
    "bits.png": ("1", "PNG"),
    "colour.webp": ("RGB", "WEBP"),
    "alpha.webp": ("RGBA", "WEBP"),
    "colour.tiff": ("RGB", "TIFF"),
}


@pytest.mark.parametrize("orientation", range(9))
def test_training_evaluation_and_prediction_see_the_same_upright_picture(
    orientation, make_photograph, encode, tmp_path
):
    """As Pillow reads any mode and format, turned as EXIF says; 0, which means nothing, and 1 leave it alone."""
    exif = Image.Exif()
    exif[0x112] = orientation
    for name, (mode, kind) in KINDS.items():
        data = encode(make_photograph(3, 50, 40).convert(mode), kind, exif=exif)
        (tmp_path / name).write_bytes(data)
        reference = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
        assert (reference.shape == (50, 40, 3)) == (orientation > 4), name
        _, _, code, converted = examine(str(tmp_path / name))
        split = FileSplit(str(tmp_path), (name,), np.int32([0]), converted=np.array([converted]))
        training = vision.Decode()(np.frombuffer(split.read_decodable(0), np.uint8))
        evaluation = eval_pixels(data, 40, 40)
        top, left = (reference.shape[0] - 40) // 2, (reference.shape[1] - 40) // 2
        assert code == 0
        assert training.tobytes() == reference.tobytes(), name
        assert evaluation.tobytes() == reference[top : top + 40, left : left + 40].tobytes(), name
        assert read_pixels(tmp_path / name, 3).tobytes() == reference.tobytes(), name
        grey = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("L")
        assert read_pixels(tmp_path / name, 1).tobytes() == np.asarray(grey).tobytes(), name


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_odd_metadata_are_no_fault_of_the_pixels(make_photograph, encode):
    picture = make_photograph(3)
    upright = np.asarray(open_upright(encode(picture)))
    for exif in (b"", b"Exif", b"Exif\0\0garbage", b"Exif\0\0MM\0*\0\0\0\x08\0\x09", bytes(range(200))):
        assert np.array_equal(open_upright(encode(picture, exif=exif)), upright)
    for value in (9, 77, 65535):
        odd = Image.Exif()
        odd[0x112] = value
        assert np.array_equal(open_upright(encode(picture, exif=odd)), upright), value


def test_threads_that_decode_leave_the_processs_warnings_alone(make_photograph, encode, tmp_path):
    """Filters that are changed and put back in threads end up changed: one puts back what another had changed."""
    data = encode(make_photograph(1))
    (tmp_path / "a.jpg").write_bytes(data)
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda _: (open_upright(data), examine(str(tmp_path / "a.jpg")), list(warnings.filters)), range(2000)
            )
        )
    assert warnings.filters == before
