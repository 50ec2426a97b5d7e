"""This module labels ImageNet's validation images, if they are not in class folders."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from resnet_fn.config.reading import read_regular
from resnet_fn.config.wording import first_line
from resnet_fn.data.sources.files import FileSplit, describe_left_out, how_to_convert, list_images

_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_META = "meta.mat"
_FOLDERS = (  # where the development kit's files are, seen from the data set's folder
    "",
    "val",
    "data",
    "ILSVRC2012_devkit_t12/data",
    "..",
    "../ILSVRC2012_devkit_t12/data",
)
_LARGEST = 1 << 24  # bytes of one of the files
_CLASSES = 1000  # numbers above are of categories that contain classes


def list_flat_val(
    root: Path,
    folder: Path,
    classes: Sequence[str] = (),
) -> tuple[FileSplit, Sequence[str], list[str]]:
    """Return ImageNet's images in `folder` with official labels, the classes, and notes.

    ILSVRC2012_validation_ground_truth.txt has a number 1..1000 for each image, in the order of the
    file names. The file meta.mat maps each number to a class folder, because numbers are not in the
    alphabetical order of folders. Both files are looked for in `root`. If `classes` is empty, the
    classes are those of meta.mat.
    """
    names, left_out = list_images(folder)
    if not names:
        fix = how_to_convert(left_out) or f"fill it with {folder.name}/CLASS/*.JPEG, or remove it"
        raise ValueError(f"{folder}: holds neither class folders nor images; {fix}")
    truth, meta = (_find_file(root, folder, name) for name in (_TRUTH, _META))
    from scipy.io import loadmat  # a dependency of MindSpore

    file = truth
    try:
        numbers = [int(line) for line in read_regular(truth, _LARGEST).split()]
        file = meta
        rows = loadmat(io.BytesIO(read_regular(meta, _LARGEST)), squeeze_me=True)["synsets"]
        folders = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
    except Exception as error:
        raise ValueError(
            f"{file}: is damaged ({first_line(error)}); extract the development kit again"
        ) from None
    if len(numbers) != len(names):
        raise ValueError(
            f"{truth}: has {len(numbers)} lines for {len(names)} images in {folder}; "
            "the numbers must be equal"
        )
    if not classes:
        classes = sorted(name for number, name in folders.items() if number <= _CLASSES)
    label_of = {name: label for label, name in enumerate(classes)}
    labels = []
    for number in numbers:
        name = folders.get(number, "")
        if name not in label_of:
            raise ValueError(
                f"{truth}: train has no folder for number {number} ({name or 'unknown'}); "
                "add the folder to train"
            )
        labels.append(label_of[name])
    split = FileSplit(str(folder), names, np.array(labels, np.int32))
    return split, classes, describe_left_out(folder, left_out)


def _find_file(root: Path, images: Path, name: str) -> Path:
    for folder in _FOLDERS:
        path = root / folder / name
        if path.is_file():
            return path
    raise ValueError(
        f"{images}: has no class folders; "
        f"sort the images into class folders, or extract {name} from "
        f"ILSVRC2012_devkit_t12.tar.gz (https://image-net.org/download) into {root}"
    )
