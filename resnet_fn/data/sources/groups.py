"""This module groups files that belong together, such as the frames of a video, for the split."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.data.sources.files import FileSplit

# Names of files that were made from one source: Roboflow's copies, copies by an operating system,
# numbered frames. A pattern's first group is the source. Each pattern matches all file names.
_ROBOFLOW = r"^(.+?)(?:\.rf\.[^/]*)?\.\w+$"
_COPIES = r"^(.+?)(?: \(\d+\)| - Copy[^/]*| copy[^/]*)?\.\w+$"
_FRAMES = r"^(.+?)(?:[ _.-]\d+)?\.\w+$"
_LOOKED_AT = 20_000  # so many names are compared with the patterns,
_BESIDE = 1_000  # in blocks of so many, because names of one source stand beside each other

_WAYS = "give a folder level such as 2, a pattern that fits all names, or a column of the list"


def group_files(files: FileSplit, names: Sequence[str], group_by: str) -> Sequence[str]:
    """Return the group of each file. Without `group_by`, each file is a group of its own.

    Args:
        files: the files. Their own `groups`, from a column of a list, take precedence.
        names: the files' paths relative to the data folder.
        group_by: the number of a folder level in `names`, from 1, or a regular expression. A file's
            group is the text that the expression's first group, or else the whole expression,
            matches.
    """
    if not group_by:
        return names
    groups: Sequence[str]
    if files.groups is not None:
        groups = files.groups
        lack = f"cell {group_by!r}"
    elif group_by.isdecimal():
        groups = [_level(name, int(group_by)) for name in names]
        lack = f"folder level {group_by}"
    else:
        groups = list(map(_pattern(group_by), names))
        lack = "match"
    without = [name for name, group in zip(names, groups, strict=True) if not group]
    if without:
        raise ValueError(
            f"group_by: {group_by!r} does not fit all files, {len(without)} of {len(names)} names "
            f"have no {lack}: {first_few(without)}; {_WAYS}"
        )
    return groups


def _level(name: str, number: int) -> str:
    folders = name.split("/")[:-1]
    return folders[number - 1] if 1 <= number <= len(folders) else ""


def _pattern(text: str) -> Callable[[str], str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"group_by: {text!r} is not a pattern ({error}); {_WAYS}") from None
    part = min(1, pattern.groups)

    def group_of(name: str) -> str:
        match = pattern.search(name)
        return (match and match[part]) or ""

    return group_of


def describe_groups(groups: Sequence[str], held: np.ndarray, group_by: str) -> str:
    """Return a line with the numbers of groups in training and validation."""
    validation = {group for group, is_held in zip(groups, held, strict=True) if is_held}
    training = len(set(groups)) - len(validation)
    example = min(validation, default="")
    return (
        f"groups      {training:,} groups in training, {len(validation):,} in validation, by "
        f"{group_by!r}; in validation, for example, {example!r}"
    )


def suggest_groups(names: Sequence[str], labels: np.ndarray) -> list[str]:
    """Return a list with a suggestion if names look like frames or copies of one source."""
    # For each pattern: how many sources, and which share of a class's images, must look like that.
    kinds = (
        (_ROBOFLOW, 1, 0.0),
        (_COPIES, 1, 0.0),
        (_FRAMES, 2, 0.5),
    )
    if len(names) > _LOOKED_AT:
        chosen = _choose(len(names))
        names = [names[index] for index in chosen.tolist()]
        labels = labels[chosen]
    for pattern, sources, share in kinds:
        source_of = _pattern(pattern)
        for members in _by_class(names, labels):
            counts = Counter(map(source_of, members))
            # If all images of a class have one source, they are only numbered (bee_0001.jpg).
            several = {source for source, count in counts.items() if 1 < count < len(members)}
            images = sum(counts[source] for source in several)
            if len(several) >= sources and images >= share * len(members):
                source = next(name for name in map(source_of, members) if name in several)
                both = [name for name in members if source_of(name) == source][:2]
                return [
                    f"names such as {' and '.join(both)} look like images of one source; "
                    f"to keep such a group on one side of the split, give --group-by '{pattern}'"
                ]
    return []


def _choose(count: int) -> np.ndarray:
    """Return `_LOOKED_AT` of the numbers below `count`, in blocks at equal distances."""
    starts = np.linspace(0, count - _BESIDE, _LOOKED_AT // _BESIDE).astype(np.int64)
    return (starts[:, None] + np.arange(_BESIDE)).ravel()


def _by_class(names: Sequence[str], labels: np.ndarray) -> list[list[str]]:
    if labels.ndim == 2:
        return [list(names)]
    members: dict[int, list[str]] = defaultdict(list)
    for name, label in zip(names, labels.tolist(), strict=True):
        members[label].append(name)
    return list(members.values())
