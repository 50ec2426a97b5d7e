"""A sample's picture is what the net sees of it, but for the normalisation."""

import io

import numpy as np
import pytest
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.preprocess import eval_pixels
from resnet_fn.data.sources.digits import load_digits
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.report.pictures import printable, sample_name, sample_pictures

pytestmark = pytest.mark.usefixtures("device")


def decode(data):
    image = Image.open(io.BytesIO(data))
    return image.format, np.asarray(image)


def test_a_small_picture_has_every_pixel():
    digits = load_digits()
    for index, data in zip([3, 77], sample_pictures(digits, [3, 77]), strict=True):
        kind, pixels = decode(data)
        assert kind == "PNG"
        expected = digits.test.images[index, ..., 0] * (255 / 16)
        np.testing.assert_allclose(pixels, expected, atol=0.51)
    assert sample_name(digits, 7) == "test-00007"


def test_a_net_without_mistakes_has_no_pictures(folder):
    dataset = open_dataset(Recipe(dataset="imagefolder", image_size=24), str(folder))
    assert list(sample_pictures(dataset, [])) == []


@pytest.mark.parametrize(("size", "kind", "tolerance"), [(64, "PNG", 0), (65, "JPEG", 12)])
def test_a_file_is_shown_as_it_is_cut(photographs, size, kind, tolerance):
    recipe = Recipe(dataset="imagefolder", image_size=size, eval_resize=80)
    dataset = open_dataset(recipe, str(photographs))
    files = sorted((photographs / "val").glob("*/*"))
    for index, data in zip([3, 77], sample_pictures(dataset, [3, 77]), strict=True):
        found, pixels = decode(data)
        assert found == kind
        wanted = eval_pixels(files[index].read_bytes(), 80, size)
        assert pixels.shape == wanted.shape
        assert np.abs(pixels.astype(int) - wanted).mean() <= tolerance
        assert sample_name(dataset, index) == f"{files[index].parent.name}/{files[index].name}"


def test_names_that_are_no_utf8_are_told_in_escapes():
    assert printable(b"\xff\xc3\xbc.png".decode("utf-8", "surrogateescape")) == "\\xffü.png"
