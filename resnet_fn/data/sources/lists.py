"""This module reads lists of image files.

A list is a CSV file, or a text file of lines "PATH CLASS".
"""

import dataclasses
import os
import re
import sys
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.hints import suggest_name
from resnet_fn.config.path_hints import near_path
from resnet_fn.config.wording import counted
from resnet_fn.data.class_names import composed, merge_equal, number_classes, warn_alike
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.files import FileSplit, color_spec, is_image
from resnet_fn.data.sources.names import Names
from resnet_fn.data.table import CLASS, Column, fault_of_cell, read_table

PATH = Column("path", ("path", "file", "filename", "image"))
_LOOKED_AT = 20  # if none of this many first files exists, the list was made for another folder
_FORMS = "", "NFC", "NFD"  # Unicode's forms of a path; "": as it is


@dataclasses.dataclass(frozen=True)
class ImageList:
    """Holds the rows of a list in few bytes, because a list may have millions of rows."""

    file: Path
    paths: Names
    kind: np.ndarray  # number of a row's set of classes in `kinds`, int32 [N]
    kinds: list[tuple[str, ...]]  # the sets of classes that occur, in Unicode's form NFC
    classes: set[str]  # names of the classes, as the list writes them
    lines: np.ndarray  # line at which a row begins, uint32 [N]
    groups: tuple[str, ...] | None  # group of each row, if the list has a column of groups
    notes: tuple[str, ...] = ()  # lines that the run prints

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def keys(self) -> np.ndarray:
        """Hash of each path, int64 [N]. Paths of one file, such as a/b and ./a/b, have one hash."""
        keys = (hash(os.path.normpath(path)) for path in self.paths)
        return np.fromiter(keys, np.int64, len(self))

    def line_of(self, row: int) -> str:
        """Return the line of a row, for example "train.txt line 3"."""
        return f"{self.file} line {self.lines[row]}"


def load_lists(
    data_dir: str,
    train_list: str,
    val_list: str,
    known: Sequence[str] = (),
    several: bool = False,
    group_by: str = "",
) -> DataSet:
    """Make a data set from two lists of image files.

    Args:
        data_dir: folder to which relative paths in the lists refer.
        train_list: list of the training images, or "" for none, which needs `known`.
        val_list: list of the validation images, or "" for none.
        known: classes of a trained net, or () for the sorted classes of `train_list`.
        several: whether an image may have any number of classes, such as "cat;dog".
        group_by: column with the groups of `FileSplit`. A list without this column has no groups.

    Raises:
        ValueError: if a list cannot be read, or a row is wrong.
    """
    read = partial(_read, data_dir=data_dir, known=known, several=several, group_by=group_by)
    train = read("train_list", train_list)
    if train_list and not known:
        _check_exists(train, data_dir)
    val = read("val_list", val_list)
    if val_list:
        _check_exists(val, data_dir)
    classes = tuple(known)
    if not known:
        names = sorted(merge_equal(train.classes))
        if all(name.isascii() and name.isdigit() for name in names):
            names.sort(key=int)
        classes = tuple(names)
    if len(classes) < 2 - several:
        got = f"one class only, {classes[0]!r}" if classes else "no class"
        raise ValueError(f"train_list: {train_list} has {got}; add images of more classes")
    source = "the trained net" if known else train_list
    training, validation = (
        FileSplit(
            data_dir,
            images.paths,
            _labels(images, classes, source, several),
            groups=images.groups,
        )
        for images in (train, val)
    )
    alike = [] if known else warn_alike(train.classes)
    notes = (*train.notes, *val.notes, *alike, *_notes(train, val, classes, several))
    return DataSet(training, validation, color_spec("imagefolder", classes), notes)


def fits_folder(name: str, data_dir: str) -> bool:
    """Return whether a list has relative paths, and some of its first images are in `data_dir`."""
    file = Path(name)
    if not file.is_file():
        return False
    rows = islice(read_table("val_list", file, (PATH, CLASS), "give another list"), _LOOKED_AT)
    paths, _ = _spell_as_on_disk(Names(row.first for row in rows), file, data_dir)
    return any(not os.path.isabs(path) and _exists(data_dir, path) for path in paths)


def _labels(images: ImageList, classes: Sequence[str], source: str, several: bool) -> np.ndarray:
    """Return labels, int32 [N], or zeros and ones, float32 [N, classes], if `several` is true."""
    find = number_classes(classes)
    numbers: list[Any] = []
    for kind, names in enumerate(images.kinds):  # in the order of the rows
        numbers.append(list(map(find, names)))
        if None in numbers[-1]:
            unknown = names[numbers[-1].index(None)]
            line = images.line_of(int(np.argmax(images.kind == kind)))
            fix = suggest_name(unknown, classes)
            raise ValueError(f"{line}: {unknown!r} is not a class of {source}; {fix}")
    if not several:
        return np.array(numbers, np.int32).reshape(-1)[images.kind]
    labels = np.zeros((len(images), len(classes)), np.float32)
    for row, kind in enumerate(images.kind):
        labels[row, numbers[kind]] = 1
    return labels


