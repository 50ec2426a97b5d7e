"""This module groups image files that belong together, such as the frames of one video, for the validation split."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.data.sources.files import FileSplit

# Names of files that were made from one source: Roboflow's copies, an operating system's copies, numbered frames.
# The first group of each pattern is the source. Each pattern matches all file names.
_ROBOFLOW = r"([^/]+?)(?:\.rf\.[^/]*)?\.\w+$"
_COPIES = r"([^/]+?)(?: \(\d+\)| - Copy[^/]*| copy[^/]*)?\.\w+$"
_FRAMES = r"([^/]+?)(?:[ _.-]\d+)?\.\w+$"
_LOOKED_AT = 20_000  # so many names are compared with the patterns


def group_files(files: FileSplit, names: Sequence[str], group_by: str) -> Sequence[str]:
    """Return the group of each file. Without `group_by`, each file is a group of its own.

    Args:
        files: the files. Their own `groups`, from a column of a list, take precedence.
        names: the files' paths relative to the data folder.
        group_by: the number of a folder level in `names`, from 1, or a regular expression. The group is the text that
            the expression's first group, or else the whole expression, matches in a name.
    """
    if not group_by:
        return names
    if files.groups is not None:
        return files.groups
    group_of = _level(int(group_by)) if group_by.isdecimal() else _pattern(group_by)
    groups = [group_of(name) for name in names]
    if without := [name for name, group in zip(names, groups, strict=True) if not group]:
        lack = f"folder level {group_by}" if group_by.isdecimal() else "match"
        fix = "give a folder level such as 2, a pattern that fits all names, or a column of the list"
        fault = f"{len(without)} of {len(names)} names have no {lack}: {few(without)}"
        raise ValueError(f"group_by: {group_by!r} does not fit all files, {fault}; {fix}")
    return groups


def _level(number: int) -> Callable[[str], str]:
    def group_of(name: str) -> str:
        folders = name.split("/")[:-1]
        return folders[number - 1] if 1 <= number <= len(folders) else ""

    return group_of


def _pattern(text: str) -> Callable[[str], str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        fix = "give a folder level such as 2, a pattern such as '(patient[0-9]+)', or a column of the list"
        raise ValueError(f"group_by: {text!r} is not a pattern ({error}); {fix}") from None

    def group_of(name: str) -> str:
        match = pattern.search(name)
        return (match[min(1, pattern.groups)] or "") if match else ""

    return group_of


def describe_groups(groups: Sequence[str], held: np.ndarray, group_by: str) -> str:
    """Return a line with the numbers of groups in training and validation."""
    validation = {group for group, is_held in zip(groups, held, strict=True) if is_held}
    training = len(set(groups)) - len(validation)
    example = min(validation, default="")
    numbers = f"{training:,} groups in training, {len(validation):,} in validation"
    return f"groups      {numbers}, by {group_by!r}; in validation, for example, {example!r}"


def suggest_groups(names: Sequence[str], labels: np.ndarray) -> list[str]:
    """Return a list with a line that suggests a pattern, if names look like frames or copies of one source."""
    for pattern, sources, share in ((_ROBOFLOW, 1, 0.0), (_COPIES, 1, 0.0), (_FRAMES, 2, 0.5)):
        group_of = _pattern(pattern)
        for members in _by_class(names[:_LOOKED_AT], labels[:_LOOKED_AT]).values():
            counts = Counter(map(group_of, members))
            # A source with all images of a class is only the beginning of numbered names, such as "bee_0001.jpg".
            several = {source for source, count in counts.items() if 1 < count < len(members)}
            if len(several) < sources or sum(counts[one] for one in several) < share * len(members):
                continue
            example = [name for name in members if group_of(name) in several]
            both = [name for name in example if group_of(name) == group_of(example[0])][:2]
            fix = f"to keep such a group on one side of the split, give --group-by '{pattern}'"
            return [f"names such as {' and '.join(both)} look like images of one source; {fix}"]
    return []


def _by_class(names: Sequence[str], labels: np.ndarray) -> dict[object, list[str]]:
    if labels.ndim == 2:
        return {None: list(names)}
    members = defaultdict(list)
    for name, label in zip(names, labels.tolist(), strict=True):
        members[label].append(name)
    return dict(members)
