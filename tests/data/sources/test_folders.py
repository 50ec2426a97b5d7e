import shutil

import numpy as np
import pytest
from scipy.io import savemat

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.eval_batches import eval_batches
from resnet_fn.data.sources.load import data_threads, load_dataset
from resnet_fn.runtime.process import cpu_count
from resnet_fn.runtime.workers import Workers

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


@pytest.fixture
def flat(folder):
    """The same, val flat, in the official order of numbers, which is not that of the folders."""
    files = [
        path for name in ("éléphant", "bee", "cat with a space") for path in sorted((folder / "val" / name).iterdir())
    ]
    for number, path in enumerate(files):
        path.rename(folder / "val" / f"ILSVRC2012_val_{number:08d}.JPEG")
    for path in list((folder / "val").iterdir()):
        if path.is_dir():
            path.rmdir()
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n1\n1\n3\n3\n3\n2\n2\n2\n")
    rows = np.zeros(3, dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])
    rows["ILSVRC2012_ID"], rows["WNID"] = [1, 2, 3], ["éléphant", "cat with a space", "bee"]
    savemat(folder / "meta.mat", {"synsets": rows})
    return folder


def test_flat_val_takes_the_official_ground_truth(flat):
    assert load_dataset(RECIPE, str(flat)).test.labels.tolist() == [2] * 3 + [0] * 3 + [1] * 3


def test_flat_val_explains_what_is_missing(flat):
    truth = flat / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("1\n1\n")
    with pytest.raises(ValueError, match="has 2 lines for 9 images"):
        load_dataset(RECIPE, str(flat))
    truth.write_text("7\n" * 9)
    with pytest.raises(ValueError, match="number 7 is None, which train has no folder for"):
        load_dataset(RECIPE, str(flat))
    (flat / "meta.mat").unlink()
    with pytest.raises(
        ValueError, match=r"has no class folders, and meta.mat is not in .*ILSVRC2012_devkit_t12.tar.gz"
    ):
        load_dataset(RECIPE, str(flat))


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


def test_more_threads_than_cpus_are_refused():
    most = cpu_count()
    with pytest.raises(ValueError, match=f"data_threads: {most + 1} is more than this machine's {most} CPUs"):
        data_threads(most + 1)
    assert data_threads(0, workers=4 * most) == 1
