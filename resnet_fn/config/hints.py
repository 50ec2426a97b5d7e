"""These functions return hints: what to give instead of a wrong name, value, flag or path."""

import difflib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from resnet_fn.config.foreign_flags import advice_on_flag
from resnet_fn.config.wording import first_few

_SHORT = 4  # so few names are all listed
# One slash is enough, because Path turns http:// into http:/.
_ADDRESS = re.compile("[a-z][a-z0-9]+:/", re.IGNORECASE)
_YES_NO = ("true", "false", "yes", "no", "on", "off")


def _nearest(word: str, names: Iterable[str]) -> list[str]:
    """Return up to three names that are written like `word`, the nearest first.

    Names that are equally near are sorted, so the order of `names`, which can be a set, does not
    matter.
    """
    return difflib.get_close_matches(word, names, n=3, cutoff=0.6)


def _did_you_mean(names: Iterable[object]) -> str:
    choices = " or ".join(map(str, names))
    return f"did you mean {choices}?"


def suggest_name(word: str, known: Iterable[str], otherwise: Iterable[str] = ()) -> str:
    """Suggest names in `known` that are written like `word`.

    If there are none, or `known` has few names, list the names in `otherwise`, or in `known` if
    `otherwise` is empty.
    """
    names = list(known)
    nearest = _nearest(word, names)
    if nearest and len(names) > _SHORT:
        return _did_you_mean(nearest)
    return f"use one of {first_few(list(otherwise) or names, 30)}"


def hint_for_flag(word: str, flags: Collection[str]) -> str:
    """Return a hint about an unknown flag: advice on other projects' flags, or the nearest."""
    return advice_on_flag(word, flags) or _nearest_flags(word, flags)


def _nearest_flags(word: str, flags: Collection[str]) -> str:
    prefix = "--no-" if word.startswith("--no-") else "--"
    name = word.removeprefix(prefix).lstrip("-").replace("_", "-")
    bare = {flag.removeprefix("--").removeprefix("no-") for flag in flags}
    nearest = _nearest(name, bare)
    if not nearest:
        return "there is no such flag and none like it; see --help"
    nearest_flags = [prefix + name if prefix + name in flags else f"--{name}" for name in nearest]
    return _did_you_mean(nearest_flags)


def hint_for_word(word: str, flags: Collection[str]) -> str:
    """Return a hint about an unknown argument that is no flag."""
    name, equals, value = word.partition("=")
    flag = f"--{name.replace('_', '-')}"
    if equals:  # as Hydra and ultralytics write settings
        if flag in flags:
            return f"write {flag} {value}"
        return hint_for_flag(flag, flags)
    if "--data-dir" in flags and os.path.isdir(word):
        return f"if it is the folder of the data set, give --data-dir {word}"
    if "--milestones" in flags and re.fullmatch(r"[\d.]+", word):
        return "write several numbers with commas, as in --milestones 30,60"
    is_name = re.fullmatch(r"\w+(\.toml)?", word) and word.lower() not in _YES_NO
    if "--recipe" in flags and is_name:
        return f"if it is a recipe, give --recipe {word}; start a flag with --"
    return "start a flag with --, and give no value to a yes/no flag"


def hint_for_square_size(value: object) -> str:
    """Return a hint about a size with two sides, such as "224x224" or [224, 224], else ""."""
    parts = value if isinstance(value, list | tuple) else re.split("[x×*,]", str(value))
    sides = [str(part).strip() for part in parts]
    if len(sides) != 2 or not all(map(str.isdecimal, sides)):
        return ""
    height, width = sides
    if height == width:
        return f"images are square, so give {height}"
    return "images are square, so give one number"


def near_path(path: str | Path, otherwise: str) -> str:
    """Return a hint with existing paths that are nearest to a missing path, or `otherwise` if there
    are none.
    """
    if _ADDRESS.match(str(path)):
        return "it is an address, and nothing is downloaded; download it, and give its path"
    # In runs/frist/checkpoints, if there is no runs/frist: runs exists, runs/frist is missing, and
    # checkpoints is below it. The nearest folders that have it, too, are complete.
    existing = missing = Path(path)
    while not existing.exists() and existing != existing.parent:
        missing = existing
        existing = missing.parent
    if not existing.is_dir():
        return otherwise
    names = [entry.name for entry in existing.iterdir()]
    nearest = [existing / name for name in _nearest(missing.name, names)]
    if not nearest:
        return otherwise
    below = Path(path).relative_to(missing)
    complete = [folder / below for folder in nearest if (folder / below).exists()]
    return _did_you_mean(complete or nearest)


def near_run(path: Path, otherwise: str) -> str:
    """Suggest runs or existing paths near `path`, which lacks what the caller needs, or return
    `otherwise`.
    """
    folder = path if path.is_dir() else path.parent
    runs = sorted(str(log.parent) for log in folder.glob("*/metrics.jsonl"))
    if runs:
        otherwise = f"give one of the runs in {folder}: {first_few(runs)}"
    return otherwise if path.is_dir() else near_path(path, otherwise)
