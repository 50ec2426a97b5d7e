"""This module lists the images of a data set that has a folder for each class."""

import dataclasses
import os
from pathlib import Path

import numpy as np

from resnet_fn.config.hints import closest, few, near_path
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.files import FileSplit, color_spec, describe_left_out, is_image, list_images
from resnet_fn.data.sources.validation import SplitRule, split_off

_TRUTH, _META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
_PLACES = ("", "val", "data", "ILSVRC2012_devkit_t12/data")


def load_folder(data_dir: str, threads: int, share: float, rule: SplitRule) -> DataSet:
    """List the images in train/CLASS/ and val/ below `data_dir`. The classes are the sorted names of class folders.

    val/ has the same class folders, or holds ImageNet's validation images without folders. If there is no val/ and
    `share` is above 0, `split_off` makes the validation split, and class folders may be in `data_dir` itself.
    """
    root = Path(data_dir)
    whole = bool(share) and not (root / "val").is_dir()
    if not whole and not ((root / "train").is_dir() and (root / "val").is_dir()):
        contents = ", ".join(sorted(path.name for path in root.iterdir())[:5] if root.is_dir() else []) or "nothing"
        layout = "train/CLASS/*.JPEG and val/CLASS/*.JPEG (ImageNet: https://image-net.org/download)"
        fix = f"lay the images out as {layout}, or give --validation-share 0.2 to split one folder"
        if inner := [name for name in _class_folders(root) if (root / name / "train").is_dir()]:
            fix = f"give --data-dir {root / inner[0]}"
        raise ValueError(f"data_dir: {data_dir!r} must contain train/ and val/, but it contains {contents}; {fix}")
    place = root / "train" if not whole or (root / "train").is_dir() else root
    classes = _class_folders(place)
    train, notes = _list_classes(place, classes)
    _check_classes(place, classes, train)
    if loose := sorted(name for name in os.listdir(place) if is_image(name) and name[0] != "."):
        notes.append(f"ignoring {len(loose)} images beside the class folders, for example {place / loose[0]}")
    if share and not whole:
        notes.append(f"{root / 'val'} is the validation set, so nothing is split off the training images")
    more: list[str] = []
    if whole:
        train, test, more = split_off(train, share, rule)
    elif folders := _class_folders(root / "val"):
        if unknown := sorted(set(folders) - set(classes)):
            fix = closest(unknown[0], classes)
            raise ValueError(f"data_dir: {root / 'val' / unknown[0]} exists, but train/{unknown[0]} does not; {fix}")
        test, more = _list_classes(root / "val", classes)
    else:
        test, more = _list_flat_val(root, classes)
    if not len(test):
        raise ValueError(f"data_dir: {root / 'val'} contains no images; lay the images out as val/CLASS/*.JPEG")
    train, test = (dataclasses.replace(split, threads=threads) for split in (train, test))
    spec = color_spec("imagefolder", classes)
    return DataSet(train, test, spec, (*notes, *more), held_out=test.names if whole else ())


def _check_classes(place: Path, classes: list[str], files: FileSplit) -> None:
    """Raise ValueError if the folders in `place` cannot be the classes, for example because one is empty."""
    counts = np.bincount(files.labels, minlength=len(classes))
    if not place.is_dir():
        problem, fix = f"{place} does not exist", near_path(place, f"lay the images out as {place}/CLASS/*.JPEG")
    elif not classes and any(map(is_image, os.listdir(place))):
        parent = place.parent.parent if place.parent.name == "train" else place.parent
        problem = f"{place} holds images and no folders"
        fix = f"if the images are of one class, give the parent folder with --data-dir {parent}"
    elif not classes:
        problem, fix = f"{place} contains no class folders", f"lay the images out as {place}/CLASS/*.JPEG"
    elif not counts.all():
        empty = place / classes[int(np.argmin(counts))]
        problem, fix = f"{empty} contains no images", "add images or remove the folder, which would count as a class"
        fix = _look_inside(empty) or fix
    elif len(classes) == 1:
        problem = f"{place} holds one class only, {classes[0]!r}"
        fix = "lay the images out with a folder for each class, and give their parent folder"
        fix = _look_inside(place / classes[0]) or fix
    elif around := [name for name in classes if (place / name / "train").is_dir()]:
        problem, fix = f"{place / around[0]} holds a data set, not a class", _look_inside(place / around[0])
    else:
        return
    raise ValueError(f"data_dir: {problem}; {fix}")


def _look_inside(folder: Path) -> str:
    """Return a text that suggests `folder` as --data-dir, or "" if `folder` contains no folders."""
    inner = _class_folders(folder)
    condition = "" if "train" in inner else " if these are the classes"
    return f"it holds the folders {few(inner)}, so give --data-dir {folder}{condition}" if inner else ""


def _class_folders(root: Path) -> list[str]:
    if not root.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))


def _list_classes(root: Path, classes: list[str]) -> tuple[FileSplit, list[str]]:
    """Return the images below the class folders, and a list of notes about names that are left out."""
    names: list[str] = []
    labels: list[int] = []
    left_out = [name for name in os.listdir(root) if name.startswith(".")] if root.is_dir() else []
    for label, folder in enumerate(classes):
        if (root / folder).is_dir():
            images, others = list_images(root / folder)
            names += [f"{folder}/{name}" for name in images]
            labels += [label] * len(images)
            left_out += [os.path.join(folder, name) for name in others]
    return FileSplit(str(root), tuple(names), np.array(labels, np.int32)), describe_left_out(root, sorted(left_out))


def _list_flat_val(root: Path, classes: list[str]) -> tuple[FileSplit, list[str]]:
    """Return ImageNet's images in `root`/val with official labels, and a list of notes about names that are left out.

    ILSVRC2012_validation_ground_truth.txt has a number 1..1000 for each image, in the order of the file names. The
    file meta.mat maps each number to a class folder, because numbers are not in the alphabetical order of folders.
    """
    names, left_out = list_images(root / "val")
    if not names:
        raise ValueError(f"{root / 'val'}: holds neither class folders nor images; lay images out as val/CLASS/*.JPEG")
    truth, meta = _find_file(root, _TRUTH), _find_file(root, _META)
    if truth is None or meta is None:
        missing = _TRUTH if truth is None else _META
        fix = f"extract {missing} from ILSVRC2012_devkit_t12.tar.gz (https://image-net.org/download) into {root}"
        raise ValueError(f"{root / 'val'}: has no class folders; sort the images into class folders, or {fix}")
    from scipy.io import loadmat  # a dependency of MindSpore

    file = truth
    try:
        numbers = [int(line) for line in truth.read_text().split()]
        file = meta
        rows = loadmat(str(meta), squeeze_me=True)["synsets"]
        folders = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
    except Exception as error:
        raise ValueError(f"{file}: is damaged ({error}); extract the development kit again") from None
    if len(numbers) != len(names):
        lines, images = len(numbers), len(names)
        raise ValueError(f"{truth}: has {lines} lines for {images} images in {root / 'val'}; the numbers must be equal")
    labels = {number: classes.index(name) for number, name in folders.items() if name in classes}
    if unknown := [number for number in numbers if number not in labels]:
        number, name = unknown[0], folders.get(unknown[0])
        raise ValueError(f"{truth}: train has no folder for number {number} ({name}); add the folder to train")
    split = FileSplit(str(root / "val"), tuple(names), np.array([labels[number] for number in numbers], np.int32))
    return split, describe_left_out(split.root, left_out)


def _find_file(root: Path, name: str) -> Path | None:
    return next((root / place / name for place in _PLACES if (root / place / name).is_file()), None)
