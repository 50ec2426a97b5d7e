"""These functions return hints about an argument that a command does not have."""

import os
import re
from collections.abc import Collection
from difflib import get_close_matches

from resnet_fn.config.foreign_flags import advice_on_flag
from resnet_fn.config.hints import did_you_mean

# values that people give a yes/no flag; none is a recipe's name
_YES_NO = ("true", "false", "yes", "no", "on", "off")


def hint_for_flag(word: str, flags: Collection[str]) -> str:
    """Return a hint about an unknown flag: advice on other projects' flags, or the nearest."""
    return advice_on_flag(word, flags) or _nearest_flags(word, flags)


def _nearest_flags(word: str, flags: Collection[str]) -> str:
    """Return a hint with the flags that are written like `word`, as --no-NAME if `word` is and if
    there is such a flag.
    """
    written = word.replace("_", "-")
    prefix = "--no-" if written.startswith("--no-") else "--"
    name = written.removeprefix(prefix).lstrip("-")
    bare = {flag.removeprefix("--").removeprefix("no-") for flag in flags}
    # a set's order does not matter: equally near names are sorted
    nearest = get_close_matches(name, bare)
    if not nearest:
        return "there is no such flag and none like it; see --help"
    return did_you_mean(
        [prefix + near if prefix + near in flags else f"--{near}" for near in nearest]
    )


def hint_for_word(word: str, flags: Collection[str]) -> str:
    """Return a hint about an unknown argument that is no flag: name=value, a flag's name, a folder, a
    number as in --milestones 30 60, or a recipe.
    """
    name, equals, value = word.partition("=")
    flag = f"--{name.replace('_', '-')}"
    if equals:  # as Hydra and ultralytics write settings
        opposite = f"--no-{flag.removeprefix('--')}"
        if opposite in flags and value.lower() in _YES_NO:
            return f"give {flag} or {opposite} alone"
        return f"write {flag} {value}" if flag in flags else hint_for_flag(flag, flags)
    if flag in flags:
        return f"write {flag}"
    if "--data-dir" in flags and os.path.isdir(word):
        return f"if it is the folder of the data set, give --data-dir {word}"
    if "--milestones" in flags and re.fullmatch(r"[\d.]+", word):
        return "a flag has one value; several numbers have commas, as in --milestones 30,60"
    is_name = re.fullmatch(r"\w+", word) and word.lower() not in _YES_NO
    if "--recipe" in flags and (is_name or word.endswith(".toml")):
        return f"if it is a recipe, give --recipe {word}; start a flag with --"
    return "start a flag with --, and give no value to a yes/no flag"
