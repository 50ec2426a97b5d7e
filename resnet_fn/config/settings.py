"""This module checks settings, and resolves contradictions between them, before a `Recipe` is made.

If two settings contradict each other, the setting from the weaker `Source` is usually dropped, and
the run prints a line about it. For example, `--recipe imagenet_resnet50_v1 --schedule cosine` drops
the recipe's milestones, because a flag is stronger than a recipe. `--schedule cosine --milestones
30` is an error, because both settings are flags.
"""

import dataclasses
import enum
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from resnet_fn.config.fields import (
    as_declared,
    check_names,
    expand_home,
    explain,
    fault,
    show_value,
)
from resnet_fn.config.optimizers import OPTIMIZERS
from resnet_fn.config.rules import RULES

_Settings = TypeVar("_Settings", bound="Settings")


class Source(enum.IntEnum):
    """Orders the sources of a setting's value, weakest first.

    The user chose the values from `FILE` and `FLAG`.
    """

    # a named recipe, a file that the user's file extends, a run that resumes, or a default
    RECIPE = 0
    FILE = 1  # the user's own recipe file
    FLAG = 2  # a flag, or a keyword in Python


class Value(NamedTuple):
    """A `Value` holds the value of one setting, and the source of the value."""

    field: Any  # the setting's declaration, from `fields.setting`
    value: Any  # can have a wrong type before the checks
    source: Source = Source.RECIPE  # where the value comes from
    line: str = ""  # the value's line in a file, "mine.toml line 3"; "" if no file gives it

    def as_declared(self) -> "Value":
        """Return this value with the type of its field. In the user's paths, ~ is replaced."""
        value = as_declared(self.field, self.value)
        is_text = isinstance(value, str) and self.field.name != "name"
        if self.source >= Source.FILE and is_text:
            value = expand_home(value)
        return self._replace(value=value)

    @property
    def off(self) -> Any:
        """Return the value that the setting gets when a rule drops it."""
        return self.field.metadata["off"]

    @property
    def is_on(self) -> bool:
        """Return whether the value differs from `off`.

        A file's or flag's value is also on if not 0, false or empty.
        """
        return self.value != self.off or (self.source >= Source.FILE and bool(self.value))


class Draft(NamedTuple):
    """A draft holds settings and their sources, before a `Recipe` or `RunOptions` is made from
    them.
    """

    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()  # lines about dropped settings
    # Pairs (setting, error text) for invalid settings, and for settings of a file or flag without
    # effect.
    faults: tuple[tuple[str, str], ...] = ()
    resumes: bool = False  # whether a stored run goes on, which rules newer than it must not stop

    def resolve(self, given: Mapping[str, Any]) -> "Draft":
        """Return a draft with the flags `given`.

        Settings without effect are left out, or are faults: see `RULES`.
        """
        flags = {
            name: Value(self.values[name].field, value, Source.FLAG)
            for name, value in given.items()
        }
        values = {**self.values, **flags}
        values = {name: value.as_declared() for name, value in values.items()}
        values |= {} if self.resumes else _defaults_of_optimizer(values)
        notes = list(self.notes)
        faults = [
            (name, text)
            for name, value in values.items()
            if (text := fault(value.field, value.value))
        ]
        valid = values.keys() - dict(faults)
        on = {name for name in valid if values[name].is_on}
        for rule in RULES:
            reads = inspect.signature(rule.holds).parameters.keys()
            plain = {name: values[name].value for name in reads & valid}
            # also skipped if a setting is invalid or missing
            if len(plain) < len(reads) or rule.holds(**plain):
                continue
            names = rule.fields.split()
            of_user = any(
                values[name].source is not Source.RECIPE for name in {*reads, *names} & valid
            )
            if not rule.of_stored and (self.resumes or not of_user):
                continue
            text = rule.text.format(**plain)
            reason = text.partition(";")[0]
            for name in [name for name in names if name in on]:
                value = values[name]
                # the strongest setting, beside `name`, of those that break the rule
                cause = max(
                    (read for read in reads if read != name), key=lambda read: values[read].source
                )
                causing = values[cause]
                # set `cause` to the value that `name` needs
                if rule.instead is not None and causing.source < value.source:
                    values[cause] = causing._replace(
                        value=rule.instead, source=value.source, line=""
                    )
                    dropped = f"{cause} {show_value(causing.value)}"
                    notes.append(f"{dropped} is left out: {name} {reason}")
                elif (
                    not rule.keep
                    and rule.instead is None
                    and value.source < max(causing.source, Source.FILE)
                ):
                    values[name] = value._replace(value=value.off, source=causing.source, line="")
                    on.remove(name)
                    usual = (value.field.default, value.field.metadata["absent"])
                    if value.value not in usual or value.source >= Source.FILE:
                        notes.append(f"{name} {show_value(value.value)} is left out: it {reason}")
                else:
                    faults.append((name, f"{name}: {value.value!r} {text}"))
        lines = {name: f"{value.line}: " for name, value in values.items() if value.line}
        return Draft(
            values,
            tuple(notes),
            tuple((name, lines.get(name, "") + text) for name, text in faults),
            self.resumes,
        )

    def complete(self, **given: Any) -> "Draft":
        """Return this draft with the values `given`, after all checks.

        Raises a ValueError that lists all errors.
        """
        draft = self.resolve(given)
        if draft.faults:
            raise ValueError("; ".join(text for _, text in draft.faults))
        return draft

    def make(self, settings_class: "type[_Settings]") -> "_Settings":
        """Make a `Recipe` or `RunOptions` from this draft without further checks."""
        new = unchecked(settings_class, {name: value.value for name, value in self.values.items()})
        chosen = {
            name: value.source
            for name, value in self.values.items()
            if value.source >= Source.FILE and name in vars(new)
        }
        object.__setattr__(new, "chosen", chosen)
        return new


