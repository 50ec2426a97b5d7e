"""A `Draft` holds the settings of a run and where each comes from, before a `Recipe` and
`RunOptions` are made of them.

A value comes from a recipe, from a line of the user's recipe file, or from a flag. A flag is
stronger than a file's line, which is stronger than a recipe. If two settings contradict each other,
by one of `RULES`, the weaker one is usually dropped, and the run prints a note:

    draft = draft_of(recipes.recipe("imagenet_resnet50_v1"), RunOptions())
    draft.resolve({"schedule": "cosine"}).notes
        ("milestones 30.0,60.0 is left out: it needs --schedule step",)
    draft.resolve({"schedule": "cosine", "milestones": (30.0,)}).faults  # both are flags
        (("milestones", "milestones: (30.0,) needs --schedule step"),)
    draft.complete(epochs=30).make(Recipe)  # `complete` raises an error for faults
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from resnet_fn.config.fields import as_declared, expand_home, fault, show_value
from resnet_fn.config.optimizers import OPTIMIZERS
from resnet_fn.config.rules import RULES, Rule

_Settings = TypeVar("_Settings")  # `Recipe` or `RunOptions`


class Source(enum.IntEnum):
    """Where a setting's value comes from, weakest first. The user chose those of FILE and FLAG."""

    # a named recipe, a file that the user's file extends, a run that resumes, or a default
    RECIPE = 0
    FILE = 1  # the user's own recipe file
    FLAG = 2  # a flag, or a keyword in Python


class Value(NamedTuple):
    """The value of one setting, and where it comes from."""

    field: Any  # the setting's declaration, from `fields.setting`
    value: Any  # can have a wrong type before the checks
    source: Source = Source.RECIPE
    line: str = ""  # the value's line in a file, "mine.toml line 3"; "" if no file gives it

    @property
    def is_chosen(self) -> bool:
        """Return whether the user gave the value, in a file or by a flag."""
        return self.source >= Source.FILE

    @property
    def is_on(self) -> bool:
        """Return whether the value differs from the one that a rule drops it to.

        A value that the user chose is also on if it is not 0, false or empty.
        """
        if self.is_chosen and self.value:
            return True
        return bool(self.value != self.field.metadata["off"])

    @property
    def fault(self) -> str:
        """Return the error message of an invalid value, or ""."""
        return fault(self.field, self.value)

    @property
    def prefix(self) -> str:
        """Return the start of an error message, "mine.toml line 3: " or ""."""
        return f"{self.line}: " if self.line else ""

    def as_declared(self) -> "Value":
        """Return this value with the type of its field. In the user's paths, ~ is replaced."""
        value = as_declared(self.field, self.value)
        if self.is_chosen and isinstance(value, str) and self.field.name != "name":
            value = expand_home(value)
        return self._replace(value=value)


class Draft(NamedTuple):
    """Settings with their sources, which need not be valid yet."""

    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()  # lines about dropped settings
    # Pairs (setting, error text) for invalid settings, and for settings of a file or flag without
    # effect.
    faults: tuple[tuple[str, str], ...] = ()
    resumes: bool = False  # whether a stored run goes on, which rules newer than it must not stop

    def resolve(self, given: Mapping[str, Any]) -> "Draft":
        """Return this draft with the flags `given`, after all checks.

        Settings without effect are dropped, with a note, or are faults.
        """
        flags = {
            name: Value(self.values[name].field, value, Source.FLAG)
            for name, value in given.items()
        }
        values = {name: value.as_declared() for name, value in {**self.values, **flags}.items()}
        if not self.resumes:
            _set_defaults_of_optimizer(values)
        notes = [*self.notes]
        faults = [(name, text) for name in values if (text := values[name].fault)]
        valid = values.keys() - dict(faults)
        on = {name for name in valid if values[name].is_on}
        # The rules are applied in order. One whose settings are missing or invalid is left out.
        for rule in RULES:
            fields = rule.fields.split()
            read = {name: values[name].value for name in rule.reads if name in valid}
            if len(read) < len(rule.reads) or rule.holds(**read):
                continue
            involved = valid & {*fields, *read}
            by_user = any(values[name].is_chosen for name in involved)
            if not rule.of_stored and (self.resumes or not by_user):
                continue
            text = rule.text.format(**read)
            for name in fields:
                if name not in on:
                    continue
                note = _drop_weaker(values, rule, name, text.partition(";")[0])
                if note is None:
                    faults.append((name, f"{name}: {values[name].value!r} {text}"))
                elif rule.instead is None:
                    on.remove(name)
                notes += [note] if note else []
        located = ((name, values[name].prefix + text) for name, text in faults)
        return self._replace(
            values=values,
            notes=tuple(notes),
            faults=tuple(located),
        )

    def complete(self, **given: Any) -> "Draft":
        """Return `resolve(given)`, or raise a ValueError that lists all faults."""
        draft = self.resolve(given)
        if draft.faults:
            raise ValueError("; ".join(text for _, text in draft.faults))
        return draft

    def make(self, settings_class: type[_Settings]) -> _Settings:
        """Make a `Recipe` or `RunOptions` of this draft's values, without further checks."""
        plain = {name: value.value for name, value in self.values.items()}
        new = unchecked(settings_class, plain)
        for name in vars(new):
            value = self.values[name]
            if value.is_chosen:
                new.chosen[name] = value.source
        made: _Settings = new
        return made


def _set_defaults_of_optimizer(values: dict[str, Value]) -> None:
    """Set the settings whose values the user's optimizer brings, if nobody chose them."""
    optimizer = values.get("optimizer")
    if optimizer is None or optimizer.value not in [*OPTIMIZERS]:
        return
    for name, default in OPTIMIZERS[optimizer.value].unless_chosen.items():
        if values[name].source < optimizer.source:
            values[name] = values[name]._replace(value=default)


def _drop_weaker(values: dict[str, Value], rule: Rule, name: str, reason: str) -> str | None:
    """Drop the weaker of two settings that break a rule: `name`, or one that the rule reads.

    Returns the note ("" if nobody chose the value and it is the usual one), or None if neither may
    be dropped.
    """
    value = values[name]
    field = value.field
    about = field.metadata
    others = [values[other] for other in rule.reads if other != name]
    strongest = max(others, key=lambda other: other.source)
    if rule.instead is not None and strongest.source < value.source:
        needed = strongest.field.name
        values[needed] = Value(strongest.field, rule.instead, value.source)
        return f"{needed} {show_value(strongest.value)} is left out: {name} {reason}"
    may_drop = not rule.keep and rule.instead is None
    if not may_drop or value.source >= max(strongest.source, Source.FILE):
        return None
    values[name] = Value(field, about["off"], strongest.source)
    usual = (field.default, about["absent"])
    if value.value in usual and not value.is_chosen:
        return ""
    return f"{name} {show_value(value.value)} is left out: it {reason}"


def unchecked(settings_class: Any, values: Mapping[str, Any]) -> Any:
    """Make a `Recipe` or `RunOptions` without checks.

    Missing fields get their defaults, and unknown names are ignored.
    """
    new = settings_class.__new__(settings_class)
    for field in dataclasses.fields(settings_class):
        vars(new)[field.name] = values.get(field.name, field.default)
    return new


def draft_of(*configs: Any) -> Draft:
    """Make a draft of a recipe, options or both. The source of all values is a recipe."""
    values = {}
    for config in configs:
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            values[field.name] = Value(field, value)
    return Draft(values)
