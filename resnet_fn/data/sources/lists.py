"""Image files named in lists: a line "path class" for each, or CSV with a header."""

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resnet_fn.config.hints import closest, few, near_path
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD, FileSplit, color_spec, is_image

PATHS, LABELS = ("path", "file", "filename", "image"), ("label", "class")  # a CSV's columns, whatever their case
_LOOKED_AT = 20  # files of a list whose absence together means another folder than the list was made for


class Row(NamedTuple):
    """One image of a list: where it stands in it, as "train.txt line 3", its path and its class."""

    place: str
    path: str
    label: str


def load_lists(data_dir: str, train_list: str, val_list: str, threads: int, known: Sequence[str] = ()) -> DataSet:
    """Image files as two lists name them, relative to `data_dir`.

    Args:
        data_dir: the folder that relative paths begin at.
        train_list, val_list: files; without the first the training half is empty.
        threads: that decode.
        known: the classes where they are known, as of a trained net; else they are those of `train_list`, sorted: as
            numbers where all are whole numbers, else as text.

    Raises:
        ValueError: names the list, the line and the fix.
    """
    train = _read("train_list", train_list, data_dir, looked_for=not known) if train_list else []
    val = _read("val_list", val_list, data_dir)
    classes = tuple(known) or _sorted_classes({row.label for row in train})
    if len(classes) < 2:
        raise ValueError(f"train_list: {train_list} has one class only, {classes[0]!r}; name images of two or more")
    halves = []
    for rows in (train, val):
        numbers = {name: number for number, name in enumerate(classes)}
        for row in rows:
            if row.label not in numbers:
                whose = "one that the net was trained on" if known else f"a class of {train_list}"
                raise ValueError(f"{row.place}: {row.label!r} is not {whose}; {closest(row.label, classes)}")
        labels = np.array([numbers[row.label] for row in rows], np.int32)
        halves.append(FileSplit(data_dir, tuple(row.path for row in rows), labels, threads=threads))
    spec = color_spec("imagefolder", classes, IMAGENET_MEAN, IMAGENET_STD)
    return DataSet(halves[0], halves[1], spec, tuple(_notes(train, val, classes)))


def _notes(train: Sequence[Row], val: Sequence[Row], classes: Sequence[str]) -> Iterable[str]:
    seen = {os.path.normpath(row.path) for row in train}
    both = [row.path for row in val if os.path.normpath(row.path) in seen]
    if both:
        yield f"warning: {len(both)} images are in both lists, {both[0]} among them: the evaluation flatters the net"
    there = {row.label for row in val}
    if missing := [name for name in classes if name not in there]:
        yield f"the validation list has no images of {few(missing)}"


def _read(option: str, name: str, data_dir: str, looked_for: bool = True) -> list[Row]:
    file = Path(name)
    try:
        text = file.read_bytes().decode("utf-8-sig", "surrogateescape")
    except FileNotFoundError:
        raise ValueError(f"{option}: {file} does not exist; {near_path(file, 'give a list of images')}") from None
    except OSError as error:
        raise ValueError(f"{option}: {file} cannot be read ({error.strerror}); give a list of images") from None
    lines = text.splitlines()
    rows = list(_of_csv(file, lines) if file.suffix.lower() == ".csv" else _of_text(file, lines))
    if not rows:
        raise ValueError(f"{option}: {file} names no images; write PATH CLASS, one image a line")
    first: dict[str, Row] = {}
    for row in rows:
        other = first.setdefault(os.path.normpath(row.path), row)
        if other.label != row.label:
            line = other.place.rpartition(" ")[2]
            raise ValueError(f"{row.place}: {row.path} is {row.label!r}, but {other.label!r} on line {line}; keep one")
    if looked_for and not any(os.path.exists(os.path.join(data_dir, row.path)) for row in rows[:_LOOKED_AT]):
        path = os.path.join(data_dir, rows[0].path)
        hint = near_path(path, "paths are relative to --data-dir: give the folder that they begin at")
        raise ValueError(f"{rows[0].place}: {path} does not exist, nor do others; {hint}")
    return rows


def _of_text(file: Path, lines: Sequence[str]) -> Iterable[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{file} line {number}"
        words = line.rsplit("\t", 1) if "\t" in line else line.rsplit(None, 1)
        path, label = (words[0].strip(), words[1].strip()) if len(words) == 2 else (line.strip(), "")
        if not label or not path:
            hint = "write PATH CLASS" if "," not in line else "a list with commas is CSV: give it a name with .csv"
            raise ValueError(f"{place}: {line.strip()!r} has no class; {hint}")
        if is_image(label) and not is_image(path):
            raise ValueError(f"{place}: {label!r} stands where the class should; write PATH CLASS")
        yield Row(place, path, label)


def _of_csv(file: Path, lines: Sequence[str]) -> Iterable[Row]:
    reader = csv.reader(lines)
    header = [name.strip().lower() for name in next(reader, [])]
    columns = [next((header.index(name) for name in names if name in header), -1) for names in (PATHS, LABELS)]
    if min(columns) < 0:
        missing, names = ("path", PATHS) if columns[0] < 0 else ("class", LABELS)
        there = few(header, 6) if header else "nothing"
        raise ValueError(f"{file} line 1: no column for the {missing} among {there}; call one {' or '.join(names)}")
    for cells in reader:
        place = f"{file} line {reader.line_num}"
        if not cells:
            continue
        if len(cells) != len(header):
            raise ValueError(f"{place}: has {len(cells)} cells where the header has {len(header)}; fix the line")
        path, label = (cells[column].strip() for column in columns)
        if not path or not label:
            raise ValueError(f"{place}: has no {'class' if path else 'path'}; fill the cell")
        yield Row(place, path, label)


def _sorted_classes(labels: Iterable[str]) -> tuple[str, ...]:
    names = sorted(labels)
    if all(name.isascii() and name.isdigit() for name in names):
        names.sort(key=int)
    return tuple(names)
