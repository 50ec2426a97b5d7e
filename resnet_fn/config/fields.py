"""How a setting is declared: once, as a dataclass field that says all there is to know of it.

Flags, help, the recipes' listing and every check are made from the declaration.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from resnet_fn.config.hints import closest

# The help's groups, in its order, so that each fits a screen.
GROUPS = (
    "data",
    "augmentation",
    "mixing of images",
    "net",
    "batch and learning rate",
    "loss",
    "optimizer",
    "the run: how updates are computed, not which",
    "what the run records",
)


class Needs(NamedTuple):
    """What brings a setting to life: without it the setting would be ignored, so it is refused.

    Attributes:
        holds: whether a recipe has it.
        text: "needs --policy randaugment".
        always: refused in any recipe whose value is not the one that turns the setting off. False: only where a user
            typed it (`--policy ""` turns a recipe's augmentation off without asking that its strength go too).
    """

    holds: Callable[[Any], bool]
    text: str
    always: bool = False


def setting(
    group: str,
    default: Any,
    meaning: str,
    unit: str = "",
    *,
    choices: tuple[str, ...] = (),
    at_least: float | None = None,
    above: float | None = None,
    within: str = "",
    example: float | None = None,
    needs: Needs | tuple[Needs, ...] = (),
) -> Any:
    """A dataclass field.

    Args:
        group: one of `GROUPS`.
        default: its type is the setting's.
        meaning, unit: what the help says.
        choices: all values that there are.
        at_least, above: bounds of a number.
        within: both, as "[0, 1)" or "0..30".
        example: a value to recommend to whoever is out of bounds.
        needs: what it depends on.
    """
    assert group in GROUPS, group
    bounds = {"at_least": at_least, "above": above, "within": within, "example": example}
    conditions = (needs,) if isinstance(needs, Needs) else needs
    told = {"meaning": meaning, "group": group, "unit": unit, "choices": choices, "bounds": bounds, "needs": conditions}
    return dataclasses.field(default=default, metadata=told)


def require(condition: bool, field: str, value: object, fix: str) -> None:
    """Refuse a value.

    Raises:
        ValueError: the condition does not hold; the message names field, value and fix.
    """
    if not condition:
        raise ValueError(f"{field}: {value!r} {fix}")


def check_value(config: type, name: str, value: Any) -> None:
    """Refuse a value that the declaration of a setting does not allow; for functions that take one setting alone."""
    _check_field(config.__dataclass_fields__[name], value)  # type: ignore[attr-defined]


def check_fields(config: Any) -> None:
    """Refuse what a declaration does not allow: type, non-finite numbers, choices, bounds, what it always needs."""
    for field in dataclasses.fields(config):
        if type(field.default) is float and type(getattr(config, field.name)) is int:
            object.__setattr__(config, field.name, float(getattr(config, field.name)))
        _check_field(field, getattr(config, field.name))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        off = False if isinstance(field.default, bool) else field.default
        for need in field.metadata["needs"]:
            require(not need.always or value == off or need.holds(config), field.name, value, need.text)


def check_given(config: Any, given: Iterable[str]) -> None:
    """Refuse settings that a user typed and that would be ignored.

    Args:
        config: with what was typed.
        given: names of the settings that were.

    Raises:
        ValueError: names the setting, its value and what it needs.
    """
    for name in given:
        for need in config.__dataclass_fields__[name].metadata["needs"]:
            if not need.always and not need.holds(config):
                raise ValueError(f"{name}: {getattr(config, name)} would change nothing: it {need.text}")


def to_dict(config: Any) -> dict[str, Any]:
    """The settings as JSON types."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(config).items()}


def _check_field(field: Any, value: Any) -> None:
    name, wanted = field.name, type(field.default)
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        raise ValueError(f"{name}: {value!r} is a {type(value).__name__}; give a {wanted.__name__}")
    numbers = value if isinstance(value, tuple) else (value,)
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        raise ValueError(f"{name}: {value!r} is not finite; give a number")
    choices = field.metadata["choices"]
    if choices and value not in choices:
        raise ValueError(f"{name}: {value!r} is unknown; {closest(value, [choice for choice in choices if choice])}")
    _check_bounds(name, value, **field.metadata["bounds"])


def _check_bounds(
    name: str, value: Any, at_least: float | None, above: float | None, within: str, example: float | None
) -> None:
    if at_least is not None:
        short = "is negative" if at_least == 0 else "is too small"
        require(value >= at_least, name, value, f"{short}; give {at_least} or more")
    if above is not None:
        require(value > above, name, value, f"must be above {above}")
    if within:
        low, high = (float(number) for number in re.findall(r"[\d.]*\d", within.replace("..", " ")))
        inside = low < value < high or (value == low and within[0] != "(") or (value == high and within[-1] != ")")
        require(inside, name, value, f"is not in {within}" + ("" if example is None else f"; give {example}"))
