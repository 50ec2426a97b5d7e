"""Evaluation's pixels are torchvision's, at odd sizes and shapes too."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from mindspore.dataset import vision
from PIL import Image

from resnet_fn.data.preprocess import as_decodable, eval_pixels, open_rgb
from resnet_fn.data.sources.scan import examine
from resnet_fn.parity.pixels import reference_transform, sample_files


@pytest.mark.parametrize(("resize", "crop"), [(236, 224), (232, 224), (256, 225), (33, 32), (224, 224)])
def test_odd_sizes_round_as_torchvision_does(resize, crop):
    transform, _ = reference_transform(resize, crop)
    for data in sample_files()[:4]:
        np.testing.assert_array_equal(eval_pixels(data, resize, crop), transform(data))


def test_a_wrong_preprocessing_would_show():
    """The comparison has teeth: one pixel's shift, or no antialiasing, is far beyond the limit."""
    data = sample_files()[0]
    shifted = np.asarray(open_rgb(data).resize((341, 256), Image.BILINEAR))[17:241, 59:283]
    plain = vision.Resize((256, 341))(np.asarray(open_rgb(data)))[16:240, 58:282]
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
    assert np.array_equal(np.asarray(open_rgb(as_decodable(data))), np.asarray(open_rgb(data)))


def test_threads_that_decode_leave_the_processs_warnings_alone(make_photograph, encode, tmp_path):
    """Filters that are changed and put back in threads end up changed: one puts back what another had changed."""
    data = encode(make_photograph(1))
    (tmp_path / "a.jpg").write_bytes(data)
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda _: (open_rgb(data), examine(str(tmp_path / "a.jpg")), list(warnings.filters)), range(2000))
        )
    assert warnings.filters == before
