"""This module declares single settings and checks their values. A setting is an
attribute of `Recipe` or `RunOptions`, for example:

    learning_rate: float = setting("batch and learning rate", 0.2, "peak learning rate", above=0, aliases=("lr",))

The line makes the flags `--learning-rate` and `--lr` with the help "peak learning rate; default
0.2; also --lr". A recipe file can call the setting `learning_rate` or `lr`. In Python, write
`Recipe(learning_rate=0.1)`. The value -1 gives the error "learning_rate: -1.0 is too small; give
more than 0". `rules.RULES` lists settings that depend on other settings.

A flag's text goes through `parse`, then `convert`, then `fault`. Values of Python and of files go
through `convert` and `fault`.
"""

import dataclasses
import math
import numbers
import os
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from resnet_fn.config.hints import hint_for_square_size, hint_for_value, list_names
from resnet_fn.config.values import show_value

# choices of a setting: see `Declaration.is_yes_no_auto`
YES_NO_AUTO = ("auto", "yes", "no")
BALANCED = "balanced"  # value of `class_weights` and `sampling`
# Value for a caller's net, data set or loss in `resnet_fn.fit`; the rules reject it elsewhere,
# and `recipe.check_buildable` rejects an own net with an own data set. Checkpoints and config.json contain
# it, so it stays "own".
CUSTOM = "own"
# Units that change more than the help: see `Declaration.unit`.
PATH = "path"
PIXELS = "pixels"


