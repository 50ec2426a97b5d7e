import shutil

import numpy as np
import pytest
from scipy.io import savemat

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset, open_dataset

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


def test_classes_are_trains_sorted_folders_and_val_gets_the_same_numbers(folder):
    shutil.rmtree(folder / "val" / "bee")
    (folder / "train" / "bee" / "notes.txt").write_text("not an image")
    (folder / "train" / ".hidden").mkdir()
    dataset = open_dataset(RECIPE, str(folder))
    assert dataset.classes == ("bee", "cat with a space", "éléphant")
    assert dataset.train.labels.tolist() == [0] * 7 + [1] * 7 + [2] * 7
    assert dataset.test.labels.tolist() == [1] * 3 + [2] * 3
    ignored, missing = dataset.notes
    assert ignored.startswith("ignoring 1 files that are no images")
    assert "notes.txt" in ignored
    assert missing == "the test set has no images of 1 of the 3 classes: bee"
    (folder / "train" / "bee" / "notes.txt").unlink()
    (folder / "train" / "loose.jpg").write_bytes(b"")
    assert load_dataset(RECIPE, str(folder)).notes == (
        f"ignoring 1 images beside the class folders, {folder}/train/loose.jpg among them",
    )


# More are in tests/test_mistakes.py.
def test_wrong_layouts_are_explained(folder):
    with pytest.raises(ValueError, match=r"looked for train/ and val/ in 'nowhere', found nothing; lay the images out"):
        load_dataset(RECIPE, "nowhere")
    with pytest.raises(ValueError, match=r"found bee, cat .*; lay the images out as .*--validation-share 0.2"):
        load_dataset(RECIPE, str(folder / "train"))


SPLIT = Recipe(dataset="imagefolder", image_size=24, batch_size=4, validation_share=0.3)


@pytest.mark.parametrize("place", ["", "train"])
def test_one_folder_is_split(folder, place):
    shutil.rmtree(folder / "val")
    dataset = load_dataset(SPLIT, str(folder / place))
    assert dataset.classes == ("bee", "cat with a space", "éléphant")
    assert np.bincount(dataset.test.labels).tolist() == [2, 2, 2]  # of 7 each
    assert np.bincount(dataset.train.labels).tolist() == [5, 5, 5]
    assert not set(dataset.train.names) & set(dataset.test.names)
    assert dataset.held_out == dataset.test.names
    assert dataset.notes == ()


def test_an_existing_val_validates(folder):
    dataset = load_dataset(SPLIT, str(folder))
    assert (len(dataset.train), len(dataset.test), dataset.held_out) == (21, 9, ())
    assert dataset.notes == (f"{folder}/val validates: nothing is split off the training images",)


def test_wrong_levels_are_explained(folder, tmp_path):
    shutil.rmtree(folder / "val")
    around = r"^data_dir: .*photographs holds no images; it holds the folders train: give --data-dir .*photographs$"
    with pytest.raises(ValueError, match=around):
        load_dataset(SPLIT, str(tmp_path))
    (tmp_path / "other" / "x").mkdir(parents=True)
    around = r"other holds no images; it holds the folders x: give --data-dir .*other if these are the classes$"
    with pytest.raises(ValueError, match=around):
        load_dataset(SPLIT, str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty holds no class folders; lay the images out as .*empty/CLASS"):
        load_dataset(SPLIT, str(tmp_path / "empty"))


@pytest.fixture
def flat(folder):
    """The same, val flat, in the official order of numbers, which is not that of the folders."""
    for class_number, name in enumerate(("éléphant", "bee", "cat with a space")):
        for number, path in enumerate(sorted((folder / "val" / name).iterdir())):
            path.rename(folder / "val" / f"ILSVRC2012_val_{3 * class_number + number:08d}.JPEG")
        (folder / "val" / name).rmdir()
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n1\n1\n3\n3\n3\n2\n2\n2\n")
    rows = np.zeros(3, dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])
    rows["ILSVRC2012_ID"], rows["WNID"] = [1, 2, 3], ["éléphant", "cat with a space", "bee"]
    savemat(folder / "meta.mat", {"synsets": rows})
    return folder


def test_flat_val_takes_the_official_ground_truth_or_the_error_names_what_is_missing(flat):
    assert load_dataset(RECIPE, str(flat)).test.labels.tolist() == [2] * 3 + [0] * 3 + [1] * 3
    truth = flat / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("1\n1\n")
    with pytest.raises(ValueError, match="has 2 lines for 9 images"):
        load_dataset(RECIPE, str(flat))
    truth.write_text("7\n" * 9)
    with pytest.raises(ValueError, match="number 7 is None, which train has no folder for"):
        load_dataset(RECIPE, str(flat))
    (flat / "meta.mat").unlink()
    with pytest.raises(ValueError, match=r"has no class folders, and meta.mat is not in .*ILSVRC2012_devkit_t12"):
        load_dataset(RECIPE, str(flat))
