"""ImageNet's validation images as one flat folder, with the official ground truth of the development kit.

`ILSVRC2012_validation_ground_truth.txt` has a number 1..1000 per image, in the order of the file names; `meta.mat`
beside it says which class folder (WordNet id) a number means. The numbers are *not* the alphabetical order.
"""

import os
from pathlib import Path

import numpy as np

from resnet_fn.data.sources.files import FileSplit, is_image

_TRUTH, _META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
_PLACES = ("", "val", "data", "ILSVRC2012_devkit_t12/data")


def list_flat_val(root: Path, classes: list[str]) -> FileSplit:
    """List `root/val/*.JPEG` with the labels of the official ground truth.

    Raises:
        ValueError: the text or meta.mat is missing, or does not fit the images or the classes.
    """
    names = sorted(entry.name for entry in os.scandir(root / "val") if is_image(entry.name))
    if not names:
        raise ValueError(f"{root / 'val'}: holds neither class folders nor images; lay it out as val/CLASS/*.JPEG")
    truth, meta = _find(root, _TRUTH), _find(root, _META)
    if truth is None or meta is None:
        missing = _TRUTH if truth is None else _META
        raise ValueError(
            f"{root / 'val'}: has no class folders, and {missing} is not in {root}; extract the development kit "
            "ILSVRC2012_devkit_t12.tar.gz there (https://image-net.org/download), or sort the images into folders"
        )
    try:
        numbers = [int(line) for line in truth.read_text().split()]
    except ValueError as error:
        raise ValueError(f"{truth}: is not one number a line ({error}); extract the development kit again") from None
    if len(numbers) != len(names):
        raise ValueError(f"{truth}: has {len(numbers)} lines for {len(names)} images in {root / 'val'}; complete them")
    folder_of = _class_numbers(meta)
    label_of = {name: label for label, name in enumerate(classes)}
    labels = []
    for number in numbers:
        if folder_of.get(number) not in label_of:
            raise ValueError(f"{truth}: number {number} is {folder_of.get(number)}, which train has no folder for")
        labels.append(label_of[folder_of[number]])
    return FileSplit(str(root / "val"), tuple(names), np.array(labels, np.int32))


def _find(root: Path, name: str) -> Path | None:
    return next((root / place / name for place in _PLACES if (root / place / name).is_file()), None)


def _class_numbers(meta: Path) -> dict[int, str]:
    from scipy.io import loadmat  # a dependency of MindSpore

    try:
        rows = loadmat(str(meta), squeeze_me=True)["synsets"]
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
    except Exception as error:
        raise ValueError(f"{meta}: cannot be read ({error}); extract the development kit again") from None
