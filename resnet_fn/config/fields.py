"""This module declares single settings and checks their values. A setting is a field of `Recipe`,
for example:

    learning_rate: float = setting("batch and learning rate", 0.2, "peak learning rate", above=0, aliases="lr")

The field makes the flags `--learning-rate` and `--lr` with the help "peak learning rate; default
0.2; also --lr". A recipe file can call the setting `learning_rate` or `lr`. In Python, write
`Recipe(learning_rate=0.1)`. The value -1 gives the error "learning_rate: -1.0 must be above 0".
`rules.RULES` lists settings that depend on other settings.
"""

import dataclasses
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from resnet_fn.config.foreign_flags import advice_on_setting, advice_on_value
from resnet_fn.config.hints import one_side, suggest_name

# choices of a setting whose flags are --setting and --no-setting
YES_NO_AUTO = ["auto", "yes", "no"]
BALANCED = "balanced"  # value of `class_weights` and `sampling`
CUSTOM = "own"  # value for a caller's net, data set or loss in `resnet_fn.fit`; no flag accepts it


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
    off: Any = None,
    absent: Any = None,
) -> Any:
    """Declare a setting, which is a field of the dataclass `Recipe` or `RunOptions`.

    Args:
        default: the default value, an int, float, bool, str or tuple of floats. Values have the
            default's type.
        aliases: other names of the flag, separated by spaces.
        choices: allowed texts, for example "a|b|c". The default is allowed, too. An empty `choices`
            allows any text.
        at_least, above, within: bounds of a number, or of each number in a tuple. `within` is an
            interval, "[0, 1)".
        per_worker: whether workers may have different values. Workers may always have different
            paths (`unit` "path").
        compared: whether the ladder accepts a recipe that changes the setting.
        off: the value that the setting gets if a rule drops it, because nothing uses it. None: the
            default.
        absent: what a stored run or trace means that lacks the setting, because an older version
            wrote it. None: the default. See `stored`.
    """
    about = {
        "group": group,
        "meaning": meaning,
        "unit": unit,
        "aliases": aliases.split(),
        "choices": choices.split("|") if choices else [],
        "at_least": at_least,
        "above": above,
        "within": within,
        "per_worker": per_worker or unit == "path",
        "compared": compared,
        "off": default if off is None else off,
        "absent": default if absent is None else absent,
    }
    return dataclasses.field(default=default, metadata=about)


def as_declared(field: Any, value: Any) -> Any:
    """Convert a value to its field's type, for example an int to a float.

    Other values stay unchanged.
    """
    wanted = type(field.default)
    if wanted is float and type(value) is int:
        return _as_float(value)
    if wanted is tuple and isinstance(value, list | tuple):
        return tuple(_as_float(number) if type(number) is int else number for number in value)
    if field.metadata["choices"] == YES_NO_AUTO and isinstance(value, bool):
        return "yes" if value else "no"
    return value


def expand_home(path: str) -> str:
    """Replace ~ at the start of a path by the home folder, as a shell does.

    A path that exists as it is written stays unchanged.
    """
    return path if os.path.lexists(path) else os.path.expanduser(path)


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:  # a number of 400 digits
        return math.inf if number > 0 else -math.inf


def fault(field: Any, value: Any) -> str:
    """Return a value's error message, such as "learning_rate: -1.0 must be above 0", or "" if the
    value is valid.
    """
    about = field.metadata
    wanted = type(field.default)
    numbers = value if isinstance(value, tuple) else (value,)
    wrong = ""
    # `isinstance` would accept True as a whole number, because `bool` is a subclass of `int`.
    if type(value) is not wanted or (
        wanted is tuple and any(type(number) is not float for number in value)
    ):
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        wrong = f"is not {names.get(wanted, 'a list of numbers')}"
        wrong += f"; {suggest_name('', _shown(about['choices']))}" * bool(about["choices"])
        if about["unit"] == "pixels" and (hint := one_side(value)):
            wrong += f"; {hint}"
    elif about["choices"] and value not in (*about["choices"], field.default):
        hint = advice_on_value(field.name, value) or suggest_name(value, _shown(about["choices"]))
        wrong = f"is unknown; {hint}"
    elif wanted is str and value != value.encode(errors="ignore").decode():
        # Python's surrogates stand for bad bytes
        wrong = "has bytes that are not UTF-8; rename the file or folder"
    elif wanted in (int, float, tuple):
        faults = (_wrong_number(about, number) for number in numbers)
        wrong = next(filter(None, faults), "")
    return f"{field.name}: {value!r} {wrong}" if wrong else ""


