"""This module splits off validation files: the same ones for the same seed and paths."""

import dataclasses
import hashlib
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from resnet_fn.config.wording import counted, first_few
from resnet_fn.data.sources.contents import (
    VALIDATION,
    Contents,
    has_split,
    read_split,
    relative_names,
)
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.groups import (
    describe_groups,
    group_files,
    suggest_groups,
)
from resnet_fn.data.sources.kept import find_kept


@dataclasses.dataclass(frozen=True)
class SplitRule:
    """Decides which files are split off for validation."""

    seed: int = 0  # the recipe's split_seed
    group_by: str = ""  # see `groups.group_files`
    run: Path | None = None  # run whose validation files stay validation files
    # Whether exactly the run's validation files validate, as for a resume or an evaluation. If not,
    # files that are new since the run may validate, too.
    exact: bool = True
    # Whether the files are surely those of the run. If not, at least half of the run's validation
    # files must be there.
    same_folder: bool = True
    classes: Sequence[str] = ()  # the classes of the run, if it is resumed or evaluated

    @property
    def is_fixed(self) -> bool:
        """Return whether the run's validation.json alone decides."""
        return self.exact and self.run is not None and has_split(self.run)


def split_off(
    files: FileSplit,
    share: float,
    rule: SplitRule,
) -> tuple[FileSplit, FileSplit, list[str]]:
    """Split off about `share` of each class.

    Returns the training files, the validation files, and lines about the split. Raises ValueError
    if no file can validate, if `rule.group_by` does not fit the files, or if the rule is fixed and
    the run's validation files are not among the files.
    """
    names = relative_names(files)
    contents = read_split(rule.run) if rule.run and has_split(rule.run) else None
    group_by = "" if contents and rule.exact else rule.group_by  # validation.json decides
    groups = group_files(files, names, group_by)
    if contents:
        held, notes = _keep(files, groups, share, rule, contents)
    else:
        held = hold_out(groups, files.labels, share, rule.seed)
        notes = [] if rule.group_by else suggest_groups(names, files.labels)
    if group_by:
        notes.append(describe_groups(groups, held, group_by))
    if not held.any():
        if group_by:
            raise ValueError(
                f"group_by: {group_by!r} puts all images of each class into one group; "
                "give another folder level, pattern or column"
            )
        raise ValueError(
            f"validation_share: no class in {files.root} has two images, so that one could "
            "validate; add images, or give a folder val/"
        )
    return files.keep(~held), files.keep(held), notes


def _keep(
    files: FileSplit,
    groups: Sequence[str],
    share: float,
    rule: SplitRule,
    contents: Contents,
) -> tuple[np.ndarray, list[str]]:
    """Return a mask of the validation files, bool [N], and lines about them, for `rule.run`."""
    assert rule.run
    path = rule.run / VALIDATION
    count = len(contents.validation)
    kept = find_kept(files, contents, rule.exact)
    by_contents = rule.exact and not rule.same_folder
    present = kept.recognised if by_contents else count - len(kept.missing)
    if not present or (not rule.same_folder and 2 * present < count):
        absent = (
            f"{count - present} of the {count} images that {path} lists are not in {files.root}"
        )
        if rule.exact:
            raise ValueError(f"validation_share: {absent}; put them back, or start another run")
        held = hold_out(groups, files.labels, share, rule.seed)
        return held, [f"{absent}, so other images validate"]
    held = kept.sides > 0
    if not rule.exact:
        sides = kept.sides if contents.are_known else _new_classes(files.labels, kept.sides)
        held = hold_out(groups, files.labels, share, rule.seed, sides)
    notes = []
    if kept.missing:
        notes.append(
            f"warning: {len(kept.missing)} of the {count} validation images that {path} lists are "
            f"missing: {first_few(kept.missing)}"
        )
    if kept.moved:
        images = counted(kept.moved, "validation image has", "validation images have")
        notes.append(f"{images} another path or class now than in {path}")
    if not rule.exact:
        new = int((held & (kept.sides == 0)).sum())
        again = f"the {int(held.sum()) - new} validation images of {path} validate again"
        notes.append(f"{again}, and {new} new images join them" if new else again)
    return held, notes


def _new_classes(labels: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Return the sides if a run stored no contents: files of classes that are new are new.

    A class counts as new if none of its files validated.
    """
    if labels.ndim == 2:
        return sides
    has_validation = np.isin(labels, labels[sides > 0])
    return np.where(has_validation, sides, 0).astype(np.int8)


def hold_out(
    groups: Sequence[str],
    labels: np.ndarray,
    share: float,
    seed: int,
    sides: np.ndarray | None = None,
) -> np.ndarray:
    """Return a mask, bool [N], of validation files: about `share` of each class, never all of it.

    In each class of n groups, the max(1, round(share · n)) groups with the smallest hash of
    (seed, group) are held out. A group that is added or removed changes the side of at most two
    groups, unless groups have files of several classes. Then groups are held out in the order of
    their hashes until each class has its share.

    Args:
        groups: the group of each file. A group is never divided.
        labels: classes, int [N], or zeros and ones, float [N, classes].
        share: fraction of each class to hold out.
        seed: the recipe's split_seed.
        sides: int8 [N]: 1 for files that stay held out, −1 for files that must not be held out.
            None: no such files.
    """
    ranks = _ranks(groups, seed)
    # A group that an earlier run trained on stays in training, even if some of its files validated.
    train, validate = np.zeros((2, int(ranks.max(initial=-1)) + 1), bool)
    if sides is not None:
        train[ranks[sides < 0]] = True
        validate[ranks[sides > 0]] = True
        validate &= ~train
    group_ranks, group_classes = _classes_of_groups(ranks, labels)
    totals = np.bincount(group_classes).tolist()
    held_classes = group_classes[validate[group_ranks]]
    held = np.bincount(held_classes, minlength=len(totals)).tolist()
    wanted = [max(1, round(share * total)) for total in totals]
    pairs = zip(group_ranks.tolist(), group_classes.tolist(), strict=True)
    for rank, members in groupby(pairs, itemgetter(0)):
        classes = [label for _, label in members]
        if train[rank] or validate[rank]:
            continue
        needed = any(held[label] < wanted[label] for label in classes)
        if needed and all(held[label] + 1 < totals[label] for label in classes):
            validate[rank] = True
            for label in classes:
                held[label] += 1
    return validate[ranks]


def _ranks(groups: Sequence[str], seed: int) -> np.ndarray:
    """Return the place of each file's group in the order of the groups' hashes, int64 [N]."""
    texts = (f"{seed}\0{group}".encode("utf-8", "surrogateescape") for group in groups)
    hashes = (hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    numbers = np.fromiter((int.from_bytes(value, "big") for value in hashes), np.uint64)
    return np.unique(numbers, return_inverse=True)[1]


def _classes_of_groups(ranks: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank and the class of each pair of a group and a class that it has.

    Both are int64 [M], sorted by rank.
    """
    if labels.ndim == 2:
        without = ~labels.any(1, keepdims=True)  # files without a class are one more class
        rows, labels = np.nonzero(np.concatenate((labels, without), 1))
        ranks = ranks[rows]
    width = int(labels.max(initial=0)) + 1
    return np.divmod(np.unique(ranks * width + labels), width)
