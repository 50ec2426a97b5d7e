"""Which files are images, and which must be converted first."""

from pathlib import Path

import numpy as np
import pytest
from PIL import features

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.predict import find_images

RECIPE = Recipe(dataset="imagefolder", image_size=8, batch_size=2, validation_share=0.5)
KINDS = {
    "jfif": "JPEG",
    "jpe": "JPEG",
    "JPG": "JPEG",
    "jp2": "JPEG2000",
    "avif": "AVIF",
    "webp": "WEBP",
    "ppm": "PPM",
    "tif": "TIFF",
}


@pytest.mark.parametrize("ending", KINDS)
def test_what_pillow_decodes_is_read(make_photograph, ending):
    if ending == "avif" and not features.check("avif"):
        pytest.skip("this build of Pillow reads no AVIF")
    for number, name in enumerate(("bee", "bee", "cat", "cat")):
        file = Path("set", name, f"{number}.{ending}")
        file.parent.mkdir(parents=True, exist_ok=True)
        make_photograph(number, 24, 16).save(file, KINDS[ending])
    dataset = open_dataset(RECIPE, "set")
    assert len(dataset.train) + len(dataset.test) == len(find_images(["set"])) == 4
    (images,) = dataset.test.eval_images([np.arange(2)], dataset.input)
    assert images.shape == (2, 3, 8, 8)


def test_images_that_need_a_conversion_are_named(folder, raises_line):
    for place in ("train/bee/a.heic", "train/bee/b.HEIC", "train/bee/c.svg"):
        (folder / place).write_bytes(b"no format of Pillow")
    notes = open_dataset(RECIPE, str(folder)).notes
    (note,) = [note for note in notes if "convert" in note]
    assert note.startswith(f"warning: {folder}/train: 2 .heic, 1 .svg not read; ")
    assert "magick mogrify -format jpg *.heic" in note
    for photograph in (folder / "train/bee").glob("*.JPEG"):
        photograph.unlink()
    with raises_line(f"{folder}/train/bee contains no images", "2 .heic", "-format jpg *.heic"):
        open_dataset(RECIPE, str(folder))
    with raises_line(f"{folder}/train/bee: contains no images", "-format jpg *.heic"):
        find_images([folder / "train/bee"])
