"""A run folder stores which files trained and which validated, so that later runs and evaluations use the same ones.

validation.json is a list of the validation files that were split off the training files. contents.json has a
fingerprint for each training and validation file, if all files were read before training. With fingerprints, a file
is recognised after it was moved or relabelled.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.data.class_names import composed
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.files import FileSplit, read_ahead, read_regular
from resnet_fn.data.sources.names import Names
from resnet_fn.runtime.disk import replace_text

VALIDATION, CONTENTS = "validation.json", "contents.json"
_FORMAT = 1  # of contents.json
_SAMPLED = 1024  # about as many bytes of a file are hashed

Fingerprint = tuple[int, int]
UNKNOWN: Fingerprint = (0, 0)


def fingerprint(data: bytes) -> Fingerprint:
    """Return two numbers below 2^48 that only files with the same contents share.

    One is a checksum of all bytes, which shows the smallest change. The other is a hash of the size
    and of about a thousand bytes, which differs for other files with this checksum. A hash of all
    bytes would slow the check of image files by 10 to 20 %.
    """
    sample = data[:: len(data) // _SAMPLED + 1] + len(data).to_bytes(8, "little")
    value = hashlib.blake2b(sample, digest_size=6).digest()
    return zlib.crc32(data), int.from_bytes(value, "little")


class Contents(NamedTuple):
    """Files by path relative to the data folder, each with its size and fingerprint, or with "" if unknown."""

    training: Mapping[str, str]
    validation: Mapping[str, str]

    @property
    def are_known(self) -> bool:
        """Return whether the training files have fingerprints."""
        return bool(self.training)


class EarlierRun(NamedTuple):
    """A run whose weights a net starts with."""

    folder: Path  # the run folder
    same_split: bool  # whether its recipe has the split_seed and the group_by of the new recipe


class Kept(NamedTuple):
    """The files of a run among the files of a data set."""

    sides: np.ndarray  # int8 [N]: 1 if the run validated on a file, −1 if it trained on it, 0 if the file is new
    missing: Sequence[str]  # validation files of the run that are not in the data set
    moved: int  # number of validation files that have another path or class than in the run
    recognised: int  # number of validation files with the contents that the run has, or with the path if unknown


def relative_names(files: FileSplit) -> Names:
    """Return the files' paths relative to `files.root`."""
    root = files.root
    paths = (os.path.relpath(name, root) if os.path.isabs(name) else name for name in files.names)
    return Names(map(_plain, paths))


def _plain(name: str) -> str:
    """Return one spelling of a path: without "./", and with accents as most systems write them."""
    return composed(os.path.normpath(name) if "./" in name or "//" in name else name)


def write_split(run: Path, dataset: DataSet, is_new: bool) -> None:
    """Write validation.json and contents.json to the folder `run`. A resumed run keeps its own and adds new files."""
    if is_new:
        for name in (VALIDATION, CONTENTS):
            (run / name).unlink(missing_ok=True)  # a run that was stopped before its first checkpoint left them
    if dataset.held_out and is_new:
        replace_text(run / VALIDATION, json.dumps(sorted(dataset.held_out), indent=0) + "\n")
    training, validation = _describe(dataset.train), _describe(dataset.test)
    if not training:
        return
    before = read_split(run)
    if before and before.are_known:
        training, validation = {**before.training, **training}, {**before.validation, **validation}
        if before == (training, validation):
            return
    contents = {"format": _FORMAT, "training": training, "validation": validation}
    replace_text(run / CONTENTS, json.dumps(contents, indent=0) + "\n")


def read_split(run: Path) -> Contents | None:
    """Read a run's validation.json and contents.json. Returns None if the run has neither."""
    contents = _read_json(run / CONTENTS) or {"format": _FORMAT, "training": {}, "validation": {}}
    if contents["format"] != _FORMAT:
        fault = f"has format {contents['format']}, but this version reads {_FORMAT}"
        raise ValueError(f"{run / CONTENTS}: {fault}; use a newer resnet_fn, or remove the file")
    validation = contents["validation"]
    if (listed := _read_json(run / VALIDATION)) is not None:
        validation = {name: validation.get(name, "") for name in map(_plain, listed)}
    return Contents(contents["training"], validation) if validation else None


def has_contents(run: Path) -> bool:
    """Return whether the run stored fingerprints of its files."""
    return (run / CONTENTS).exists()


def has_split(run: Path) -> bool:
    """Return whether the run's validation files were split off its training files."""
    return (run / VALIDATION).exists()


