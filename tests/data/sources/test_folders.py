import shutil

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


def test_classes_are_trains_sorted_folders_and_val_gets_the_same_numbers(folder):
    shutil.rmtree(folder / "val" / "bee")
    (folder / "train" / "bee" / "notes.txt").write_text("not an image")
    (folder / "train" / ".hidden").mkdir()
    dataset = load_dataset(RECIPE, str(folder))
    assert dataset.classes == ("bee", "cat with a space", "éléphant")
    assert dataset.train.labels.tolist() == [0] * 7 + [1] * 7 + [2] * 7
    assert dataset.test.labels.tolist() == [1] * 3 + [2] * 3
    ignored, missing = dataset.notes
    assert ignored.startswith("ignoring 1 files that are no images")
    assert "notes.txt" in ignored
    assert missing == "val has no images of 1 of the 3 classes"


def test_wrong_layouts_are_explained(folder, tmp_path):
    with pytest.raises(ValueError, match=r"looked for train/ and val/ in 'nowhere', found nothing; lay the images out"):
        load_dataset(RECIPE, "nowhere")
    with pytest.raises(ValueError, match=r"found photographs; lay the images out as train/CLASS/\*.JPEG"):
        load_dataset(RECIPE, str(tmp_path))
    (folder / "val" / "beee").mkdir()
    with pytest.raises(ValueError, match=r"val/beee: is not a class of train; use one of bee, cat"):
        load_dataset(RECIPE, str(folder))
    (folder / "val" / "beee").rmdir()
    (folder / "train" / "zebra").mkdir()
    with pytest.raises(ValueError, match=r"train/zebra: holds no images; remove the folder or fill it"):
        load_dataset(RECIPE, str(folder))
