"""Image files as samples of an evaluation."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import eval_batches
from resnet_fn.data.sources.files import FileSplit, is_image
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.runtime.workers import Workers

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("batch_size", [1, 4, 20])
def test_every_file_is_evaluated_once_with_the_same_pixels(folder, workers, batch_size):
    dataset = load_dataset(RECIPE, str(folder))
    [(whole, _, _)] = eval_batches(dataset.test, dataset.input, 9)
    seen = []
    for rank in range(workers):
        for images, labels, indices in eval_batches(dataset.test, dataset.input, batch_size, Workers(rank, workers)):
            real = indices >= 0
            assert images[real].tobytes() == whole[indices[real]].tobytes()
            assert (labels[real] == dataset.test.labels[indices[real]]).all()
            seen += indices[real].tolist()
    assert sorted(seen) == list(range(9))


def test_a_sample_is_its_files_bytes_as_long_as_it_is_the_file_that_was_checked(folder):
    split = load_dataset(RECIPE, str(folder)).train
    path = Path(split.path(3))
    assert path == folder / "train" / "bee" / "03 ü.JPEG"
    data = path.read_bytes()
    assert split.read(3) == data
    checked = dataclasses.replace(split, sizes=np.full(len(split), len(data)), converted=np.arange(len(split)) == 3)
    assert checked.read_decodable(3).startswith(b"BM")
    path.write_bytes(data + b"more")
    with pytest.raises(ValueError, match=r"bee/03 ü.JPEG: has changed since it was checked; start the command again$"):
        checked.read(3)
    path.unlink()
    with pytest.raises(ValueError, match=r"bee/03 ü.JPEG: cannot be read \(No such file or directory\); fix it and"):
        checked.read(3)


def test_keep_keeps_what_belongs_together():
    split = FileSplit("root", ("a", "b", "c"), np.int32([0, 1, 2]), np.array([5, 6, 7]), np.array([True, False, True]))
    kept = split.keep(np.array([True, False, True]))
    assert (kept.names, kept.labels.tolist(), kept.sizes.tolist()) == (("a", "c"), [0, 2], [5, 7])
    assert kept.converted.tolist() == [True, True]
    assert len(kept) == 2


@pytest.mark.parametrize(("name", "image"), [("a.JPEG", True), ("b.Png", True), ("c.txt", False), ("jpeg", False)])
def test_an_image_is_known_by_its_ending(name, image):
    assert is_image(name) == image
