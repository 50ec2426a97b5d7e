"""This module makes the words of messages: hints such as the nearest valid name, and how lists,
counts and errors are phrased.
"""

import difflib
import errno
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_ADDRESS = re.compile("[a-z][a-z0-9]+:/", re.IGNORECASE)  # a Path has one slash
# What helps after a failed write; other errors have no usual cause.
_FIXES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room in your quota of the disk",
    errno.EROFS: "make the disk writable",
    errno.EACCES: "get the permission to write",
    errno.EPERM: "get the permission to write",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
}
_PACKAGES = ("torch", "mindspore", "tensorflow", "keras", "jax")  # those that `kind_of` names


def suggest_name(word: str, known: Iterable[str], main: Iterable[str] = ()) -> str:
    """Suggest names in `known` similar to `word`, or list the names in `main`, or in `known` if
    `main` is empty.
    """
    names = list(known)
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if near and len(names) > 4:
        return f"did you mean {' or '.join(near)}?"
    return f"use one of {first_few(list(main) or names, 30)}"


def closest_flag(word: str, flags: Iterable[str]) -> str:
    """Return a hint with the flags that are nearest to an unknown flag."""
    no = "--no-" if word.startswith("--no-") else "--"
    bare = dict.fromkeys(flag.removeprefix("--").removeprefix("no-") for flag in flags)
    near = difflib.get_close_matches(
        word.removeprefix(no).lstrip("-").replace("_", "-"), bare, n=3, cutoff=0.6
    )
    names = [no + name if no + name in flags else "--" + name for name in near]
    return (
        f"did you mean {' or '.join(names)}?"
        if near
        else "there is no such flag and none like it; see --help"
    )


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and what it counts, such as "1 image" or "2,000 images"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def one_side(value: object) -> str:
    """Return a hint about a size given as width and height, such as "224x224" or [224, 224], or
    "".
    """
    parts = list(value) if isinstance(value, list | tuple) else re.split("[x×*,]", str(value))
    sides = [str(part).strip() for part in parts]
    if len(sides) != 2 or not all(map(str.isdecimal, sides)):
        return ""
    square = f"give {sides[0]}" if sides[0] == sides[1] else "give one number"
    return f"images are square, so {square}"


def near_path(path: str | Path, otherwise: str) -> str:
    """Return a hint with existing paths that are nearest to a missing path, or `otherwise` if there
    are none.
    """
    if _ADDRESS.match(str(path)):
        return "it is an address, and nothing is downloaded; download it, and give its path"
    there = wrong = Path(path)
    while not there.exists() and there != there.parent:
        there, wrong = there.parent, there
    names = sorted(entry.name for entry in there.iterdir()) if there.is_dir() else []
    near = [there / name for name in difflib.get_close_matches(wrong.name, names, n=3, cutoff=0.6)]
    rest = Path(path).relative_to(wrong)
    whole = [folder / rest for folder in near if (folder / rest).exists()]
    return f"did you mean {' or '.join(map(str, whole or near))}?" if near else otherwise


def near_run(path: Path, otherwise: str) -> str:
    """Suggest runs or existing paths near `path`, which lacks what the caller needs, or return
    `otherwise`.
    """
    folder = path if path.is_dir() else path.parent
    runs = sorted(str(log.parent) for log in folder.glob("*/metrics.jsonl"))
    hint = f"give one of the runs in {folder}: {first_few(runs)}" if runs else otherwise
    return hint if path.is_dir() else near_path(path, hint)


def fix_for_write(error: OSError) -> str:
    """Return what a user can do after the error of a failed write, such as "make room on the
    disk".
    """
    return _FIXES.get(error.errno or 0, "remove the cause")


def kind_of(value: object) -> str:
    """Return what a value is and which package it is from, for example "a DataLoader of torch"."""
    if value is None:
        return "None"
    # A class of the caller that inherits from a package's class counts as the package's.
    classes = [value] if callable(value) and hasattr(value, "__name__") else type(value).__mro__
    packages = [str(kind.__module__).partition(".")[0] for kind in classes]
    package = next((name for name in packages if name in _PACKAGES), "")
    name = getattr(value, "__name__", type(value).__name__)
    article = "the function" if classes == [value] else "an" if name[0] in "AEIOUaeiou" else "a"
    return f"{article} {name}" + f" of {package}" * bool(package)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is more than dashes, without a bullet "- "."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return lines[0].removeprefix("- ") if lines else type(error).__name__


def words_of(error: BaseException) -> str:
    """Return an error's class and the first line of its text, as in "ValueError: no"."""
    return f"{type(error).__name__}: {first_line(error)}"


def first_few(items: Sequence[object], limit: int = 3, separator: str = ", ") -> str:
    """Join the first `limit` items and count the rest, for example "a, b, c and 4 more"."""
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return separator.join(map(str, items[:limit])) + more
