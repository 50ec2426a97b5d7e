"""How one setting is declared and checked. This field of the class `Recipe` is all that a setting needs:

    learning_rate: float = setting("batch and learning rate", 0.2, "peak learning rate", above=0, aliases="lr")

It makes the flags `--learning-rate` and `--lr`, their line of `--help` ("peak learning rate; default 0.2; also --lr"),
the names `learning_rate` and `lr` in a recipe file, and the keyword in `Recipe(learning_rate=0.1)`. Whoever gives -1
reads "learning_rate: -1.0 must be above 0". What settings need of each other is in a table of its own, `rules.RULES`.
"""

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any

from resnet_fn.config.hints import closest

# The groups of the help, in its order, so that each fits a screen.
GROUPS = (
    "data",
    "augmentation",
    "mixing of images",
    "net",
    "weights to start from, and what is trained",
    "precision",
    "batch and learning rate",
    "loss",
    "optimizer",
    "evaluation",
    "the run: where it is kept and goes on",
    "how updates are computed, not which",
    "what the run records",
)

YES_NO_AUTO = ("auto", "yes", "no")  # choices of a setting whose flags are --setting and --no-setting

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", tuple: "a list of numbers"}
_TYPED = {**_KINDS, tuple: "numbers with commas"}  # on a command line


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
) -> Any:
    """A dataclass field.

    Args:
        group, default, meaning, unit: for the help; `group` is one of `GROUPS`. The default's type is the setting's.
        aliases: PyTorch's and timm's names of its flag, with spaces between.
        choices: all values, with spaces between; a default of "" is one, too.
        at_least, above, within: bounds of a number; `within` as "[0, 1)" or "0..30".
        per_worker: the workers of a run may have different values, as of paths; see `shared`.
    """
    assert group in GROUPS, group
    about: dict[str, Any] = {"group": group, "meaning": meaning, "unit": unit, "aliases": aliases.split()}
    about["choices"] = ("",) * (choices != "" == default) + tuple(choices.split())
    about |= {"at_least": at_least, "above": above, "within": within, "per_worker": per_worker or unit == "path"}
    return dataclasses.field(default=default, metadata=about)


def as_declared(field: Any, value: Any) -> Any:
    """A value as its setting's type: a whole number may stand for a float, a list of numbers for a tuple."""
    if type(field.default) is float and type(value) is int:
        return float(value)
    is_numbers = isinstance(value, list) and all(type(number) in (int, float) for number in value)
    return tuple(map(float, value)) if type(field.default) is tuple and is_numbers else value


def fault(field: Any, value: Any) -> str:
    """What is wrong with a value by itself, "learning_rate: -1.0 must be above 0"; "" where nothing is."""
    wanted, choices = type(field.default), field.metadata["choices"]
    numbers = value if isinstance(value, tuple) else (value,)
    if type(value) is not wanted or (wanted is tuple and not all(type(number) in (int, float) for number in value)):
        wrong = f"is not {(_TYPED if type(value) is str else _KINDS)[wanted]}"
    elif any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        wrong = "is not finite; give a number"
    elif choices and value not in choices:
        wrong = f"is unknown; {closest(value, [choice for choice in choices if choice])}"
    elif isinstance(value, str) and value != value.encode(errors="ignore").decode():
        wrong = "has bytes that are not UTF-8; rename the file or folder"
    else:
        wrong = next(filter(None, (_out_of_bounds(field.metadata, number) for number in numbers)), "")
    return wrong and f"{field.name}: {value!r} {wrong}"


def _out_of_bounds(about: Any, value: Any) -> str:
    least, above, within = about["at_least"], about["above"], about["within"]
    if least is not None and value < least:
        return f"{'is negative' if least == 0 else 'is too small'}; give {least} or more"
    if above is not None and value <= above:
        return f"must be above {above}"
    if within:
        low, high = (float(number) for number in re.findall(r"[\d.]*\d", within.replace("..", " ")))
        inside = low < value < high or (value == low and within[0] != "(") or (value == high and within[-1] != ")")
        return "" if inside else f"is not in {within}"
    return ""


def check_value(config: type, name: str, value: Any) -> None:
    """Raise a ValueError if the declaration of a setting does not allow a value."""
    field = config.__dataclass_fields__[name]  # type: ignore[attr-defined]
    if wrong := fault(field, as_declared(field, value)):
        raise ValueError(wrong)


def check_names(config: type, names: Iterable[str]) -> None:
    """Reject a name that is no setting; the ValueError has the nearest ones."""
    fields = config.__dataclass_fields__  # type: ignore[attr-defined]
    for name in names:
        if name not in fields:
            ours = aliases(config).get(name)
            hint = f"did you mean {ours}?" if ours else closest(name, sorted(fields))
            raise ValueError(f"{config.__name__.lower()}: unknown field {name!r}; {hint}")


def aliases(config: type) -> dict[str, str]:
    """PyTorch's and timm's names of settings, as names in Python: "lr" is "learning_rate"."""
    fields = dataclasses.fields(config)
    return {alias.replace("-", "_"): field.name for field in fields for alias in field.metadata["aliases"]}


def explain(field: Any, value: Any) -> str:
    """A setting in a line: meaning, choices, unit, `value` as the default (* if it is not the field's), aliases."""
    about = field.metadata
    named = "" if about["choices"] == YES_NO_AUTO else ", ".join(filter(None, about["choices"]))
    choices, unit = f" ({named})" if named else "", f" [{about['unit']}]" if about["unit"] else ""
    own = "*" if value != field.default else ""
    default = f"; default {show_value(value) or 'none'}{own}" if show_value(value) or own else ""
    also = "; also --" + ", --".join(about["aliases"]) if about["aliases"] else ""
    return f"{about['meaning']}{choices}{unit}{default}{also}"


def flag_name(name: str) -> str:
    """A setting's flag, without the dashes."""
    return name.replace("_", "-")


def show_value(value: object) -> str:
    """A setting's value as it is typed."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def to_dict(config: Any) -> dict[str, Any]:
    """The settings as JSON types."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(config).items()}


def shared(config: Any) -> dict[str, Any]:
    """The settings that all workers of a run must have alike."""
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if not f.metadata["per_worker"]}
