"""The digits of data/DIGITS.md; generated images and photographs."""

import io

import numpy as np
import pytest
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.bundled import load_digits, photograph, write_folder
from resnet_fn.data.sources.load import load_dataset

DIGITS = load_digits()


def test_digits_are_the_documented_ones():
    assert DIGITS.train.images.shape == (1437, 8, 8, 1)
    assert len(DIGITS.test) == 360
    pixels = DIGITS.train.images / 16
    assert DIGITS.input.mean[0] == pytest.approx(pixels.mean(), abs=1e-6)
    assert DIGITS.input.std[0] == pytest.approx(pixels.std(), abs=1e-6)
    assert set(DIGITS.train.labels) == set(DIGITS.test.labels) == set(range(10))


def test_synthetic_is_the_same_every_time_and_of_the_size_asked_for():
    recipe = Recipe(dataset="synthetic", synthetic_samples=40, synthetic_classes=7, image_size=24)
    one, two = load_dataset(recipe), load_dataset(recipe)
    assert one.train.images.shape == (40, 24, 24, 3)
    assert len(one.test) == 7
    assert one.train.images.tobytes() == two.train.images.tobytes()
    assert set(one.train.labels.tolist()) == set(range(7))
    pixels = one.train.images / 255
    assert np.abs(pixels.mean() - 0.6) < 0.1


def test_a_seed_is_a_picture_of_a_photographs_size():
    picture = photograph(3)
    assert (picture.shape, picture.dtype) == ((375, 500, 3), np.uint8)
    assert picture.tobytes() == photograph(3).tobytes() != photograph(4).tobytes()
    assert photograph(0, 20, 30).shape == (30, 20, 3)
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=90)
    assert 40_000 < file.tell() < 70_000


def test_the_folder_is_an_image_folder(tmp_path):
    write_folder(tmp_path, images=5, classes=2)
    dataset = load_dataset(Recipe(dataset="imagefolder", image_size=24), str(tmp_path))
    assert dataset.classes == ("class 0", "class 1")
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert dataset.test.labels.tolist() == [0, 1]
    pictures = {dataset.train.read(index) for index in range(5)} | {dataset.test.read(index) for index in range(2)}
    assert len(pictures) == 7  # none twice, in validation neither
