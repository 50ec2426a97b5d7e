"""ImageNet's flat validation folder, with the official ground truth."""

import numpy as np
import pytest
from scipy.io import savemat

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


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
