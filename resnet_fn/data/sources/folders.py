"""This module lists the images of a data set that has a folder for each class."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.hints import suggest_name
from resnet_fn.config.path_hints import near_path
from resnet_fn.config.wording import counted, first_few
from resnet_fn.data.class_names import number_classes, warn_alike
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.contents import VALIDATION
from resnet_fn.data.sources.files import (
    FileSplit,
    color_spec,
    describe_left_out,
    has_images,
    how_to_convert,
    is_left_out,
    list_folders,
    list_images,
    list_left_out,
    list_loose_images,
    show_contents,
)
from resnet_fn.data.sources.halves import Halves, enter, find_halves, how_to_use, kind_of
from resnet_fn.data.sources.imagenet_val import list_flat_val
from resnet_fn.data.sources.validation import SplitRule, split_off


def load_folder(data_dir: str, share: float, rule: SplitRule, trains: bool = True) -> DataSet:
    """List the images of the training and the validation folder that `find_halves` finds.

    The classes are the sorted names of class folders. The validation folder has the same class
    folders, or holds ImageNet's validation images without folders. If there is no validation folder
    and `share` is above 0, or if `rule` is fixed, `split_off` makes the validation split from the
    training images. If `trains` is False, the training folder may be missing.
    """
    root = Path(data_dir)
    halves = find_halves(root, rule.classes)
    train_folder = halves.train
    validation = halves.validation
    classes = halves.classes
    had_folder = rule.exact and rule.run and not rule.is_fixed  # nothing was split off
    if had_folder and train_folder and not validation and root.is_dir():
        # with a share, the run's file validation.json may be missing, as for a copied checkpoint
        split = f" if the images were split off, {rule.run}/{VALIDATION}; or" if share else ""
        raise ValueError(
            f"data_dir: the validation folder of the run {rule.run} is missing or empty in {root}; "
            f"restore it, or{split} evaluate the run on another folder with --data-dir FOLDER"
        )
    validates = validation is not None or share > 0 or rule.is_fixed
    if not trains and (train_folder is None or (train_folder == root and not validates)):
        return load_test_folder(data_dir)
    is_empty = train_folder == root and root.is_dir() and not list_loose_images(root)
    if train_folder is None or ((classes or is_empty) and not validates):
        raise ValueError(f"data_dir: {_what_is_missing(root, halves)}")
    scores_only = rule.is_fixed and not trains and root.is_dir()
    if scores_only and {*classes} < {*rule.classes}:  # folders of other classes were removed
        classes = tuple(rule.classes)
    train, notes = _list_classes(train_folder, halves.classes, classes)
    if not scores_only:
        _check_classes(train_folder, classes, train)
    notes += warn_alike(classes)
    if train_folder != root:
        # not other files: a development kit or a README is no image that is missing
        beside = [
            name for name in list_left_out(root) if is_left_out(name) or how_to_convert([name])
        ]
        notes += describe_left_out(root, beside) + _describe_loose(root)
    if validation is None or rule.is_fixed:
        train, test, more = split_off(train, share, rule)
        if validation:
            more.append(
                f"{validation} is not used, because {VALIDATION} lists the validation images of "
                "this run"
            )
    else:
        test, _, more = _list_labelled(root, validation, classes, "train")
        if share:
            more.append(
                f"{validation} is the validation set, so nothing is split off the training images"
            )
    notes += [*more, *(how_to_use(folder, classes) for folder in halves.tests), *halves.notes]
    _check_not_empty(test)
    spec = color_spec("imagefolder", classes)
    is_split = validation is None or rule.is_fixed
    return DataSet(train, test, spec, tuple(notes), is_split=is_split)


def load_test_folder(data_dir: str, classes: Sequence[str] = ()) -> DataSet:
    """List all images in a folder of class folders, or in its validation folder, or test folder.

    `classes` are the classes of a trained net, some of which may have no folder, or () for the
    sorted names of the class folders. The training split is empty.
    """
    root = folder = Path(data_dir)
    if not root.is_dir():
        fix = near_path(data_dir, "give the folder of the images with --data-dir")
        raise ValueError(f"data_dir: {data_dir!r} does not exist; {fix}")
    notes: list[str] = []
    if not {*list_folders(root)} <= {*classes}:
        halves = find_halves(root, classes)
        scored = [*halves.tests]
        if halves.validation and has_images(halves.validation):
            scored.insert(0, halves.validation)
        if not scored and halves.train not in (None, root):
            raise ValueError(
                f"data_dir: {root} holds no validation or test folder; "
                f"to score the training images, give --data-dir {halves.train}"
            )
        folder = scored[0] if scored else root
        fix = "to score it, give it as --data-dir"
        notes = [f"{unscored} is not scored; {fix}" for unscored in scored[1:]]
    test, all_classes, more = _list_labelled(root, folder, classes, "the trained net")
    if not classes:
        _check_classes(Path(test.root), all_classes, test)
    _check_not_empty(test)
    nothing = FileSplit(test.root, (), np.zeros(0, np.int32))
    spec = color_spec("imagefolder", all_classes)
    return DataSet(nothing, test, spec, (*more, *notes), validates=False)


def _what_is_missing(root: Path, halves: Halves) -> str:
    """Return the problem and the fix if a data set has no training folder, or nothing validates."""
    contents = show_contents(root)
    problem = f"{str(root)!r} must contain train/ and val/, but it contains {contents}"
    inner = [root / name for name in list_folders(root) if _holds_data_set(root / name)]
    if halves.train == root and inner:
        return f"{problem}; give --data-dir {inner[0]}"
    if halves.train is None:
        fix = "rename the folders if they are classes"
        for folder in (halves.validation, *halves.tests):
            if folder and list_folders(folder):
                fix = f"give --data-dir {folder} to train on its images"
        return f"{problem}; add the training folder, or {fix}"
    fix = (
        "lay the images out as train/CLASS/*.JPEG and val/CLASS/*.JPEG (ImageNet: "
        "https://image-net.org/download), or give --validation-share 0.2 to split one folder"
    )
    tests = [how_to_use(folder, halves.classes) for folder in halves.tests]
    return "; ".join((problem, fix, *tests))


def _check_not_empty(test: FileSplit) -> None:
    if not len(test):
        fix = f"lay the images out as {test.root}/CLASS/*.JPEG"
        fix = how_to_convert(list_images(test.root)[1]) or fix
        raise ValueError(f"data_dir: {test.root} contains no images; {fix}")


def _check_classes(folder: Path, classes: Sequence[str], files: FileSplit) -> None:
    """Raise ValueError if the folders in `folder` cannot be the classes, for example because one is
    empty.
    """
    counts = np.bincount(files.labels, minlength=len(classes))
    layout = f"lay the images out as {folder}/CLASS/*.JPEG"
    if not folder.is_dir():
        problem = f"{folder} does not exist"
        fix = near_path(folder, layout)
    elif not classes and list_loose_images(folder):
        problem = f"{folder} holds images and no folders"
        parent = folder.parent
        grandparent = parent.parent if kind_of(parent.name) == "training" else parent
        fix = f"if they are of one class, give the parent folder with --data-dir {grandparent}"
        if kind_of(folder.name) == "training":
            fix = f"{layout}, or give --train-list FILE --val-list FILE"
            alike = [name for name in list_folders(parent) if kind_of(name)]
            if len(alike) > 1:
                fix = f"{fix}; if {first_few(alike)} are classes, rename these folders"
    elif not classes:
        problem = f"{folder} contains no class folders"
        fix = layout
    elif not counts.all():
        empty = folder / classes[int(np.argmin(counts))]
        problem = f"{empty} contains no images"
        fix = "add images or remove the folder, which would count as a class"
        if {*classes} == {"images", "labels"}:
            fix = "this is for object detection; export the data with a folder for each class"
        fix = how_to_convert(list_images(empty)[1]) or _look_inside(empty) or fix
    elif len(classes) == 1:
        problem = f"{folder} holds one class only, {classes[0]!r}"
        fix = "lay the images out with a folder for each class, and give their parent folder"
        fix = _look_inside(folder / classes[0]) or fix
    elif around := [name for name in classes if _holds_data_set(folder / name)]:
        problem = f"{folder / around[0]} holds a data set, not a class"
        fix = _look_inside(folder / around[0])
    else:
        return
    raise ValueError(f"data_dir: {problem}; {fix}")


def _holds_data_set(folder: Path) -> bool:
    """Return whether all folders in `folder` have names of halves, of which one trains."""
    kinds = {kind_of(name) for name in list_folders(folder)}
    return "training" in kinds and not kinds.isdisjoint(("validation", "test")) and "" not in kinds


def _look_inside(folder: Path) -> str:
    """Return a text that suggests `folder` as --data-dir, or "" if `folder` contains no folders."""
    inner = list_folders(folder)
    if not inner:
        return ""
    condition = "" if _holds_data_set(folder) else " if these are the classes"
    return f"it holds the folders {first_few(inner)}, so give --data-dir {folder}{condition}"


def _list_labelled(
    root: Path, folder: Path, classes: Sequence[str], source: str
) -> tuple[FileSplit, Sequence[str], list[str]]:
    """Return the images in the class folders of `enter(folder)`, the classes, and notes.

    `source` names what has `classes`. If `classes` is empty, all folders in `folder` are classes.
    Without folders, the images are ImageNet's.
    """
    entered = enter(folder, classes)
    folders = list_folders(entered)
    if entered != folder and not folders and not kind_of(entered.name):  # a class without others
        folders = [entered.name]
        entered = entered.parent
    folder = entered
    if not folders:
        return list_flat_val(root, folder, classes)
    classes = classes or folders
    find = number_classes(classes)
    for name in folders:
        if find(name) is None:
            extra = folder / name
            fix = _look_inside(extra) if _holds_data_set(extra) else suggest_name(name, classes)
            raise ValueError(f"data_dir: {extra} exists, but {name} is no class of {source}; {fix}")
    split, notes = _list_classes(folder, folders, classes)
    return split, classes, notes


def _list_classes(
    root: Path, folders: Sequence[str], classes: Sequence[str]
) -> tuple[FileSplit, list[str]]:
    """Return the images in class folders below `root`, and notes about what is left out."""
    names: list[str] = []
    numbers: list[int] = []
    left_out = list_left_out(root)
    find: Any = number_classes(classes)
    for folder in sorted(folders, key=find):
        label = find(folder)
        images, others = list_images(root / folder)
        names += [f"{folder}/{name}" for name in images]
        numbers += [label] * len(images)
        left_out += [os.path.join(folder, name) for name in others]
    notes = describe_left_out(root, sorted(left_out)) + _describe_loose(root)
    return FileSplit(str(root), names, np.array(numbers, np.int32)), notes


def _describe_loose(folder: Path) -> list[str]:
    """Return a list with a line about the images directly in `folder`, or an empty list."""
    loose = list_loose_images(folder)
    if not loose:
        return []
    return [
        f"ignoring {counted(len(loose), 'image')} beside the class folders, for example "
        f"{folder / loose[0]}"
    ]
