"""A `Draft` holds settings with the source of each value; the rules check it before it becomes a `Recipe`.

Of two settings that contradict each other, the one from the weaker source is dropped. With `--recipe
imagenet_resnet50_v1 --schedule cosine` the recipe's milestones are dropped, because a flag is stronger than a recipe;
the run prints a line that names them. With `--schedule cosine --milestones 30` both are flags, which is an error.
"""

import dataclasses
import enum
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from resnet_fn.config.fields import as_declared, check_names, explain, fault, show_value
from resnet_fn.config.rules import RULES

_Settings = TypeVar("_Settings", bound="Settings")


class Source(enum.IntEnum):
    """The source of a setting's value, the weakest first. Values of `FILE` and `FLAG` count as typed by the user."""

    RECIPE = 0  # a named recipe, a file that the user's file extends, the run that resumes, or the setting's default
    FILE = 1  # the user's own recipe file
    FLAG = 2  # or a keyword in Python


class Value(NamedTuple):
    """A `Value` holds a setting's value and the source that gave it."""

    field: Any  # the setting's declaration, see `fields.setting`
    value: Any  # of any type; a type other than the default's is an error
    source: Source = Source.RECIPE  # where the value comes from
    place: str = ""  # the value's line in a file, "mine.toml line 3"; "" if no file gives it

    @property
    def off(self) -> Any:
        """Return the value that the setting gets when a rule drops it."""
        return False if isinstance(self.field.default, bool) else self.field.default

    @property
    def is_on(self) -> bool:
        """Return whether the value is not `off`, or was typed and is not False, 0 or empty."""
        return self.value != self.off or (self.source >= Source.FILE and bool(self.value))


class Draft(NamedTuple):
    """A draft holds all settings of a `Recipe`, of `RunOptions` or of both, before these are made."""

    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()  # a line for each dropped setting that was not at its default
    # (setting, error text) of each setting that is invalid, or that was typed and has no effect.
    faults: tuple[tuple[str, str], ...] = ()

    def with_flags(self, given: Mapping[str, Any]) -> "Draft":
        """Return the draft with the values `given` as flags, checked; settings that then have no effect are dropped.

        A rule is skipped if it reads an invalid value, or a setting that is not in this draft.
        """
        flags = {name: Value(self.values[name].field, value, Source.FLAG) for name, value in given.items()}
        values = {**self.values, **flags}
        values = {name: value._replace(value=as_declared(value.field, value.value)) for name, value in values.items()}
        notes = list(self.notes)
        faults = [(name, text) for name, value in values.items() if (text := fault(value.field, value.value))]
        valid = values.keys() - dict(faults)
        on = {name for name in valid if values[name].is_on}
        for rule in RULES:
            reads = inspect.signature(rule.holds).parameters.keys()
            plain = {name: values[name].value for name in reads & valid}
            if len(plain) < len(reads) or rule.holds(**plain):
                continue
            text = rule.text.format(**plain)
            reason = text.partition(";")[0]
            for name in [name for name in rule.fields.split() if name in on]:
                mine = values[name]
                other = max((read for read in reads if read != name), key=lambda read: values[read].source)
                its = values[other]
                if rule.instead is not None and its.source < mine.source:  # set `other` to the value that `name` needs
                    values[other] = its._replace(value=rule.instead, source=mine.source, place="")
                    notes.append(f"{other} {show_value(its.value)} is left out: {name} {reason}")
                elif not rule.keep and rule.instead is None and mine.source < max(its.source, Source.FILE):
                    values[name] = mine._replace(value=mine.off, source=its.source, place="")
                    on.remove(name)
                    if mine.value != mine.field.default or mine.source >= Source.FILE:
                        notes.append(f"{name} {show_value(mine.value)} is left out: it {reason}")
                else:
                    faults.append((name, f"{name}: {mine.value!r} {text}"))
        places = {name: f"{value.place}: " for name, value in values.items() if value.place}
        return Draft(values, tuple(notes), tuple((name, places.get(name, "") + text) for name, text in faults))

    def complete(self, **given: Any) -> "Draft":
        """Return the draft with the values `given`, checked; a ValueError lists all errors."""
        draft = self.with_flags(given)
        if draft.faults:
            raise ValueError("; ".join(text for _, text in draft.faults))
        return draft

    def make(self, settings_class: "type[_Settings]") -> "_Settings":
        """Make a `Recipe` or `RunOptions` from this draft, without further checks."""
        return unchecked(settings_class, {name: value.value for name, value in self.values.items()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """This is the base class of `Recipe` and `RunOptions`; its constructor lists all errors in one ValueError."""

    # The constructor's keywords (none if all were given, as `dataclasses.replace` does); a slot, so not in `vars`.
    __slots__ = ("typed",)

    def __init_subclass__(cls) -> None:
        """Add all fields, with the help of their flags, to the class's docstring."""
        fields = ((name, field) for name, field in vars(cls).items() if isinstance(field, dataclasses.Field))
        lines = "".join(f"\n        {name}: {explain(field, field.default)}" for name, field in fields)
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\n    Attributes:{lines}\n"

    def __new__(cls, *_: Any, **given: Any) -> Any:
        """Make an instance; a ValueError for an unknown field names the nearest one."""
        check_names(given, cls)
        new = super().__new__(cls)
        object.__setattr__(new, "typed", frozenset(given if len(given) < len(dataclasses.fields(cls)) else ()))
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Return only the fields, without `typed`: in a copy no field counts as typed."""
        return vars(self)

    def __post_init__(self) -> None:
        """Check the values; keywords, and values that are not the default, count as typed."""
        defaults = unchecked(type(self), {})
        vars(self).update(vars(changed(defaults, **typed_in(self))))


def unchecked(config: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """Make a `config` from `values` without checks; missing fields get their default, unknown names are ignored."""
    new: _Settings = config.__new__(config)
    vars(new).update({field.name: values.get(field.name, field.default) for field in dataclasses.fields(config)})
    return new


def typed_in(config: Any) -> dict[str, Any]:
    """Return the settings that were passed to the constructor or are not at their default."""
    usual = {field.name: field.default for field in dataclasses.fields(config)}
    return {name: value for name, value in vars(config).items() if name in config.typed or value != usual[name]}


def draft_of(*configs: Any) -> Draft:
    """Make a draft from a recipe, options or both; no value in it counts as typed."""
    fields = [(config, field) for config in configs for field in dataclasses.fields(config)]
    return Draft({field.name: Value(field, getattr(config, field.name)) for config, field in fields})


def changed(config: Any, **given: Any) -> Any:
    """Return `config` with the values `given`; settings without effect get their default; a ValueError for errors."""
    check_names(given, type(config))
    return draft_of(config).complete(**given).make(type(config))
