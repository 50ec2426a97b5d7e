"""These functions return hints: what to give instead of a wrong name, value, flag or path, and what
to do after a failed write.
"""

import difflib
import errno
import re
from collections.abc import Iterable
from pathlib import Path

from resnet_fn.config.wording import first_few

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


def hint_for_square_size(value: object) -> str:
    """Return a hint about a size with two sides, such as "224x224" or [224, 224], else ""."""
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
