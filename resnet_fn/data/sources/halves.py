"""This module finds the training, validation and test folders of a data set by their names."""

import dataclasses
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from resnet_fn.config.cli import as_typed
from resnet_fn.data.sources.files import composed, has_images, list_folders, list_loose_images

# The usual names of a data set's folders. A name in doubt ("evaluation") is a test folder, which training never reads.
_NAMES = {
    "training": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev", "devel", "development"),
    "test": ("test", "testing", "test1", "holdout", "heldout", "eval", "evaluation"),
    "unlabelled": ("pred", "predict", "prediction", "predictions", "unlabeled", "unlabelled"),
}
_KINDS = "training, validation or test"
_KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names}
_BEFORE, _AFTER = (
    "seg|img|images?|data(?:set)?|ilsvrc2012img",
    "set|data(?:set)?|imgs?|images?|pictures|split|folder|dir",
)
_PATTERN = re.compile(f"(?:{_BEFORE})?({'|'.join(_KIND_OF)})(?:{_AFTER})?")


@dataclasses.dataclass(frozen=True)
class Halves:
    """The folders of a data set. A folder that `find_halves` found by its name can be in a folder of its own."""

    train: Path | None  # holds class folders
    classes: tuple[str, ...] = ()  # names of the folders in `train` that are classes
    validation: Path | None = None  # holds class folders, or ImageNet's images without folders
    tests: tuple[Path, ...] = ()  # hold class folders, or images without labels
    notes: tuple[str, ...] = ()  # lines about other folders with images


def kind_of(name: str) -> str:
    """Return "training", "validation", "test" or "unlabelled" for a usual name of such a folder, and else ""."""
    match = _PATTERN.fullmatch(re.sub(r"[\W_]", "", name.lower()))
    return _KIND_OF[match[1]] if match else ""


def enter(place: Path, classes: Collection[str] = ()) -> Path:
    """Return the folder inside `place` that archives add, such as seg_train/seg_train, or `place` if there is none.

    The folder is the only one in `place`, which holds no images. Its name is not in `classes`, or it holds folders if
    `classes` is empty.
    """
    known = {*map(composed, classes)}
    while len(inner := list_folders(place)) == 1 and composed(inner[0]) not in known:
        if list_loose_images(place) or not (known or list_folders(place / inner[0])):
            break
        place = place / inner[0]
    return place


def find_halves(root: Path, known: Collection[str] = ()) -> Halves:
    """Find the folders of the data set in `root`, by their names (train, Training, seg_train) and by what they hold.

    Without a training folder, the class folders are in `root` itself. If folders with other names hold images, too, a
    training folder is a class, except beside a validation or test folder that fits it (`_is_half_of`).

    `known` are the classes of a trained net, if there is one. They are not folders that archives add.

    Raises ValueError if several folders can be the training folder, or several can be the validation folder.
    """
    folders = list_folders(root)
    named = {kind: [root / name for name in folders if kind_of(name) == kind] for kind in _NAMES}
    halves = {kind: [place for place in places if _holds_classes(place)] for kind, places in named.items()}
    scored = [*named["validation"], *named["test"]]
    others = [root / name for name in folders if not kind_of(name)]
    fits = any(_is_half_of(train, place) for train in halves["training"] for place in scored)
    if not fits and (any(map(has_images, others)) or not (named["training"] or scored)):
        return _beside_classes(root, folders, halves)
    train = _only("training", halves["training"]) or next(iter(named["training"]), None)
    validation = _only("validation", halves["validation"] or list(filter(has_images, named["validation"])))
    train = enter(train, known) if train else None
    classes = list_folders(train) if train else []
    known = known or classes
    tests = tuple(filter(has_images, named["test"]))
    unlabelled = [*filter(has_images, named["unlabelled"])]
    notes = [how_to_use(place, known) for place in unlabelled]
    notes += [f"{place} is not used: its name is of no {_KINDS} folder" for place in others if has_images(place)]
    validation = validation and enter(validation, known)
    return Halves(train, tuple(classes), validation, tests, tuple(notes))


def how_to_use(place: Path, classes: Collection[str]) -> str:
    """Return a line with the command for a folder that is not used in training."""
    folder = shlex.quote(str(place))
    if list_folders(enter(place, classes)):
        command = as_typed(f"python -m resnet_fn.evaluate RUN --data-dir {folder}")
        return f"{place} is not used in training; to score it afterwards: {command}"
    command = as_typed(f"python -m resnet_fn.predict RUN {folder}")
    return f"{place} is not used in training, because it has no class folders; to classify its images: {command}"


def _beside_classes(root: Path, folders: Sequence[str], halves: Mapping[str, Sequence[Path]]) -> Halves:
    """Return the halves of a data set with class folders in `root`.

    A validation or test folder among the class folders is no class if it holds folders with names of classes.
    """
    beside: dict[str, list[Path]] = {"validation": [], "test": []}
    notes = []
    for kind in ("training", "validation", "test"):
        for place in halves[kind]:
            inner = {*list_folders(enter(place, folders))}
            if kind != "training" and inner and inner <= {*folders} - {place.name}:
                beside[kind].append(place)
            else:
                fix = f"if it is the {kind} folder, move it out of {root} or give it as --data-dir"
                notes.append(f"warning: {place} counts as a class, because folders beside it hold images; {fix}")
    left_out = {place.name for places in beside.values() for place in places}
    classes = tuple(name for name in folders if name not in left_out)
    validation = _only("validation", beside["validation"])
    return Halves(root, classes, validation and enter(validation, classes), tuple(beside["test"]), tuple(notes))


def _holds_classes(place: Path) -> bool:
    return any(has_images(place / name) for name in list_folders(place))


def _is_half_of(train: Path, place: Path) -> bool:
    """Return whether `place` and `train` have a class in common, or `place` holds only images and `train` none."""
    classes = {*map(composed, list_folders(enter(train)))}
    inner = {*map(composed, list_folders(enter(place, classes)))}
    if not inner:
        return has_images(place) and not list_loose_images(train)
    return bool(inner & classes)


def _only(kind: str, places: Sequence[Path]) -> Path | None:
    if len(places) > 1:
        names = " and ".join(map(str, places))
        raise ValueError(f"data_dir: {names} can each be the {kind} folder; rename or move all except one")
    return places[0] if places else None