@dataclasses.dataclass
class Declaration:
    """One setting. `Recipe.declarations` and `RunOptions.declarations` have it by its name."""

    group: str  # the title above its flags in --help, and above its lines in a run's recipe.toml
    default: Any  # an int, float, bool, str or tuple of floats; values have the default's type
    meaning: str  # the text of --help
    # Shown in --help. With PATH, ~ is the home folder, and workers may have different values; PIXELS
    # adds a hint to the error of a value such as 224x224.
    unit: str = ""
    _: dataclasses.KW_ONLY  # the fields below are given by keyword only
    aliases: tuple[str, ...] = ()  # other names of the flag
    choices: tuple[str, ...] = ()  # allowed texts besides the default; empty: any text
    # Bounds of a number, or of each number in a tuple. `at_least` or `above`: one bound; `within`,
    # an interval such as "[0, 1)": two.
    at_least: float = -math.inf
    above: float = -math.inf
    within: str = ""
    per_worker: bool = False  # whether workers may have different values
    compared: bool = True  # whether the ladder accepts a recipe that changes the setting
    # The value that the setting gets if a rule drops it, because nothing uses it: False for nesterov,
    # which is on by default. None: the default.
    dropped_to: Any = None
    name: str = dataclasses.field(default="", init=False)  # of the class's attribute

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the name of the class's attribute. Python calls this method."""
        self.name = name

    def __post_init__(self) -> None:
        """Replace None by the default, and let workers have different paths."""
        self.per_worker |= self.unit == PATH
        if self.dropped_to is None:
            self.dropped_to = self.default

    @property
    def is_yes_no_auto(self) -> bool:
        """Return whether the flags are --setting and --no-setting, and files may have true or
        false.
        """
        return self.choices == YES_NO_AUTO

    def parse(self, text: str) -> Any:
        """Return the value of a flag's text.

        A text that cannot be converted is returned as it is. `fault` rejects it later, so that one
        error lists all wrong settings.
        """
        wanted = type(self.default)
        try:
            if wanted is tuple:
                return tuple(float(part) for part in text.split(",") if part)
            return wanted(text)
        except ValueError:
            return text

    def convert(self, value: Any) -> Any:
        """Convert a value to the setting's type, for example an int to a float, and NumPy's values
        to Python's.

        Other values stay unchanged.
        """
        wanted = type(self.default)
        if isinstance(value, np.bool_):
            value = bool(value)
        if wanted is float:
            return _as_float(value)
        if wanted is int and _is_number(value, numbers.Integral):
            return int(value)  # NumPy's, too
        if self.unit == PATH and isinstance(value, os.PathLike):
            return os.fspath(value)
        if wanted is tuple and isinstance(value, list | tuple):
            return tuple(map(_as_float, value))
        if self.is_yes_no_auto and isinstance(value, bool):
            return "yes" if value else "no"
        return value

    def fault(self, value: Any) -> str:
        """Return what is wrong with a value, such as "is too small; give more than 0", or ""."""
        if fault := self._type_fault(value):
            return fault
        return self._text_fault(value) if isinstance(value, str) else self._number_fault(value)

    def checked(self, value: Any) -> Any:
        """Return a value with the setting's type, or raise a ValueError if it is not allowed."""
        value = self.convert(value)
        if fault := self.fault(value):
            raise ValueError(f"{self.name}: {value!r} {fault}")
        return value

    def explain(self, value: Any) -> str:
        """Return the help of the setting, such as "peak learning rate, not scaled by workers;
        default 0.1*; also --lr".

        The help shows `value` as the default. A * marks a value that differs from the setting's own
        default.
        """
        shown = show_value(value)
        text = self.meaning
        if self.choices and not self.is_yes_no_auto:
            text += f" ({', '.join(self._shown_choices())})"
        if self.unit:
            text += f" [{self.unit}]"
        is_changed = value != self.default
        if shown or is_changed:
            text += f"; default {shown or 'none'}" + ("*" if is_changed else "")
        if self.aliases:
            text += f"; also --{', --'.join(self.aliases)}"
        return text

    def _type_fault(self, value: Any) -> str:
        wanted = type(self.default)
        # `isinstance` would accept True as a whole number, because `bool` is a subclass of `int`.
        if type(value) is wanted and (
            wanted is not tuple or all(type(number) is float for number in value)
        ):
            return ""
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        fault = f"is not {names.get(wanted, 'a list of numbers')}"
        if self.choices:
            hint = list_names(self._shown_choices())
        elif self.unit == PIXELS:
            hint = hint_for_square_size(value)
        else:
            hint = ""
        return f"{fault}; {hint}" if hint else fault

    def _text_fault(self, value: str) -> str:
        if self.unit == PATH and self.default and not value:
            return f"is empty; give {self.default} or a path"
        if self.choices and value not in (*self.choices, self.default):
            return f"is unknown; {hint_for_value(self.name, value, self._shown_choices())}"
        # bytes that are not UTF-8 arrive as surrogates, which `ignore` drops
        is_utf8 = value == value.encode(errors="ignore").decode()
        return "" if is_utf8 else "has bytes that are not UTF-8; rename the file, or write UTF-8"

    def _number_fault(self, value: Any) -> str:
        """Return what is wrong with a number, or with the first wrong number of a tuple."""
        if not isinstance(value, tuple):
            return self._out_of_bounds(value)
        for number in value:
            if fault := self._out_of_bounds(number):
                return f"has {number}, which {fault}"
        return ""

    def _out_of_bounds(self, number: Any) -> str:
        if isinstance(number, float) and not math.isfinite(number):
            return "is not finite; give a number"
        if number < self.at_least:
            return f"is too small; give {self.at_least} or more"
        if number <= self.above:
            return f"is too small; give more than {self.above:g}"
        if _as_float(number) == math.inf:  # a whole number of 400 digits
            return "is too large; give a smaller number"
        if self.within and not _is_in(self.within, number):
            return f"is not in {self.within}; give a number in it"
        return ""

    def _shown_choices(self) -> list[str]:
        return [choice for choice in self.choices if choice != CUSTOM]


Arguments = ParamSpec("Arguments")


def _as_any(make: Callable[Arguments, Declaration]) -> Callable[Arguments, Any]:
    """Return `make`, so that type checkers accept `epochs: int = make(...)`."""
    return make


# Declares a setting in a class: `epochs: int = setting("batch and learning rate", 20, …)`.
# `Settings` keeps the declaration, and puts the default in its place.
setting = _as_any(Declaration)


def _is_number(value: Any, kind: type) -> bool:
    """Return whether a value is a number of this kind. True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _as_float(value: Any) -> Any:
    """Return a whole number, or NumPy's number, as a float, and other values as they are."""
    try:
        return float(value) if _is_number(value, numbers.Real) else value
    except OverflowError:  # a number of 400 digits
        return math.inf if value > 0 else -math.inf


def _is_in(interval: str, number: float) -> bool:
    """Return whether a number is in an interval such as "[0, 1)", which includes 0 but not 1."""
    low, high = map(float, interval[1:-1].split(","))
    is_bound = (number == low and interval[0] == "[") or (number == high and interval[-1] == "]")
    return is_bound or low < number < high