def find_kept(files: FileSplit, contents: Contents, only_validation: bool) -> Kept:
    """Find a run's files among `files`, by path and size, or else by fingerprint.

    Args:
        files: the files of a data set.
        contents: the files of the run.
        only_validation: whether `sides` may be −1 for new files, which saves reading other files.
    """
    names = relative_names(files)
    sides = np.array([1 if name in contents.validation else -1 for name in names], np.int8)
    there = {name for name, side in zip(names, sides, strict=True) if side > 0}
    missing = [name for name in contents.validation if name not in there]
    if not contents.are_known:
        return Kept(sides, missing, 0, len(there))
    known = {**contents.training, **contents.validation}
    side_of = dict.fromkeys(filter(None, contents.validation.values()), 1)
    side_of |= dict.fromkeys(filter(None, contents.training.values()), -1)

    def recognise(index: int) -> str:
        """Return a file's size and fingerprint. If name and size are known, the file is not read."""
        recorded, path = known.get(names[index], ""), files.path(index)
        try:
            if recorded and os.stat(path).st_size == int(recorded.partition(" ")[0]):
                return recorded
            data = read_regular(path)
        except OSError:
            return ""  # `check_files` reports the file
        return _as_text(len(data), fingerprint(data))

    def look(indices: np.ndarray) -> int:
        """Correct the sides of files, and return how many differ from what the run has under their names."""
        others = 0
        for index, text in read_ahead(recognise, indices.tolist()):
            texts[index] = text
            recorded = known.get(names[index], "")
            if text == recorded and recorded:
                continue
            others += 1
            sides[index] = side_of.get(text, sides[index] if recorded else 0)
        return others

    texts: dict[int, str] = {}
    others = look(np.flatnonzero(sides > 0))
    if others or missing or not only_validation:
        look(np.flatnonzero(sides <= 0))
    validating = np.flatnonzero(sides > 0).tolist()
    here, seen = {names[index] for index in validating}, {texts[index] for index in validating}
    missing = [name for name, text in contents.validation.items() if name not in here and text not in seen - {""}]
    recognised = len(seen & side_of.keys())
    return Kept(sides, missing, len(here - contents.validation.keys()), recognised)


def describe_changes(files: FileSplit, run: Path) -> list[str]:
    """Return lines about validation files that were added or removed since a run, unless the run split them off."""
    contents = read_split(run)
    if contents is None or has_split(run):
        return []
    names, before, notes = relative_names(files), contents.validation, []
    if missing := sorted(before.keys() - names):
        numbers = f"{len(missing)} of the {len(before)} validation images that {run} used"
        notes.append(f"warning: {numbers} are missing: {few(missing)}")
    if new := sorted(set(names) - before.keys()):
        notes.append(f"{len(new)} validation images are new since {run}: {few(new)}")
    return notes


def describe_trained(files: FileSplit, run: Path, validates: bool) -> list[str]:
    """Return a list with a warning if the weights of `run` were trained on some of `files`.

    `validates` is whether `files` are the validation files of a data set. Then, if the run stored
    no fingerprints, files that its validation.json lacks count, because all of them except new ones
    were in training.
    """
    contents = read_split(run)
    if contents is None:
        return []
    names, how, seen = relative_names(files), "was trained on", []
    if contents.are_known:
        trained = set(contents.training.values())
        seen = [name for name, text in zip(names, _texts(files), strict=False) if text in trained]
    elif validates and has_split(run) and not contents.validation.keys().isdisjoint(names):
        how = "may have been trained on"
        seen = [name for name in names if name not in contents.validation]
    if not seen:
        return []
    what = "validation images" if validates else "images"
    numbers = f"{len(seen)} of the {len(files)} {what}, such as {few(seen, 2)}"
    return [f"warning: {run} {how} {numbers}: the accuracy is higher than on new images"]


def _describe(files: object) -> dict[str, str]:
    """Return the size and fingerprint of each file, or {} if they are unknown or `files` are no files."""
    if not isinstance(files, FileSplit):
        return {}
    return dict(zip(relative_names(files), _texts(files), strict=False))


def _texts(files: FileSplit) -> list[str]:
    pairs = zip(files.sizes.tolist(), map(tuple, files.fingerprints.tolist()), strict=False)
    return [_as_text(size, value) for size, value in pairs]


def _as_text(size: int, value: Collection[int]) -> str:
    return f"{size} {''.join(f'{part:012x}' for part in value)}"


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{path}: is damaged ({error}); restore the file from a copy") from None
