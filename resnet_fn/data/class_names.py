"""These functions compare the names of classes.

Two programs may write one name with different characters: macOS writes "é" as "e" and an accent
(Unicode's form NFD), and most other programs as one character (NFC). Such names are equal.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence

from resnet_fn.config.wording import first_few


def composed(name: str) -> str:
    """Return a name in Unicode's form NFC, which equal names share."""
    return unicodedata.normalize("NFC", name)


def number_classes(classes: Sequence[str]) -> Callable[[str], int | None]:
    """Return a function that returns the number of a class by its name, or None for other names."""
    exact = {name: number for number, name in enumerate(classes)}
    in_nfc = {composed(name): number for name, number in exact.items()}
    return lambda name: exact.get(name, in_nfc.get(composed(name)))


def merge_equal(names: Iterable[str]) -> list[str]:
    """Return each name once: as it is written, or in NFC if it is written in several ways."""
    groups = _group(names, composed)
    return [group[0] if len(group) == 1 else composed(group[0]) for group in groups]


def warn_alike(names: Iterable[str]) -> list[str]:
    """Return a list with a warning about names that are alike, or an empty list."""

    def letters(name: str) -> str:
        return "".join(composed(name).casefold().split())

    alike = sorted(sorted(group) for group in _group(names, letters) if len(group) > 1)
    if not alike:
        return []
    examples = first_few([" and ".join(map(_show, group)) for group in alike], 3, "; ")
    return [
        f"warning: class names differ only in case, spaces or Unicode's normal form: {examples}; "
        "if they mean one class, write them alike"
    ]


def _show(name: str) -> str:
    return repr(name) if name == composed(name) else ascii(name)


def _group(names: Iterable[str], key: Callable[[str], str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(key(name), []).append(name)
    return list(groups.values())
