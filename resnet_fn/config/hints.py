"""These functions return hints about a wrong name or value: what to give instead."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from resnet_fn.config.foreign_flags import advice_on_value
from resnet_fn.config.wording import first_few

_ALL_UP_TO = 4  # so few names are listed even if one is written like the wrong name
_LISTED = 30  # most names in a list


def suggest_name(word: str, known: Iterable[str], otherwise: Iterable[str] = ()) -> str:
    """Suggest names in `known` that are written like `word`.

    If there are none, or `known` has few names, list the names in `otherwise`, or in `known` if
    `otherwise` is empty.
    """
    names = list(known)
    nearest = get_close_matches(word, names)
    if nearest and len(names) > _ALL_UP_TO:
        return did_you_mean(nearest)
    return list_names(list(otherwise) or names)


def list_names(names: Iterable[str]) -> str:
    """Return a hint that lists allowed names."""
    return f"use one of {first_few(list(names), _LISTED)}"


def did_you_mean(names: Iterable[object]) -> str:
    """Return a hint that asks whether one of `names` was wanted."""
    choices = " or ".join(map(str, names))
    return f"did you mean {choices}?"


def hint_for_value(setting: str, value: str, choices: Iterable[str]) -> str:
    """Return a hint about a value that is none of the choices: advice on other projects' values,
    or the nearest choices.
    """
    return advice_on_value(setting, value) or suggest_name(value, choices)


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
