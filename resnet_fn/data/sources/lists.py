"""This module reads lists of image files. A list is a CSV file, or a text file of lines "PATH CLASS"."""

import csv
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resnet_fn.config.hints import closest, few, near_path
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.files import FileSplit, color_spec, is_image

PATHS = ("path", "file", "filename", "image")  # names of a CSV's column of paths, in any case
LABELS = ("label", "class", "labels", "classes")
_LOOKED_AT = 20  # if none of this many first files exists, the list was made for another folder


class Row(NamedTuple):
    """Holds one image of a list."""

    place: str  # the image's line in the list, for example "train.txt line 3"
    path: str
    labels: tuple[str, ...]
    group: str | None = None


def load_lists(
    data_dir: str,
    train_list: str,
    val_list: str,
    threads: int,
    known: Sequence[str] = (),
    several: bool = False,
    group_by: str = "",
) -> DataSet:
    """Make a data set from two lists of image files. Paths in the lists are absolute or relative to `data_dir`.

    `known` are the classes of a trained net, or () for the sorted classes of `train_list`. If `known` is given,
    `train_list` may be "". If `several` is true, an image may have any number of classes, such as "cat;dog". If
    `val_list` is "", the validation split is empty, and the caller splits the training files. If a list has a column
    `group_by`, its files have `FileSplit.groups`.
    """
    read = partial(_read, data_dir=data_dir, several=several, group_by=group_by)
    train = read("train_list", train_list, looked_for=not known) if train_list else []
    val = read("val_list", val_list) if val_list else []
    classes = tuple(known) or _sorted_classes({label for row in train for label in row.labels})
    if len(classes) < 2 - several:
        got = f"one class only, {classes[0]!r}" if classes else "no class"
        raise ValueError(f"train_list: {train_list} has {got}; add images of more classes")
    halves, numbers = [], {name: number for number, name in enumerate(classes)}
    for rows in (train, val):
        for row in rows:
            if unknown := [label for label in row.labels if label not in numbers]:
                source = "the trained net" if known else train_list
                fix = closest(unknown[0], classes)
                raise ValueError(f"{row.place}: {unknown[0]!r} is not a class of {source}; {fix}")
        indices = [[numbers[label] for label in row.labels] for row in rows]
        labels = np.zeros((len(rows), len(classes)), np.float32) if several else np.array(indices, np.int32).reshape(-1)
        for place, ones in enumerate(indices if several else ()):
            labels[place, ones] = 1
        names = tuple(row.path for row in rows)
        groups = tuple(row.group for row in rows if row.group is not None) or None
        halves.append(FileSplit(data_dir, names, labels, threads=threads, groups=groups))
    spec = color_spec("imagefolder", classes)
    return DataSet(halves[0], halves[1], spec, tuple(_notes(train, val, classes, several)))


def _notes(train: Sequence[Row], val: Sequence[Row], classes: Sequence[str], several: bool) -> Iterable[str]:
    seen = {os.path.normpath(row.path) for row in train}
    if both := [row.path for row in val if os.path.normpath(row.path) in seen]:
        yield f"warning: {len(both)} images are in both lists, such as {both[0]}, so the evaluation can be too good"
    if not several and (joined := next((name for name in classes if ";" in name), "")):
        yield f"warning: {joined!r} is one class here; for images of several classes, give --multi-label"
    if several:
        counts = np.bincount([min(len(row.labels), 2) for row in (*train, *val)], minlength=3)
        yield f"classes     {counts[0]:,} images have none, {counts[1]:,} one, {counts[2]:,} several"


def _read(
    option: str, name: str, data_dir: str, several: bool, group_by: str = "", looked_for: bool = True
) -> list[Row]:
    file = Path(name)
    try:
        lines = file.read_bytes().decode("utf-8-sig", "surrogateescape").splitlines()
    except FileNotFoundError:
        raise ValueError(f"{option}: {file} does not exist; {near_path(file, 'give a list of images')}") from None
    except OSError as error:
        raise ValueError(f"{option}: {file} cannot be read ({error.strerror}); give a list of images") from None
    is_csv = file.suffix.lower() == ".csv"
    rows = list(_of_csv(file, lines, several, group_by) if is_csv else _of_text(file, lines, several))
    if not rows:
        raise ValueError(f"{option}: {file} names no images; write a line PATH CLASS for each image")
    first: dict[str, Row] = {}
    for row in rows:
        other = first.setdefault(os.path.normpath(row.path), row)
        if {*other.labels} != {*row.labels}:
            now, before = (";".join(one.labels) for one in (row, other))
            line, fix = other.place.rpartition(" ")[2], "write both on one line, with ;" if several else "keep one line"
            raise ValueError(f"{row.place}: {row.path} has class {now!r}, but line {line} has {before!r}; {fix}")
    if looked_for and not any(os.path.exists(os.path.join(data_dir, row.path)) for row in rows[:_LOOKED_AT]):
        path = os.path.join(data_dir, rows[0].path)
        fix = near_path(path, "paths are relative to --data-dir, so give the folder that they begin at")
        raise ValueError(f"{rows[0].place}: {path} does not exist; {fix}")
    return rows


def _of_text(file: Path, lines: Sequence[str], several: bool) -> Iterable[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{file} line {number}"
        words = line.rsplit("\t", 1) if "\t" in line else line.rsplit(None, 1)
        if several and "\t" not in line and is_image(line.strip()):
            words = [line]
        path, label = (words[0].strip(), words[1].strip()) if len(words) == 2 else (line.strip(), "")
        if not path or not (label or (several and is_image(path))):
            fix = "write PATH CLASS" if "," not in line else "a list with commas needs a name that ends in .csv"
            raise ValueError(f"{place}: {line.strip()!r} has no class; {fix}")
        if is_image(label) and not is_image(path):
            raise ValueError(f"{place}: {label!r} is a file name, not a class; write PATH CLASS")
        yield Row(place, path, _split(label, several))


def _of_csv(file: Path, lines: Sequence[str], several: bool, group_by: str) -> Iterable[Row]:
    reader = csv.reader(lines)
    header = [name.strip().lower() for name in next(reader, [])]
    columns = [next((header.index(name) for name in names if name in header), -1) for names in (PATHS, LABELS)]
    if min(columns) < 0:
        missing, names = ("path", PATHS) if columns[0] < 0 else ("class", LABELS)
        got, fix = few(header, 6) if header else "nothing", f"name the {missing} column {' or '.join(names)}"
        raise ValueError(f"{file} line 1: the header has {got}, but no {missing} column; {fix}")
    grouped = header.index(group_by.strip().lower()) if group_by.strip().lower() in header else None
    for cells in filter(None, reader):  # an empty line has no cells
        place = f"{file} line {reader.line_num}"
        if len(cells) != len(header):
            raise ValueError(f"{place}: has {len(cells)} cells, but the header has {len(header)}; fix the line")
        path, label = (cells[column].strip() for column in columns)
        if not path or not (label or several):
            raise ValueError(f"{place}: has no {'class' if path else 'path'}; fill the cell")
        yield Row(place, path, _split(label, several), None if grouped is None else cells[grouped].strip())


def _split(label: str, several: bool) -> tuple[str, ...]:
    return tuple(name for part in label.split(";") if (name := part.strip())) if several else (label,)


def _sorted_classes(labels: Iterable[str]) -> tuple[str, ...]:
    names = sorted(labels)
    if all(name.isascii() and name.isdigit() for name in names):
        names.sort(key=int)
    return tuple(names)
