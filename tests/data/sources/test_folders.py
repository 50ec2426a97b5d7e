"""Folders of classes as users have them, and the fix for each other layout."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset, open_dataset
from resnet_fn.data.sources.packing import pack
from resnet_fn.evaluation.image_names import find_images

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)
SPLIT = RECIPE.changed(validation_share=0.3)


def test_val_has_the_class_numbers_of_train(folder):
    shutil.rmtree(folder / "val/bee")
    (folder / "train/.hidden").mkdir()
    dataset = open_dataset(RECIPE, str(folder))
    assert dataset.classes == ("bee", "cat with a space", "éléphant")
    assert dataset.train.labels.tolist() == [0] * 7 + [1] * 7 + [2] * 7
    assert dataset.test.labels.tolist() == [1] * 3 + [2] * 3
    left_out, missing = dataset.notes
    assert left_out.startswith(f"leaving out 1 names in {folder}/train that ")
    assert missing == "the test set has no images of 1 of the 3 classes: bee"


def test_all_commands_list_the_same_images(folder, capsys):
    """At any depth, through links, in torchvision's order; names that begin with a dot are the
    system's own.
    """
    good = (folder / "train/bee/00 ü.JPEG").read_bytes()
    images = ("ant/9.jpg", "ant/b/1.jpg", "ant/b-c/2.jpg", "ant/b/c/0.PNG", "bee/1.jpg")
    others = ("ant/._9.jpg", "ant/b/.DS_Store", "ant/b/notes.txt", "ant/.thumbnails/9.jpg")
    for name in (*images, *others, "../elsewhere/3.jpg"):
        file = Path("zoo", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(good if name not in others else b"none")
    Path("zoo/ant/linked").symlink_to("../../elsewhere")
    Path("zoo/ant/b/around").symlink_to("../../ant")  # a link to a folder that it lies in
    ordered = sorted((*images, "ant/linked/3.jpg"), key=os.path.split)
    shutil.copytree("zoo", "set/train", ignore=shutil.ignore_patterns("around"))
    shutil.copytree("set/train", "set/val")
    split = load_dataset(SPLIT, "zoo")
    assert sorted((*split.train.names, *split.test.names)) == sorted(ordered)
    assert split.train.labels.tolist() == [0] * 3 + [1]
    both = load_dataset(RECIPE, "set")
    assert list(both.train.names) == list(both.test.names) == ordered
    for note, half in zip(both.notes, ("train", "val"), strict=True):
        assert note.startswith(f"leaving out 4 names in set/{half} that ")
        assert note.endswith(": ant/._9.jpg, ant/.thumbnails and 2 more")
    assert find_images(["zoo"]) == [f"zoo/{name}" for name in ordered]
    assert "leaving out 4 names in zoo that " in capsys.readouterr().err
    checked = open_dataset(RECIPE, "set", options=RunOptions(check_files="yes"))
    pack(checked, Path("packed"), 1)
    packed = load_dataset(RECIPE.changed(dataset="mindrecord"), "packed")
    assert packed.train.names == tuple(ordered)


def test_folders_around_the_set_are_no_classes(folder, raises_line):
    for place in ("two/a", "two/b"):
        shutil.copytree(folder, place)
    parts = ("two/a holds a data set, not a class", "the folders train, val", "--data-dir two/a")
    with raises_line(*parts):
        load_dataset(SPLIT, "two")


@pytest.mark.parametrize("place", ["", "train"])
def test_one_folder_is_split(folder, place):
    shutil.rmtree(folder / "val")
    dataset = load_dataset(SPLIT, str(folder / place))
    assert dataset.classes == ("bee", "cat with a space", "éléphant")
    assert np.bincount(dataset.test.labels).tolist() == [2, 2, 2]  # of 7 each
    assert len({*dataset.train.names, *dataset.test.names}) == 21
    assert (dataset.is_split, dataset.notes) == (True, ())


@pytest.fixture
def flat(folder):
    """The same, val flat, in the official order of numbers, which is not that of the folders."""
    for class_number, name in enumerate(("éléphant", "bee", "cat with a space")):
        for number, path in enumerate(sorted((folder / "val" / name).iterdir())):
            path.rename(folder / f"val/ILSVRC2012_val_{3 * class_number + number:08d}.JPEG")
        (folder / "val" / name).rmdir()
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n1\n1\n3\n3\n3\n2\n2\n2\n")
    rows = [(1, "éléphant"), (2, "cat with a space"), (3, "bee")]
    synsets = np.array(rows, [("ILSVRC2012_ID", "O"), ("WNID", "O")])
    savemat(folder / "meta.mat", {"synsets": synsets})
    return folder


def test_flat_val_needs_the_official_ground_truth(flat, raises_line):
    (flat / "val/._ILSVRC2012_val_00000000.JPEG").touch()
    dataset = load_dataset(RECIPE, str(flat))
    assert dataset.test.labels.tolist() == [2] * 3 + [0] * 3 + [1] * 3
    assert dataset.notes[0].startswith(f"leaving out 1 names in {flat}/val that ")
    truth = flat / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("1\n1\n")
    with raises_line("has 2 lines for 9 images in ", "/val; the numbers"):
        load_dataset(RECIPE, str(flat))
    truth.write_text("7\n" * 9)
    with raises_line("train has no folder for number 7"):
        load_dataset(RECIPE, str(flat))
    # the one that is damaged; the ground truth is read first
    for file in (flat / "meta.mat", truth):
        file.write_text("no number")
        with raises_line(f"{file}: is damaged ("):
            load_dataset(RECIPE, str(flat))
    (flat / "meta.mat").unlink()
    with raises_line("has no class folders; ", " extract meta.mat from ILSVRC2012_devkit_t12"):
        load_dataset(RECIPE, str(flat))


def test_class_folders_that_are_alike_get_a_line(folder, make_photograph, encode):
    for name in ("Bee", "cat with  a space", "e\u0301le\u0301phant"):
        (folder / "train" / name).mkdir()
        (folder / "train" / name / "1.JPEG").write_bytes(encode(make_photograph(1)))
    notes = load_dataset(RECIPE, str(folder)).notes
    (line,) = (line for line in notes if "differ only in case" in line)
    assert (
        "'Bee' and 'bee'; 'cat with  a space' and 'cat with a space'; "
        "'e\\u0301le\\u0301phant' and 'éléphant'"
    ) in line
