"""How a setting is declared: once, as a dataclass field, from which flags, help, listings and checks are made."""

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from resnet_fn.config.gone import value_hint
from resnet_fn.config.hints import closest

# The help's groups, in its order, so that each fits a screen.
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

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", tuple: "a list of numbers"}
_TYPED = {**KINDS, tuple: "numbers with commas"}  # on a command line


class Needs(NamedTuple):
    """What a setting needs to have an effect. Without it a typed setting is rejected, a named recipe's is left out.

    Typed is what a flag, the user's own file or a keyword of the constructor gives.

    Attributes:
        holds: whether a recipe has it.
        text: the reason, then the fix: "is for sets in memory; give 0"; "{r.epochs}" in it is that field's value.
        other: the field that contradicts this one. Neither is left out: the one that was typed is rejected.
        instead: the value that `other` takes where this one was typed and it was not; None: there is none.
    """

    holds: Callable[[Any], bool]
    text: str
    other: str = ""
    instead: Any = None


def setting(
    group: str,
    default: Any,
    meaning: str,
    unit: str = "",
    *,
    aliases: tuple[str, ...] = (),
    choices: tuple[str, ...] = (),
    at_least: float | None = None,
    above: float | None = None,
    within: str = "",
    example: float | None = None,
    needs: Needs | tuple[Needs, ...] = (),
    per_worker: bool = False,
) -> Any:
    """A dataclass field.

    Args:
        group, default, meaning, unit: for the help; `group` is one of `GROUPS`.
        aliases: PyTorch's and timm's names of its flag.
        choices, at_least, above, within: all values, or bounds of a number; `within` as "[0, 1)" or "0..30".
        example: the value that an error recommends.
        needs: what it depends on.
        per_worker: the workers of a run may have different values, as of paths; see `shared`.
    """
    assert group in GROUPS, group
    about: dict[str, Any] = {"meaning": meaning, "group": group, "unit": unit, "aliases": aliases, "choices": choices}
    about["bounds"] = {"at_least": at_least, "above": above, "within": within, "example": example}
    about["needs"] = (needs,) if isinstance(needs, Needs) else needs
    about["per_worker"] = per_worker or unit == "path"
    return dataclasses.field(default=default, metadata=about)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of a dataclass of settings: rejects unknown names, and all that is wrong with values, in one message."""

    # The keywords of the constructor, none if all were given (`dataclasses.replace`); `vars` lists the fields alone.
    __slots__ = ("given",)

    def __init_subclass__(cls) -> None:
        """Add the fields to the docstring, in the words of the flags' help."""
        fields = ((name, field) for name, field in vars(cls).items() if isinstance(field, dataclasses.Field))
        lines = "".join(f"\n        {name}: {explain(field, field.default)}" for name, field in fields)
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\n    Attributes:{lines}\n"

    def __new__(cls, *_: Any, **fields: Any) -> Any:
        """Name the nearest field of one that does not exist."""
        check_names(cls, fields)
        new = super().__new__(cls)
        object.__setattr__(new, "given", frozenset(fields if len(fields) < len(dataclasses.fields(cls)) else ()))
        return new

    def __getstate__(self) -> dict[str, Any]:
        """The fields: a copy was given no keywords."""
        return vars(self)

    def __post_init__(self) -> None:
        """Check everything; what counts as typed: see `typed_values`, `Needs`."""
        typed = typed_values(self)
        vars(self).update(vars(combine(self, typed)[0]))
        if wrong := faults(self, typed):
            raise ValueError("; ".join(wrong))


def combine(
    config: Any, given: Mapping[str, Any], typed: Collection[str] = (), recipe: Any = None
) -> tuple[Any, list[str]]:
    """A config with the values `given`, unchecked, without settings that have no effect then and were not typed.

    Args:
        config: a recipe's settings, or options.
        given: values of the wrong type stay as they are.
        typed: settings of the config that the user typed too.
        recipe: the recipe of options, whose settings their `Needs` may ask for.

    Returns:
        The new config, and a line for each setting, not at its default, that is left out: see `Needs`.
    """
    new = copy.copy(config)
    vars(new).update(given)
    for field in dataclasses.fields(new):
        if type(field.default) is float and type(getattr(new, field.name)) is int:
            vars(new)[field.name] = float(getattr(new, field.name))
    typed = {*given, *typed}
    lines: dict[str, str] = {}
    while lost := [
        (field, need)
        for field, need in _unmet(new, typed, recipe)
        if (need.other or field.name) not in typed
        and (not need.other or (need.instead is not None and field.name in given))
    ]:
        for field, need in lost:
            name, who = (need.other, field.name) if need.other else (field.name, "it")
            if need.other or getattr(config, name) != field.default:
                reason = need.text.format(r=new).partition(";")[0]
                lines.setdefault(name, f"{name} {show_value(getattr(config, name))} is left out: {who} {reason}")
            vars(new)[name] = need.instead if need.other else off_value(field)
    return new, list(lines.values())


def typed_values(config: Any) -> dict[str, Any]:
    """The settings that a user of the constructor typed: its keywords, and all that are not at their defaults."""
    values = ((field, getattr(config, field.name)) for field in dataclasses.fields(config))
    return {field.name: value for field, value in values if field.name in config.given or value != field.default}


def changed(config: Any, **given: Any) -> Any:
    """A config with other values, without settings that have no effect then; a ValueError with all that is wrong."""
    check_names(type(config), given)
    new, _ = combine(config, given)
    if wrong := faults(new, given):
        raise ValueError("; ".join(wrong))
    return new


