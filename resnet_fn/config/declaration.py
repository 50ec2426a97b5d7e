"""This module declares single settings and checks their values. A setting is a field of the
dataclass `Recipe` or `RunOptions`, for example:

    learning_rate: float = setting("batch and learning rate", 0.2, "peak learning rate", above=0, aliases="lr")

The field makes the flags `--learning-rate` and `--lr` with the help "peak learning rate; default
0.2; also --lr". A recipe file can call the setting `learning_rate` or `lr`. In Python, write
`Recipe(learning_rate=0.1)`. The value -1 gives the error "learning_rate: -1.0 must be above 0".
`rules.RULES` lists settings that depend on other settings.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resnet_fn.config.foreign_flags import advice_on_setting, advice_on_value
from resnet_fn.config.hints import hint_for_square_size, suggest_name
from resnet_fn.config.values import show_value

# choices of a setting whose flags are --setting and --no-setting
YES_NO_AUTO = ["auto", "yes", "no"]
BALANCED = "balanced"  # value of `class_weights` and `sampling`
# Value for a caller's net, data set or loss in `resnet_fn.fit`. No flag accepts it. Checkpoints and
# config.json contain it, so it stays "own".
CUSTOM = "own"
# Units that change more than the help: see `setting`.
PATH = "path"
PIXELS = "pixels"


class Interval(NamedTuple):
    """The numbers that a setting may have."""

    wrong: str  # what is wrong with a number outside, "is not in [0, 1)"
    low: float
    high: float = math.inf
    is_low_outside: bool = False
    is_high_outside: bool = False

    def has(self, number: float) -> bool:
        """Return whether a number lies in the interval."""
        is_above = self.low < number if self.is_low_outside else self.low <= number
        is_below = number < self.high if self.is_high_outside else number <= self.high
        return is_above and is_below


class Declaration(NamedTuple):
    """One setting, in the form in which `Recipe.declarations` and `RunOptions.declarations`
    contain it.

    `setting` makes it, and describes the fields that have no comment.
    """

    name: str  # the name of the dataclass's field; `Settings` sets it
    default: Any
    group: str
    meaning: str
    unit: str
    aliases: list[str]
    choices: list[str]  # besides the default; empty: any text
    bounds: Interval  # of a number, or of each number in a tuple; without bounds: all numbers
    per_worker: bool  # true for each path
    compared: bool
    dropped_to: Any  # the default if `setting` got None
    if_not_stored: Any  # the default if `setting` got None


def setting(
    group: str,
    default: Any,
    meaning: str,
    unit: str = "",
    *,
    aliases: str = "",
    choices: str = "",
    at_least: float | None = None,
    above: float | None = None,
    within: str = "",
    per_worker: bool = False,
    compared: bool = True,
    dropped_to: Any = None,
    if_not_stored: Any = None,
) -> Any:
    """Declare a setting. Returns a field of a dataclass.

    Args:
        group: the title of the setting's group, which stands above its flags in --help and above
            its lines in recipe files that runs write.
        default: the default value, an int, float, bool, str or tuple of floats. Values have the
            default's type.
        meaning: the text of --help.
        unit: shown in --help. PATH lets workers have different values, and PIXELS adds a hint to
            the error of a value such as 224x224.
        aliases: other names of the flag, separated by spaces.
        choices: allowed texts besides the default, for example "a|b|c". An empty `choices` allows
            any text.
        at_least, above, within: bounds of a number, or of each number in a tuple: at most one of
            the three. `within` is an interval, "[0, 1)".
        per_worker: whether workers may have different values.
        compared: whether the ladder accepts a recipe that changes the setting.
        dropped_to: the value that the setting gets if a rule drops it, because nothing uses it.
            None: the default.
        if_not_stored: what a stored run or trace means that lacks the setting, because an older
            version wrote it. None: the default. See `stored.with_missing_settings`.
    """
    declared = Declaration(
        name="",
        default=default,
        group=group,
        meaning=meaning,
        unit=unit,
        aliases=aliases.split(),
        choices=choices.split("|") if choices else [],
        bounds=_bounds(at_least, above, within),
        per_worker=per_worker or unit == PATH,
        compared=compared,
        dropped_to=default if dropped_to is None else dropped_to,
        if_not_stored=default if if_not_stored is None else if_not_stored,
    )
    return dataclasses.field(default=default, metadata={"declaration": declared})


def _bounds(at_least: float | None, above: float | None, within: str) -> Interval:
    """Return the interval of the bound that is given, or all numbers."""
    if at_least is not None:
        return Interval(f"is too small; give {at_least} or more", at_least)
    if above is not None:
        return Interval(f"must be above {above}", above, is_low_outside=True)
    if not within:
        return Interval("", -math.inf)
    low, high = map(float, within[1:-1].split(","))
    return Interval(f"is not in {within}", low, high, within[0] == "(", within[-1] == ")")


def as_declared(declared: Declaration, value: Any) -> Any:
    """Convert a value to its setting's type, for example an int to a float.

    Other values stay unchanged.
    """
    wanted = type(declared.default)
    if wanted is float and type(value) is int:
        return _as_float(value)
    if wanted is tuple and isinstance(value, list | tuple):
        return tuple(_as_float(number) if type(number) is int else number for number in value)
    if declared.choices == YES_NO_AUTO and isinstance(value, bool):
        return "yes" if value else "no"
    return value


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:  # a number of 400 digits
        return math.inf if number > 0 else -math.inf


def fault(declared: Declaration, value: Any) -> str:
    """Return a value's error message, such as "learning_rate: -1.0 must be above 0", or "" if the
    value is valid.
    """
    check = _wrong_text if isinstance(declared.default, str) else _wrong_number
    wrong = _wrong_type(declared, value) or check(declared, value)
    return f"{declared.name}: {value!r} {wrong}" if wrong else ""


def _wrong_type(declared: Declaration, value: Any) -> str:
    wanted = type(declared.default)
    # `isinstance` would accept True as a whole number, because `bool` is a subclass of `int`.
    if type(value) is wanted and (
        wanted is not tuple or all(type(number) is float for number in value)
    ):
        return ""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    wrong = f"is not {names.get(wanted, 'a list of numbers')}"
    if declared.choices:
        hint = suggest_name("", _shown(declared.choices))  # lists them
    elif declared.unit == PIXELS:
        hint = hint_for_square_size(value)
    else:
        hint = ""
    return f"{wrong}; {hint}" if hint else wrong


def _wrong_text(declared: Declaration, value: str) -> str:
    choices = declared.choices
    if choices and value not in (*choices, declared.default):
        hint = advice_on_value(declared.name, value) or suggest_name(value, _shown(choices))
        return f"is unknown; {hint}"
    # Python's surrogates stand for bad bytes
    is_utf8 = value == value.encode(errors="ignore").decode()
    return "" if is_utf8 else "has bytes that are not UTF-8; rename the file or folder"


def _shown(choices: Sequence[str]) -> list[str]:
    return [choice for choice in choices if choice != CUSTOM]


def _wrong_number(declared: Declaration, value: Any) -> str:
    """Return what is wrong with a number, or with the first wrong number of a tuple."""
    for number in value if isinstance(value, tuple) else (value,):
        if not math.isfinite(number):
            return "is not finite; give a number"
        if not declared.bounds.has(number):
            return declared.bounds.wrong
    return ""


def check_value(settings_class: Any, name: str, value: Any) -> None:
    """Raise a ValueError if `value` is not allowed for the setting `name`."""
    declared = settings_class.declarations[name]
    if wrong := fault(declared, as_declared(declared, value)):
        raise ValueError(wrong)


def all_names(*settings_classes: Any) -> dict[str, str]:
    """Map each name and alias of a setting to the setting's name, for example "lr" to
    "learning_rate".
    """
    names = {}
    for settings_class in settings_classes:
        for name, declared in settings_class.declarations.items():
            names[name] = name
            for alias in declared.aliases:
                names[alias.replace("-", "_")] = name
    return names


def check_names(
    names: Iterable[str],
    *settings_classes: Any,
    caller: str = "",
    useless: Collection[str] = (),
) -> None:
    """Raise a ValueError if one of `names` is not a setting of `settings_classes`.

    The error starts with `caller`, by default the first class. The hint names none of the settings
    in `useless`.
    """
    known = all_names(*settings_classes)
    for name in names:
        if known.get(name) == name:
            continue
        if name in known:  # an alias, which only flags and recipe files may use
            hint = f"did you mean {known[name]}?"
        else:
            useful = {word: setting for word, setting in known.items() if setting not in useless}
            hint = hint_for_setting(name, useful)
        caller = caller or settings_classes[0].__name__.lower()
        raise ValueError(f"{caller}: unknown setting {name!r}; {hint}")


def hint_for_setting(word: str, known: Mapping[str, str]) -> str:
    """Return a hint about an unknown setting. `known` is the result of `all_names`."""
    return advice_on_setting(word, known) or suggest_name(word, sorted(set(known.values())))


def explain(declared: Declaration, value: Any) -> str:
    """Return the help of a setting, such as "peak learning rate, not scaled by workers; default
    0.1*; also --lr".

    The help shows `value` as the default. A * marks a value that differs from the setting's own
    default.
    """
    shown = show_value(value)
    text = declared.meaning
    if declared.choices and declared.choices != YES_NO_AUTO:
        text += f" ({', '.join(_shown(declared.choices))})"
    if declared.unit:
        text += f" [{declared.unit}]"
    is_changed = value != declared.default
    if shown or is_changed:
        text += f"; default {shown or 'none'}" + ("*" if is_changed else "")
    if declared.aliases:
        text += f"; also --{', --'.join(declared.aliases)}"
    return text


def flag_name(name: str) -> str:
    """Return a setting's flag without the leading dashes."""
    return name.replace("_", "-")