def _defaults_of_optimizer(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings whose values the user's optimizer brings, if nobody chose them."""
    optimizer = values.get("optimizer")
    if optimizer is None or optimizer.value not in [*OPTIMIZERS]:
        return {}
    return {
        name: values[name]._replace(value=default)
        for name, default in OPTIMIZERS[optimizer.value].defaults.items()
        if values[name].source < optimizer.source
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """This base class of `Recipe` and `RunOptions` checks all values in the constructor."""

    # Names and sources of the settings that the user chose: flags, lines of the user's recipe file,
    # and keywords of the constructor (none if all were given, as by `dataclasses.replace`). `vars`
    # does not have a slot.
    __slots__ = ("chosen",)

    def __init_subclass__(cls) -> None:
        """Add the help of all fields to the class's docstring."""
        fields = (
            (name, field)
            for name, field in vars(cls).items()
            if isinstance(field, dataclasses.Field)
        )
        lines = "".join(
            f"\n        {name}: {explain(field, field.default)}" for name, field in fields
        )
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\n    Attributes:{lines}\n"

    def __new__(cls, *_: Any, **given: Any) -> Any:
        """Make an instance, and remember which keywords were given."""
        check_names(given, cls)
        new = super().__new__(cls)
        named = given if len(given) < len(dataclasses.fields(cls)) else ()
        object.__setattr__(new, "chosen", dict.fromkeys(named, Source.FLAG))
        return new

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)  # without `chosen`, so that no field of a copy counts as chosen

    def __post_init__(self) -> None:
        defaults = unchecked(type(self), {})
        vars(self).update(vars(changed(defaults, **typed_in(self))))


def unchecked(config: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """Make an instance of `config` without checks.

    Missing fields get their defaults, and unknown names are ignored.
    """
    new: _Settings = config.__new__(config)
    vars(new).update(
        {field.name: values.get(field.name, field.default) for field in dataclasses.fields(config)}
    )
    return new


def typed_in(config: Any) -> dict[str, Any]:
    """Return the settings that were passed to the constructor or differ from their defaults."""
    usual = {field.name: field.default for field in dataclasses.fields(config)}
    return {
        name: value
        for name, value in vars(config).items()
        if name in config.chosen or value != usual[name]
    }


def draft_of(*configs: Any) -> Draft:
    """Make a draft (unchecked settings) from a recipe, options or both.

    Each source is `Source.RECIPE`.
    """
    fields = [(config, field) for config in configs for field in dataclasses.fields(config)]
    return Draft(
        {field.name: Value(field, getattr(config, field.name)) for config, field in fields}
    )


def changed(config: Any, **given: Any) -> Any:
    """Return a copy of `config` with the values `given`.

    Other settings can change, too: see `Draft.resolve`.
    """
    check_names(given, type(config))
    new = draft_of(config).complete(**given).make(type(config))
    object.__setattr__(new, "chosen", config.chosen | dict.fromkeys(given, Source.FLAG))
    return new
