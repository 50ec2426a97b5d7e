"""CIFAR's binary files, and the message for folders that lack them."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset, open_dataset

TEN = Recipe(dataset="cifar10", image_size=32)
HUNDRED = Recipe(dataset="cifar100", image_size=32)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("recipe", [TEN, HUNDRED], ids=lambda recipe: recipe.dataset)
def test_both_versions_give_the_bytes_that_were_written(make_cifar, recipe, binary):
    images, labels = make_cifar(Path(), recipe.dataset, binary)
    dataset = load_dataset(recipe, ".")
    np.testing.assert_array_equal(dataset.train.images, images.transpose(0, 2, 3, 1))
    assert dataset.train.labels.tolist() == labels.tolist()
    assert len(dataset.test) == 40
    last = (10, "cat") if recipe is TEN else (100, "class_3")
    assert (len(dataset.classes), dataset.classes[3]) == last
    (inner,) = Path().glob("cifar-*")
    assert load_dataset(recipe, str(inner)).train.labels.tolist() == labels.tolist()


def test_a_missing_folder_and_no_folder_are_explained(raises_line):
    with raises_line("data_dir: the data set cifar10 needs a folder; give --data-dir FOLDER"):
        load_dataset(TEN)
    with raises_line("'nowhere' is not a folder; get cifar-10-binary.tar.gz from https://www.cs"):
        load_dataset(TEN, "nowhere")
    Path("cifar-10-binary.tar.gz").touch()
    with raises_line("data_batch_1.bin or data_batch_1", "contains cifar-10-binary.tar.gz; get"):
        load_dataset(TEN, ".")
    with raises_line("'.' is given, but digits needs no folder; leave", "--recipe finetune"):
        load_dataset(Recipe(), ".")


def test_missing_and_cut_files_are_named(make_cifar, raises_line):
    make_cifar(Path(), "cifar10", True)
    for number in (1, 3):
        os.remove(f"cifar-10-batches-bin/data_batch_{number}.bin")
    with raises_line("cifar-10-batches-bin lacks data_batch_1.bin, data_batch_3.bin; get"):
        load_dataset(TEN, ".")
    _, labels = make_cifar(Path(), "cifar10", False)  # the other version, complete, beside it
    assert load_dataset(TEN, ".").train.labels.tolist() == labels.tolist()
    make_cifar(Path(), "cifar100", True)
    file = Path("cifar-100-binary/train.bin")
    file.write_bytes(file.read_bytes()[:-1])
    with raises_line("train.bin: has 122959 bytes, not a multiple of 3074; extract the archive"):
        load_dataset(HUNDRED, ".")


def test_a_label_that_is_no_class_is_named(make_cifar, raises_line):
    make_cifar(Path(), "cifar10", True)
    file = Path("cifar-10-batches-bin/data_batch_2.bin")
    file.write_bytes(b"\xc8" + file.read_bytes()[1:])
    with raises_line("training set: sample 40 has label 200, outside 0..9 (such samples: 1); fix"):
        open_dataset(TEN, ".")


def test_a_lack_of_descriptors_is_no_damage(make_cifar, no_descriptors):
    make_cifar(Path(), "cifar10", True)
    with pytest.raises(OSError, match="Too many open files"), no_descriptors():
        load_dataset(TEN, ".")


class Malice:
    def __reduce__(self):
        return os.system, ("touch caught",)


NESTED = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [[3], [4]]}


@pytest.mark.parametrize(
    "content", [b"", b"garbage", *(pickle.dumps(x, 2) for x in ({b"data": Malice()}, [1], NESTED))]
)
def test_a_foreign_pickle_is_rejected_and_never_run(make_cifar, content, raises_line):
    make_cifar(Path(), "cifar10", False)
    Path("cifar-10-batches-py/data_batch_2").write_bytes(content)
    with raises_line("data_batch_2: is ", "; extract the archive again"):
        load_dataset(TEN, ".")
    assert not Path("caught").exists()