def faults(config: Any, typed: Collection[str] = (), recipe: Any = None) -> list[str]:
    """All that is wrong with a config: invalid values, settings that do not go together. Arguments: see `combine`."""
    unmet = (_explain(config, field.name, need, typed) for field, need in _unmet(config, typed, recipe))
    return [*_wrong(config).values(), *unmet]


def aliases(config: type) -> dict[str, str]:
    """PyTorch's and timm's names of settings, as names in Python: "lr" is "learning_rate"."""
    fields = dataclasses.fields(config)
    return {alias.replace("-", "_"): field.name for field in fields for alias in field.metadata["aliases"]}


def check_names(config: type, names: Iterable[str]) -> None:
    """Reject a name that is no setting; the ValueError has the nearest ones."""
    fields = config.__dataclass_fields__  # type: ignore[attr-defined]
    for name in names:
        if name not in fields:
            setting_name = aliases(config).get(name)
            hint = f"did you mean {setting_name}?" if setting_name else closest(name, sorted(fields))
            raise ValueError(f"{config.__name__.lower()}: unknown field {name!r}; {hint}")


def explain(field: Any, value: Any) -> str:
    """A setting in a line: meaning, choices, unit, and `value` as the default; * if it is not the field's."""
    about = field.metadata
    named = "" if about["choices"] == YES_NO_AUTO else ", ".join(filter(None, about["choices"]))
    choices, unit = f" ({named})" if named else "", f" [{about['unit']}]" if about["unit"] else ""
    own = "*" if value != field.default else ""
    default = f"; default {show_value(value) or 'none'}{own}" if show_value(value) or own else ""
    return f"{about['meaning']}{choices}{unit}{default}"


def check_value(config: type, name: str, value: Any) -> None:
    """Raise a ValueError if the declaration of a setting does not allow a value."""
    if wrong := _fault(config.__dataclass_fields__[name], value):  # type: ignore[attr-defined]
        raise ValueError(wrong)


def flag_name(name: str) -> str:
    """A setting's flag, without the dashes."""
    return name.replace("_", "-")


def show_value(value: object) -> str:
    """A setting's value as it is typed."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def to_dict(config: Any) -> dict[str, Any]:
    """The settings as JSON types."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(config).items()}


def shared(config: Any) -> dict[str, Any]:
    """The settings that all workers of a run must have alike."""
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if not f.metadata["per_worker"]}


def off_value(field: Any) -> Any:
    """The value at which a setting needs nothing: False, or its default."""
    return False if isinstance(field.default, bool) else field.default


class _Unknown:
    """In place of an invalid value: any test of it raises a TypeError."""

    def __bool__(self) -> bool:
        raise TypeError

    def __eq__(self, other: object) -> bool:
        raise TypeError

    __hash__ = None  # type: ignore[assignment]


def _unmet(config: Any, typed: Collection[str], recipe: Any) -> list[tuple[Any, Needs]]:
    """The settings that lack what they need, and what that is; what depends on an invalid value is not listed."""
    known = copy.copy(config)
    for part in (config, *([recipe] if recipe else [])):
        vars(known).update({**vars(part), **dict.fromkeys(_wrong(part), _Unknown())})

    def lacks(field: Any, need: Needs) -> bool:
        try:
            value = getattr(known, field.name)
            on = value != off_value(field) or (field.name in typed and bool(value))
            return on and not need.holds(known)
        except (TypeError, AttributeError):  # the latter of options without their recipe
            return False

    fields = dataclasses.fields(config)
    return [(field, need) for field in fields for need in field.metadata["needs"] if lacks(field, need)]


def _explain(config: Any, name: str, need: Needs, typed: Collection[str]) -> str:
    value, text = getattr(config, name), need.text.format(r=config)
    if name not in typed and need.other in typed:
        other = getattr(config, need.other)
        flag = f"{'no-' * (value is True)}{flag_name(name)}"
        return f"{need.other}: {other!r} does not go with {name} {value!r}, which {text}; give --{flag} too"
    return f"{name}: {value!r} {text}"


def _wrong(config: Any) -> dict[str, str]:
    """What is wrong with values by themselves, by setting."""
    faults_ = ((field.name, _fault(field, getattr(config, field.name))) for field in dataclasses.fields(config))
    return {name: text for name, text in faults_ if text}


def _fault(field: Any, value: Any) -> str:
    """What is wrong with a value by itself; "" where nothing is."""
    wanted, choices = type(field.default), field.metadata["choices"]
    numbers = value if isinstance(value, tuple) else (value,)
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        wrong = f"is not {(_TYPED if type(value) is str else KINDS)[wanted]}"
    elif any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        wrong = "is not finite; give a number"
    elif choices and value not in choices:
        gone = value_hint(field.name, value)
        wrong = gone or f"is unknown; {closest(value, [choice for choice in choices if choice])}"
    elif isinstance(value, str) and value != value.encode(errors="ignore").decode():
        wrong = "has bytes that are not UTF-8; rename the file or folder"
    else:
        wrong = next(filter(None, (_out_of_bounds(number, **field.metadata["bounds"]) for number in numbers)), "")
    return wrong and f"{field.name}: {value!r} {wrong}"


def _out_of_bounds(value: Any, at_least: float | None, above: float | None, within: str, example: float | None) -> str:
    if at_least is not None and value < at_least:
        return f"{'is negative' if at_least == 0 else 'is too small'}; give {at_least} or more"
    if above is not None and value <= above:
        return f"must be above {above}"
    if within:
        low, high = (float(number) for number in re.findall(r"[\d.]*\d", within.replace("..", " ")))
        inside = low < value < high or (value == low and within[0] != "(") or (value == high and within[-1] != ")")
        return "" if inside else f"is not in {within}" + ("" if example is None else f"; give {example}")
    return ""
