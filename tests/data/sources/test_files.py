"""An image file as a sample. (Read ahead in order: tests/data/test_file_feed.py.)"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.sources.load import load_dataset

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


def test_a_sample_is_its_files_bytes_unless_the_file_has_changed(folder):
    split = load_dataset(RECIPE, str(folder)).train
    path = Path(split.path(3))
    assert path == folder / "train" / "bee" / "03 ü.JPEG"
    data = path.read_bytes()
    assert split.read(3) == data
    checked = dataclasses.replace(split, sizes=np.full(len(split), len(data)))
    path.write_bytes(data + b"more")
    with pytest.raises(BadSampleError, match=r"bee/03 ü.JPEG: has changed since the command began; start it again$"):
        checked.read(3)
    path.unlink()
    with pytest.raises(BadSampleError, match=r"bee/03 ü.JPEG: cannot be read \(No such file .*\); fix it"):
        checked.read(3)
