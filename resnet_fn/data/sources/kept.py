"""These functions compare the files of a data set with those of an earlier run."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from resnet_fn.config.wording import counted, first_few
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.image_file import raise_unless_files_fault
from resnet_fn.data.sources.contents import (
    Contents,
    all_as_text,
    as_text,
    fingerprint,
    has_split,
    read_split,
    relative_names,
)
from resnet_fn.data.sources.files import FileSplit, read_ahead, read_image


class EarlierRun(NamedTuple):
    """A run whose weights a net starts with."""

    folder: Path  # the run folder
    same_split: bool  # whether its recipe has the split_seed and the group_by of the new recipe


class Kept(NamedTuple):
    """The files of a run among the files of a data set."""

    # For each file, int8 [N]: 1 if the run validated on it, −1 if the run trained on it, 0 if it is
    # new since the run.
    sides: np.ndarray
    missing: Sequence[str]  # validation files of the run that the data set lacks
    moved: int  # number of validation files that have another path or class than in the run
    # Number of validation files with the same contents as in the run, or, if the run did not store
    # them, with the same path.
    recognised: int


def find_kept(files: FileSplit, contents: Contents, only_validation: bool) -> Kept:
    """Find a run's files among `files`, by path and size, or else by contents.

    Args:
        files: the files of a data set.
        contents: the files of the run.
        only_validation: whether only the run's validation files are of interest. If all of them are
            there, other files are not read, and new files have the side −1.
    """
    names = relative_names(files)
    sides = np.array([1 if name in contents.validation else -1 for name in names], np.int8)
    listed = {name for name in names if name in contents.validation}
    if not contents.are_known:
        missing = [name for name in contents.validation if name not in listed]
        return Kept(sides, missing, 0, len(listed))
    known = {**contents.training, **contents.validation}
    # A file whose contents both trained and validated belongs to training.
    side_of = dict.fromkeys(contents.validation.values(), 1)
    side_of |= dict.fromkeys(contents.training.values(), -1)
    side_of.pop("", None)
    sizes = {text.partition(" ")[0] for text in side_of}
    texts: dict[int, str] = {}  # of the compared files: see `look_at`

    def look_at(index: int) -> str:
        """Return `as_text` of a file, or "" for a size that no file of the run has.

        If path and size are the run's, the file is not read.
        """
        recorded = known.get(names[index], "")
        path = files.path(index)
        try:
            size = str(os.stat(path).st_size)
            if size not in sizes:
                return ""
            if size == recorded.partition(" ")[0]:
                return recorded
            data = read_image(path)
        except OSError as error:
            raise_unless_files_fault(error, path)
            return ""  # `check_files` reports the file
        return as_text(len(data), fingerprint(data))

    def compare(indices: np.ndarray) -> int:
        """Correct the sides of files, and return how many differ from the run's files."""
        changed = 0
        for index, text in read_ahead(look_at, indices.tolist()):
            texts[index] = text
            recorded = known.get(names[index], "")
            if not recorded or text != recorded:
                changed += bool(recorded)
                # A skipped file of an older run is in validation.json alone.
                by_path = sides[index] if names[index] in known else 0
                sides[index] = side_of.get(text, by_path)
        return changed

    changed = compare(np.flatnonzero(sides > 0))
    if changed or len(listed) < len(contents.validation) or not only_validation:
        compare(np.flatnonzero(sides <= 0))
    validating = np.flatnonzero(sides > 0).tolist()
    validated = {names[index] for index in validating}
    seen = {texts[index] for index in validating} - {""}
    lost = [name for name in contents.validation if name not in validated]
    missing = [name for name in lost if contents.validation[name] not in seen]
    recognised = len(seen.intersection(contents.validation.values()))
    return Kept(sides, missing, len(validated - contents.validation.keys()), recognised)


def describe_earlier(dataset: DataSet, run: Path, is_same: bool) -> list[str]:
    """Compare the files in `dataset.test` with those of an earlier run.

    Returns a warning if the weights of `run` were trained on some of them. If `is_same`, `run`
    validated on this folder or list. Then there are also lines about validation files that were
    added or removed since, unless the run split them off, because `split_off` has such lines.
    """
    files = dataset.test
    if not isinstance(files, FileSplit):
        return []
    contents = read_split(run)
    if contents is None:
        return []
    names = relative_names(files)
    notes = _describe_trained(dataset, run, contents, names)
    if is_same and not has_split(run):
        before = contents.validation.keys()
        missing = sorted(before - set(names))
        if missing:
            notes.append(
                f"warning: {len(missing)} of the {len(before)} validation images that {run} used "
                f"are missing: {first_few(missing)}"
            )
        if new := sorted(set(names) - before):
            number = counted(len(new), "validation image is", "validation images are")
            notes.append(f"{number} new since {run}: {first_few(new)}")
    return notes


def _describe_trained(
    dataset: DataSet, run: Path, contents: Contents, names: Sequence[str]
) -> list[str]:
    """Return a list with a warning if the weights of `run` were trained on files in `dataset.test`.

    Files that were not read are compared by path and size. If the run stored no fingerprints, but
    its validation files are in the data set, validation files that its validation.json lacks count,
    because all of them except new ones were in training.
    """
    how = "was trained on"
    seen: Sequence[str] = ()
    if contents.are_known:
        seen = _find_trained(cast(FileSplit, dataset.test), names, contents)
    elif has_split(run) and not contents.validation.keys().isdisjoint(_candidates(dataset)):
        how = "may have been trained on"
        seen = [name for name in names if name not in contents.validation]
    if not seen:
        return []
    what = "validation images" if dataset.validates else "images"
    return [
        f"warning: {run} {how} {len(seen)} of the {len(names)} {what}, such as "
        f"{first_few(seen, 2)}: the accuracy is higher than on new images"
    ]


def _find_trained(files: FileSplit, names: Sequence[str], contents: Contents) -> list[str]:
    if texts := all_as_text(files):
        trained = set(contents.training.values())
        return [name for name, text in zip(names, texts, strict=True) if text in trained]
    return [
        name
        for name, size in zip(names, files.sizes.tolist(), strict=True)
        if contents.training.get(name, "").partition(" ")[0] == str(size)
    ]


def _candidates(dataset: DataSet) -> set[str]:
    """Return the relative paths of the validation files, and of the files they were split off."""
    halves = [dataset.test] if dataset.validates else []
    if dataset.is_split:
        halves.append(dataset.train)
    return {name for files in halves for name in relative_names(cast(FileSplit, files))}
