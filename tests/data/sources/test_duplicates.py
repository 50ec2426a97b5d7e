"""One picture on both sides of a split, or in two classes, is a warning."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.data.sources.scan import scan_files
from resnet_fn.runtime.workers import Workers

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


def warnings(folder, recipe=RECIPE, **options):
    notes = open_dataset(recipe, str(folder), options=RunOptions(progress=False, **options)).notes
    return [line for line in notes if "identical" in line]


def test_one_picture_on_both_sides_is_a_warning(folder):
    assert warnings(folder) == []
    for k in (1, 2):
        shutil.copy(folder / f"train/bee/0{k} ü.JPEG", folder / f"val/bee/copy {k}.png")
    (line,) = warnings(folder)
    first = f"{folder}/val/bee/copy 1.png and {folder}/train/bee/01 ü.JPEG"
    assert line.startswith("warning: 2 of 11 validation images are identical to training images")
    assert f"such as {first}, " in line
    assert warnings(folder, check_files="no") == []


def test_one_picture_in_two_classes_is_a_warning(folder):
    for k in (1, 2):
        picture = folder / f"train/bee/0{k} ü.JPEG"
        shutil.copy(picture, folder / f"train/éléphant/bee {k}.JPEG")
        shutil.copy(picture, folder / f"train/bee/again {k}.JPEG")  # of the same class
    (line,) = warnings(folder)
    assert line.startswith("warning: 2 images have identical copies of another class, such as ")
    assert f"{folder}/train/éléphant/bee 1.JPEG and {folder}/train/bee/01 ü.JPEG" in line


def test_copies_that_a_split_divides_are_counted(folder):
    shutil.rmtree(folder / "val")
    for path in list(folder.rglob("*.JPEG")):
        shutil.copy(path, path.with_name(f"{path.stem} (1).JPEG"))
    recipe = RECIPE.changed(validation_share=0.3)
    dataset = open_dataset(recipe, str(folder))
    halves = (dataset.train, dataset.test)
    train, test = ([half.read(k) for k in range(len(half))] for half in halves)
    count = sum(data in train for data in test)
    assert count
    assert f"warning: {count} of {len(test)} validation images" in "; ".join(dataset.notes)
    assert warnings(folder, recipe.changed(group_by=r"(\d+) ü")) == []


def test_duplicates_compare_all_classes_of_an_image(folder):
    shutil.copy(folder / "train/bee/00 ü.JPEG", folder / "copy.JPEG")
    Path("val.csv").write_text("path,label\nval/bee/00 ü.JPEG,a\n")
    several = RECIPE.changed(multi_label=True)
    lines = []
    for labels in ("b;a", "a"):
        rows = f"train/bee/00 ü.JPEG,a;b\ntrain/bee/01 ü.JPEG,b\ncopy.JPEG,{labels}\n"
        Path("train.csv").write_text(f"path,label\n{rows}")
        lines += warnings(folder, several, train_list="train.csv", val_list="val.csv")
    (line,) = lines  # of the second list
    assert "1 image has identical copies of another class" in line


@pytest.mark.slow
@pytest.mark.release
def test_fingerprints_are_equal_on_all_workers(folder, msrun, tmp_path):
    program = """
import sys, numpy as np
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.options import RunOptions
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.runtime.workers import join
workers = join()
recipe = Recipe(dataset="imagefolder", image_size=24, batch_size=4, validation_share=0.3)
dataset = open_dataset(recipe, sys.argv[1], options=RunOptions(progress=False), workers=workers)
prints = dataset.train.fingerprints, dataset.test.fingerprints
np.save(f"{sys.argv[2]}/{workers.rank}.npy", np.concatenate(prints))
print("names", dataset.test.names, "notes", dataset.notes, flush=True)
"""
    shutil.rmtree(folder / "val")
    shutil.copy(folder / "train/bee/00 ü.JPEG", folder / "train/éléphant/copy.JPEG")
    Path("program.py").write_text(program)
    msrun(2, "program.py", str(folder), str(tmp_path))
    ranks = [np.load(tmp_path / f"{rank}.npy") for rank in range(2)]
    alone = open_dataset(RECIPE.changed(validation_share=0.3), str(folder))
    expected = np.concatenate((alone.train.fingerprints, alone.test.fingerprints))
    assert all((rank == expected).all() for rank in ranks)
    for rank in range(2):
        log = Path(f"logs/worker_{rank}.log").read_text()
        assert repr(alone.test.names) in log
        assert "of another class" in log


def test_sizes_and_fingerprints_stay_with_their_files(folder):
    split = open_dataset(RECIPE, str(folder)).train
    wanted = np.arange(len(split)) % 3 == 1
    kept, _ = scan_files(split.keep(wanted), True, Workers(), progress=False)
    assert (kept.fingerprints == split.fingerprints[wanted]).all()
    assert (kept.sizes == split.sizes[wanted]).all()
    assert len(np.unique(split.fingerprints, axis=0)) == len(split)