def _notes(
    train: ImageList,
    val: ImageList,
    classes: Sequence[str],
    several: bool,
) -> Iterator[str]:
    both = np.flatnonzero(np.isin(val.keys, train.keys))
    if len(both):
        number = counted(len(both), "image is", "images are")
        yield (
            f"warning: {number} in both lists, such as {val.paths[int(both[0])]}, so the "
            "evaluation can be too good"
        )
    if several:
        counts = np.zeros(3, int)
        for images in (train, val):
            of_kind = np.array([min(len(names), 2) for names in images.kinds], int)
            counts += np.bincount(of_kind[images.kind], minlength=3)
        none, single, more = counts
        yield f"classes     {none:,} images have none, {single:,} one, {more:,} several"
    elif joined := next((name for name in classes if ";" in name), ""):
        yield (
            f"warning: {joined!r} is one class here; "
            "for images of several classes, give --multi-label"
        )


def _read(
    option: str,
    name: str,
    data_dir: str,
    known: Sequence[str],
    several: bool,
    group_by: str,
) -> ImageList:
    """Read and check a list. If `name` is "", return an empty list."""
    file = Path(name)
    fix = "give a list of images"
    is_whole = is_image if several else None
    table = read_table(option, file, (PATH, CLASS), fix, group_by, is_whole) if name else ()
    paths = Names()
    kind = array("i")
    lines = array("I")
    groups: list[str] = []
    classes: set[str] = set()
    kinds: dict[tuple[str, ...], int] = {}
    numbers: dict[str, int] = {}  # by the text of a cell
    for line, path, text, group in table:
        if not path or not path.isprintable() or text not in numbers:
            if fault := _fault(path, text, several, known, data_dir):
                raise ValueError(f"{file} line {line}: {fault}")
            names = [part.strip() for part in text.split(";")] if several else [text]
            classes.update(filter(None, names))
            in_order = tuple(sorted({composed(name) for name in names if name}))
            numbers[text] = kinds.setdefault(in_order, len(kinds))
        paths.append(path)
        kind.append(numbers[text])
        lines.append(line)
        if group is not None:
            groups.append(sys.intern(group))
    if name and not paths:
        raise ValueError(
            f"{option}: {file} names no images; write a line PATH CLASS for each image"
        )
    paths, notes = _spell_as_on_disk(paths, file, data_dir)
    images = ImageList(
        file,
        paths,
        np.array(kind, np.int32),
        list(kinds),
        classes,
        np.array(lines, np.uint32),
        tuple(groups) or None,
        notes,
    )
    _check_contradictions(images, several)
    return images


def _fault(path: str, text: str, several: bool, known: Sequence[str], data_dir: str) -> str:
    """Return the fault of a row and its fix, or "" for a good row. `text` names the classes."""
    if not path:
        return "has no path; fill the cell"
    if not text and not several:
        return "has no class; fill the cell"
    if is_image(text) and not is_image(path):
        return f"{text!r} is a file name, not a class; write PATH CLASS"
    if not path.isprintable() and _exists(data_dir, path):
        return ""  # the name of a file may have any bytes
    return fault_of_cell(path) or ("" if text in known else fault_of_cell(text))


def _spell_as_on_disk(paths: Names, file: Path, data_dir: str) -> tuple[Names, tuple[str, ...]]:
    r"""Change "\" to "/" and letters with accents to the form of the files, if files then exist."""
    listing = paths.listing
    if listing.isascii() and b"\\" not in listing:
        return paths, ()
    exists = partial(_exists, data_dir)
    for form, slashes in product(_FORMS, (False, True)):
        spell = partial(_spell, form=form, slashes=slashes)
        changed = list(islice((path for path in paths if spell(path) != path), _LOOKED_AT))
        if any(map(exists, map(spell, changed))) and not any(map(exists, changed)):
            how = " and ".join(filter(None, ("/ for \\" if slashes else "", form)))
            return Names(map(spell, paths)), (f"{file}: paths are read with {how}",)
    return paths, ()


def _spell(path: str, form: str, slashes: bool) -> str:
    path = path.replace("\\", "/") if slashes else path
    return unicodedata.normalize(form, path) if form else path  # type: ignore[arg-type]


def _exists(data_dir: str, path: str) -> bool:
    return os.path.exists(os.path.join(data_dir, path))


def _check_contradictions(images: ImageList, several: bool) -> None:
    """Raise ValueError if two rows give one path different classes."""
    order = np.argsort(images.keys, kind="stable")
    keys = images.keys[order]
    repeats = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    later = order[repeats]
    first = order[np.searchsorted(keys, keys[repeats])]
    differ = images.kind[later] != images.kind[first]
    for row, first_row in sorted(zip(later[differ].tolist(), first[differ].tolist(), strict=True)):
        path = images.paths[row]
        if os.path.normpath(path) == os.path.normpath(images.paths[first_row]):
            now, before = (
                ";".join(images.kinds[images.kind[number]]) for number in (row, first_row)
            )
            fix = "write both on one line, with ;" if several else "keep one line"
            raise ValueError(
                f"{images.line_of(row)}: {path} has class {now!r}, but line "
                f"{images.lines[first_row]} has {before!r}; {fix}"
            )


def _check_exists(images: ImageList, data_dir: str) -> None:
    """Raise ValueError if none of the first files exists."""
    if any(_exists(data_dir, path) for path in images.paths[:_LOOKED_AT]):
        return
    path = os.path.join(data_dir, images.paths[0])
    if re.match(r"[A-Za-z]:[\\/]", images.paths[0]):
        fix = "it is a path of Windows; write paths of this machine, or relative to --data-dir"
    else:
        begin = "paths are relative to --data-dir, so give the folder that they begin at"
        fix = near_path(path, begin)
    raise ValueError(f"{images.line_of(0)}: {path} does not exist; {fix}")
