"""This module finds the training, validation and test folders of a data set by their names."""

import dataclasses
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from resnet_fn.config.cli import with_typed_command
from resnet_fn.data.class_names import composed
from resnet_fn.data.sources.files import has_images, list_folders, list_loose_images

# The usual names of a data set's folders. A name in doubt, such as "evaluation", is that of a test
# folder, which training never reads.
_NAMES = {
    "training": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev", "devel", "development"),
    "test": ("test", "testing", "test1", "holdout", "heldout", "eval", "evaluation"),
    "unlabelled": ("pred", "predict", "prediction", "predictions", "unlabeled", "unlabelled"),
}
_KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names}
_BEFORE = "seg|img|images?|data(?:set)?|ilsvrc2012img"
_AFTER = "set|data(?:set)?|imgs?|images?|pictures|split|folder|dir"
_PATTERN = re.compile(f"(?:{_BEFORE})?({'|'.join(_KIND_OF)})(?:{_AFTER})?")

_Places = Mapping[str, Sequence[Path]]  # folders of each kind


@dataclasses.dataclass(frozen=True)
class Halves:
    """The folders of a data set, which `find_halves` finds."""

    train: Path | None  # holds class folders
    classes: tuple[str, ...] = ()  # names of the folders in `train` that are classes
    validation: Path | None = None  # holds class folders, or ImageNet's images; or it is empty
    tests: tuple[Path, ...] = ()  # hold class folders, or images without labels
    notes: tuple[str, ...] = ()  # lines about other folders with images


def kind_of(name: str) -> str:
    """Return "training", "validation", "test" or "unlabelled" for a folder's name, else ""."""
    match = _PATTERN.fullmatch(re.sub(r"[\W_]", "", name.lower()))
    return _KIND_OF[match[1]] if match else ""


def enter(folder: Path, classes: Collection[str] = ()) -> Path:
    """Return the folder that an archive added inside `folder`, as seg_train/seg_train, or `folder`.

    The added folder is the only one in `folder`, which holds no images. The folder's name is not in
    `classes`. If `classes` is empty, the folder must hold folders.
    """
    known = {composed(name) for name in classes}
    while not list_loose_images(folder):
        inner = list_folders(folder)
        if len(inner) != 1 or composed(inner[0]) in known:
            break
        if not known and not list_folders(folder / inner[0]):
            break
        folder = folder / inner[0]
    return folder


def find_halves(root: Path, known: Collection[str] = ()) -> Halves:
    """Find the folders of the data set in `root` by their names and contents.

    Without a training folder, the class folders are in `root` itself. If folders with other names
    hold images, too, a training folder is a class, except beside a validation or test folder that
    fits it (`_fits`).

    `known` are the classes of a trained net, if there is one. An older version may have read the
    data set. Therefore, if `root` or train has just these folders, it holds the class folders, and
    of several validation folders, val is taken.

    Raises ValueError if two folders can be the training folder, or can be the validation folder.
    """
    folders = list_folders(root)
    if known and folders == sorted(known):
        return Halves(train=root, classes=tuple(folders))
    # the folders of each kind; those of the kind "" have other names
    named = {
        kind: [root / name for name in folders if kind_of(name) == kind] for kind in ("", *_NAMES)
    }
    # not of the kind "": in these, nothing is listed that may be unreadable or large
    halves = {kind: list(filter(_holds_classes, named[kind])) for kind in _NAMES}
    if known and root / "val" in halves["validation"]:
        halves["validation"] = [root / "val"]
    if known and list_folders(root / "train") == sorted(known):
        halves["training"] = [root / "train"]
    elif not _are_halves(named, halves["training"]):
        return _beside_classes(root, folders, named)
    train = _only("training", halves["training"] or named["training"][:1])
    notes = _describe_others("training", named["training"], train)
    classes: list[str] = []
    if train:
        train = enter(train, known)
        classes = list_folders(train)
    known = known or classes
    flat = list(filter(has_images, named["validation"]))
    validation = _only("validation", halves["validation"] or flat or named["validation"][:1])
    tests = filter(has_images, named["test"])
    notes += _describe_others("validation", named["validation"], validation)
    notes += [how_to_use(folder, known) for folder in filter(has_images, named["unlabelled"])]
    notes += [
        f"{folder} is not used: its name is of no training, validation or test folder"
        for folder in filter(has_images, named[""])
    ]
    return Halves(train, tuple(classes), validation, tuple(tests), tuple(notes))


def _describe_others(kind: str, folders: Sequence[Path], used: Path | None) -> list[str]:
    """Return lines about the folders with images that are named like the folder `used`."""
    return [
        f"{folder} is not used: {used} is the {kind} folder"
        for folder in folders
        if folder != used and has_images(folder)
    ]


def how_to_use(folder: Path, classes: Collection[str]) -> str:
    """Return a line with the command for a folder that is not used in training."""
    quoted = shlex.quote(str(folder))
    if list_folders(enter(folder, classes)):
        command = with_typed_command(f"python -m resnet_fn.evaluate RUN --data-dir {quoted}")
        return f"{folder} is not used in training; to score it afterwards: {command}"
    command = with_typed_command(f"python -m resnet_fn.predict RUN {quoted}")
    return (
        f"{folder} is not used in training, because it has no class folders; "
        f"to classify its images: {command}"
    )


def _beside_classes(root: Path, folders: Sequence[str], named: _Places) -> Halves:
    """Return the halves of a data set with class folders in `root`.

    A validation or test folder is no class if its folders have the names of class folders.
    """
    beside: dict[str, list[Path]] = {kind: [] for kind in _NAMES}
    classes = list(folders)
    notes = []
    for kind, paths in beside.items():
        for folder in named[kind]:
            inner = {*list_folders(enter(folder, folders))}
            names = {*folders} - {folder.name}
            if kind in ("validation", "test") and inner and inner <= names:
                paths.append(folder)
                classes.remove(folder.name)
                continue
            notes.append(
                f"warning: {folder} counts as a class, because folders beside it hold images; "
                f"if it is the {kind} folder, move it out of {root}"
            )
    validation = _only("validation", beside["validation"])
    return Halves(root, tuple(classes), validation, tuple(beside["test"]), tuple(notes))


def _are_halves(named: _Places, candidates: Sequence[Path]) -> bool:
    """Return whether folders named as halves are halves, not classes.

    `candidates` are the training folders with class folders.
    """
    scored = [*named["validation"], *named["test"]]
    if not named["training"] and not scored:
        return False
    for train in candidates:
        if any(_fits(folder, train) for folder in scored):
            return True
    return not any(has_images(folder) for folder in named[""])


def _holds_classes(folder: Path) -> bool:
    return any(has_images(folder / name) for name in list_folders(folder))


def _fits(folder: Path, train: Path) -> bool:
    """Return whether `folder` can hold images of the classes in `train`.

    They have a class in common, or `folder` holds only images and `train` only folders.
    """
    classes = {composed(name) for name in list_folders(enter(train))}
    inner = list_folders(enter(folder, classes))
    if not inner:
        return has_images(folder) and not list_loose_images(train)
    return any(composed(name) in classes for name in inner)


def _only(kind: str, folders: Sequence[Path]) -> Path | None:
    if len(folders) > 1:
        names = " and ".join(map(str, folders))
        raise ValueError(
            f"data_dir: {names} can each be the {kind} folder; rename or move all except one"
        )
    return folders[0] if folders else None
