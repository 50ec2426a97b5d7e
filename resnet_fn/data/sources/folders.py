"""Image folders: train/CLASS/*.JPEG and val/CLASS/*.JPEG, or ImageNet's flat val with its ground truth."""

import dataclasses
import os
from pathlib import Path

import numpy as np

from resnet_fn.config.hints import closest
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.files import FileSplit, color_spec, is_image
from resnet_fn.data.sources.ground_truth import list_flat_val

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load_folder(data_dir: str, threads: int) -> DataSet:
    """List an image folder. Classes are the sorted folder names of train; val gets the same numbers.

    Raises:
        ValueError: says what was looked for, what is there and how to lay it out.
    """
    root = Path(data_dir)
    if not (root / "train").is_dir() or not (root / "val").is_dir():
        found = sorted(path.name for path in root.iterdir())[:5] if root.is_dir() else []
        raise ValueError(
            f"data_dir: looked for train/ and val/ in {data_dir!r}, found {', '.join(found) or 'nothing'}; "
            "lay the images out as train/CLASS/*.JPEG and val/CLASS/*.JPEG (ImageNet: https://image-net.org/download)"
        )
    classes = _class_folders(root / "train")
    if not classes:
        raise ValueError(f"{root / 'train'}: holds no class folders; lay the images out as train/CLASS/*.JPEG")
    train, other = _list_classes(root / "train", classes)
    counts = np.bincount(train.labels, minlength=len(classes))
    if not counts.all():
        empty = root / "train" / classes[int(np.argmin(counts))]
        raise ValueError(f"{empty}: holds no images; remove the folder or fill it (it would count as a class)")
    folders = _class_folders(root / "val")
    notes = [f"ignoring {len(other)} files that are no images, {other[0]} among them"] if other else []
    if folders:
        unknown = sorted(set(folders) - set(classes))
        if unknown:
            raise ValueError(f"{root / 'val' / unknown[0]}: is not a class of train; {closest(unknown[0], classes)}")
        test, other = _list_classes(root / "val", classes)
        missing = len(classes) - len(set(test.labels.tolist()))
        if missing:
            notes.append(f"val has no images of {missing} of the {len(classes)} classes")
        if other:
            notes.append(f"ignoring {len(other)} files in val that are no images, {other[0]} among them")
    else:
        test = list_flat_val(root, classes)
    if not len(test):
        raise ValueError(f"{root / 'val'}: holds no images; lay them out as val/CLASS/*.JPEG")
    train, test = (dataclasses.replace(split, threads=threads) for split in (train, test))
    return DataSet(train, test, color_spec("imagefolder", classes, IMAGENET_MEAN, IMAGENET_STD), tuple(notes))


def _class_folders(root: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))


def _list_classes(root: Path, classes: list[str]) -> tuple[FileSplit, list[str]]:
    names: list[str] = []
    labels: list[int] = []
    other: list[str] = []
    for label, folder in enumerate(classes):
        if not (root / folder).is_dir():
            continue
        for name in sorted(entry.name for entry in os.scandir(root / folder) if not entry.name.startswith(".")):
            if is_image(name):
                names.append(os.path.join(folder, name))
                labels.append(label)
            else:
                other.append(str(root / folder / name))
    return FileSplit(str(root), tuple(names), np.array(labels, np.int32)), other