def _shown(choices: Sequence[str]) -> list[str]:
    return [choice for choice in choices if choice != CUSTOM]


def _wrong_number(about: Any, number: float) -> str:
    least = about["at_least"]
    above = about["above"]
    within = about["within"]
    if not math.isfinite(number):
        return "is not finite; give a number"
    if least is not None and number < least:
        return f"is too small; give {least} or more"
    if above is not None and number <= above:
        return f"must be above {above}"
    if within:
        low, high = map(float, within[1:-1].split(","))
        below = number <= low if within[0] == "(" else number < low
        beyond = number >= high if within[-1] == ")" else number > high
        return f"is not in {within}" if below or beyond else ""
    return ""


def check_value(settings_class: type, name: str, value: Any) -> None:
    """Raise a ValueError if `value` is not allowed for the setting `name`."""
    field = settings_class.__dataclass_fields__[name]  # type: ignore[attr-defined]
    if wrong := fault(field, as_declared(field, value)):
        raise ValueError(wrong)


def stored(settings_class: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a run or a trace has stored, as JSON types.

    Missing settings get the values that `absent` declares.
    """
    absent = {field.name: field.metadata["absent"] for field in dataclasses.fields(settings_class)}
    lists = {name: list(value) for name, value in absent.items() if isinstance(value, tuple)}
    return {**absent, **lists, **values}


def check_names(
    names: Iterable[str],
    *settings_classes: type,
    what: str = "",
    useless: Collection[str] = (),
) -> None:
    """Raise a ValueError if one of `names` is not a setting of `settings_classes`.

    The hint names none of the settings in `useless`.
    """
    known = all_names(*settings_classes)
    for name in names:
        if known.get(name) == name:
            continue
        useful = {word: setting for word, setting in known.items() if setting not in useless}
        hint = f"did you mean {known[name]}?" if name in known else hint_for_setting(name, useful)
        caller = what or settings_classes[0].__name__.lower()
        raise ValueError(f"{caller}: unknown setting {name!r}; {hint}")


def hint_for_setting(word: str, known: Mapping[str, str]) -> str:
    """Return a hint about an unknown setting. `known` is the result of `all_names`."""
    return advice_on_setting(word, known) or suggest_name(word, sorted(set(known.values())))


def all_names(*settings_classes: type) -> dict[str, str]:
    """Map each name and alias of a setting to the setting's name, for example "lr" to
    "learning_rate".
    """
    fields = [
        field for settings_class in settings_classes for field in dataclasses.fields(settings_class)
    ]
    names = {field.name: field.name for field in fields}
    for field in fields:
        for alias in field.metadata["aliases"]:
            names[alias.replace("-", "_")] = field.name
    return names


def explain(field: Any, value: Any) -> str:
    """Return the help of a setting, such as "peak learning rate, not scaled by workers; default
    0.1*; also --lr".

    The help shows `value` as the default. A * marks a value that differs from the field's own
    default.
    """
    about = field.metadata
    shown = show_value(value)
    text = about["meaning"]
    if about["choices"] and about["choices"] != YES_NO_AUTO:
        text += f" ({', '.join(_shown(about['choices']))})"
    if about["unit"]:
        text += f" [{about['unit']}]"
    if shown or value != field.default:
        text += f"; default {shown or 'none'}{'*' if value != field.default else ''}"
    if about["aliases"]:
        text += f"; also --{', --'.join(about['aliases'])}"
    return text


def flag_name(name: str) -> str:
    """Return a setting's flag without the leading dashes."""
    return name.replace("_", "-")


def show_value(value: object) -> str:
    """Format a setting's value as a user types it after the flag."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a recipe, options or an `InputSpec` to a dict of JSON types."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in vars(config).items()
    }
