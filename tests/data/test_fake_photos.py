"""Generated photographs: the same for a seed, of ImageNet's size as JPEGs, in folders that are an image folder."""

import io

import numpy as np
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.bundled import photograph, write_folder
from resnet_fn.data.sources.load import load_dataset


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
