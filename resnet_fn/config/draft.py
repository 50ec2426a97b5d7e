"""A `Draft` holds the settings of a run and where each comes from, before a `Recipe` and
`RunOptions` are made of them.

A value comes from a recipe, from a line of the user's recipe file or of one that it extends, or
from a flag. A flag is stronger than a file's line, which is stronger than a recipe. `RULES` list
which settings need certain values of others. A setting that needs a value which a stronger one does
not have is usually dropped, with a note unless it is a default. What the user chose (a
flag, or a line of the user's own file) is dropped only for what is stronger; else that is an error:

    draft = settings.draft_of(recipes.recipe("imagenet_resnet50_v1"), RunOptions())
    draft.resolve({"schedule": "cosine"}).drop_notes
        ("milestones 30.0,60.0 is left out: it needs --schedule step",)
    draft.resolve({"schedule": "cosine", "milestones": (30.0,)}).faults  # both are flags
        ("milestones: (30.0,) needs --schedule step",)
    Recipe.from_draft(draft.complete({"epochs": 30}))  # `complete` raises an error for faults
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from resnet_fn.config.declaration import PATH, Declaration
from resnet_fn.config.rules import RULES, Replace, Rule, without_effect
from resnet_fn.config.values import NOTHING, expand_home, show_value


class Source(enum.IntEnum):
    """Where a setting's value comes from, weakest first.

    From EXTENDED on it is *written* for this run, so that the rules for new runs apply to it. From
    FILE on it is *chosen*, and gives way only to what is stronger.
    """

    RECIPE = 0  # a named recipe, a run that is resumed, a default, or a copy's older value
    EXTENDED = 1  # a file that the user's own recipe file extends
    FILE = 2  # the user's own recipe file
    FLAG = 3  # a flag, or a keyword in Python


class SourcedValue(NamedTuple):
    """The value of one setting, and where it comes from."""

    declared: Declaration
    value: Any  # can have a wrong type before the checks
    source: Source = Source.RECIPE
    line: str = ""  # the value's line in a file, "mine.toml line 3"; "" if no file gives it
    # Whether a rule has set the value. Nobody chose it then, so that any later rule may change it.
    # `source` is that of the setting that won: it counts if another setting needs this value.
    by_rule: bool = False

    @property
    def name(self) -> str:
        """Return the setting's name."""
        return self.declared.name

    @property
    def is_written(self) -> bool:
        """Return whether a flag or a recipe file gives the value, also a file that is extended."""
        return self.source >= Source.EXTENDED and not self.by_rule

    @property
    def is_chosen(self) -> bool:
        """Return whether a flag or the user's own recipe file gives the value."""
        return self.source >= Source.FILE and not self.by_rule

    @property
    def asks_for_something(self) -> bool:
        """Return whether the value asks for something. Broken rules leave other values alone."""
        if self.value != self.declared.dropped_to:
            return True
        # `policy_ops = 2` in a file asks for something, though 2 is the default; 0, false and an
        # empty text ask for nothing.
        return self.is_chosen and bool(self.value)

    def gives_way_to(self, source: Source) -> bool:
        """Return whether a rule may change this value for one with this source. What the user chose
        gives way only to what is stronger.
        """
        return not self.is_chosen or source > self.source

    def set_by_rule(self, value: Any, source: Source) -> "SourcedValue":
        """Return the value that a rule gives to this setting for one with this source."""
        return SourcedValue(self.declared, value, source, by_rule=True)

    def converted(self) -> "SourcedValue":
        """Return this value with its setting's type. In paths of the user, ~ is the home folder."""
        value = self.declared.convert(self.value)
        if self.is_written and isinstance(value, str) and self.declared.unit == PATH:
            value = expand_home(value)
        return self._replace(value=value)


@dataclass(frozen=True)
class Draft:
    """Settings with their sources. They need not be valid before `resolve`."""

    values: Mapping[str, SourcedValue]

    def resolve(self, given: Mapping[str, Any] = NOTHING, *, resumes: bool = False) -> "Resolved":
        """Return this draft with the flags `given` over its values, after all checks.

        Values get their settings' types where that is possible. Then each is checked by itself, and
        the rules are applied in their order; for a broken one, see `Rule.on_break`. If `resumes` is
        true, a stored run goes on, which rules for new runs must not stop. A KeyError is raised for
        an unknown name.
        """
        merged = {**self.values}
        for name, value in given.items():
            declared = merged[name].declared
            merged[name] = SourcedValue(declared, value, Source.FLAG)
        resolution = _Resolution(merged, resumes=resumes)
        for rule in RULES:  # in order, because a rule may change what a later one reads
            resolution.apply(rule)
        return Resolved(resolution.values, tuple(resolution.notes), tuple(resolution.faults))

    def complete(self, given: Mapping[str, Any] = NOTHING, *, resumes: bool = False) -> "Resolved":
        """Return what `resolve` returns, or raise a ValueError that lists all faults."""
        resolved = self.resolve(given, resumes=resumes)
        if resolved.faults:
            raise ValueError("; ".join(resolved.faults))
        return resolved

    def plain_values(self) -> dict[str, Any]:
        """Return the values without their sources."""
        return {name: sourced.value for name, sourced in self.values.items()}


@dataclass(frozen=True)
class Resolved(Draft):
    """A draft after all checks. Its values are valid if there are no faults."""

    drop_notes: tuple[str, ...]  # lines about settings that a rule has dropped or replaced
    faults: tuple[str, ...]  # errors of invalid settings, and of broken rules that changed nothing

    def sources_of_chosen(self) -> dict[str, Source]:
        """Return the settings in use that the user chose, with their sources."""
        in_use = self.in_use()
        return {
            name: sourced.source
            for name, sourced in self.values.items()
            if sourced.is_chosen and name in in_use
        }

    def in_use(self) -> set[str]:
        """Return the settings that have an effect, and whose values no rule has set."""
        by_rule = {name for name, sourced in self.values.items() if sourced.by_rule}
        return self.values.keys() - by_rule - without_effect(self.plain_values())


class _Resolution:
    """The values of a draft while `Draft.resolve` applies the rules to them."""

    def __init__(self, values: Mapping[str, SourcedValue], *, resumes: bool) -> None:
        self._resumes = resumes
        self.values = {name: sourced.converted() for name, sourced in values.items()}
        self.notes = list[str]()
        self.faults = list[str]()
        # settings whose values are wrong whatever the others are: no rule reads or changes them
        self._invalid = set[str]()
        for name, sourced in self.values.items():
            text = sourced.declared.fault(sourced.value)
            if text:
                self._add_fault(name, text)
                self._invalid.add(name)

    def apply(self, rule: Rule) -> None:
        """If the values break a rule, do for each of its settings what `on_break` has."""
        read = {name: self.values[name].value for name in rule.reads if self._is_valid(name)}
        text = rule.broken_by(read)
        if not text or not self._applies(rule):
            return
        for name in rule.names:
            if not self._is_valid(name) or not self.values[name].asks_for_something:
                continue
            match rule.on_break:
                case Replace(value):
                    (other,) = rule.reads
                    self._replace(other, value, name, text)
                case "drop":
                    self._drop(rule, name, text)
                case "error":
                    self._add_fault(name, text)

    def _applies(self, rule: Rule) -> bool:
        """Return whether a rule applies to this run. One for new runs does if a setting that it has
        or reads is written for this run; if none is, all may be those of a stored run.
        """
        if not rule.only_new_runs:
            return True
        involved = {*rule.names, *rule.reads} & self.values.keys()
        return not self._resumes and any(self.values[name].is_written for name in involved)

    def _is_valid(self, name: str) -> bool:
        return name in self.values and name not in self._invalid

    def _drop(self, rule: Rule, name: str, text: str) -> None:
        """Drop a setting for the strongest one that a broken rule reads, or add a fault."""
        setting = self.values[name]
        strength = max(self.values[other].source for other in rule.reads if other != name)
        if not setting.gives_way_to(strength):
            self._add_fault(name, text)
            return
        self.values[name] = setting.set_by_rule(setting.declared.dropped_to, strength)
        # SGD's nesterov, which is on by default, goes without a note
        if setting.is_chosen or setting.value != setting.declared.default:
            shown = show_value(setting.value)
            self.notes.append(f"{name} {shown} is left out: it {_reason(text)}")

    def _replace(self, other: str, value: Any, name: str, text: str) -> None:
        """Give `value` to the setting `other` for the setting `name`, or add a fault."""
        replaced = self.values[other]
        strength = self.values[name].source
        if not replaced.gives_way_to(strength):
            self._add_fault(name, text)
            return
        self.values[other] = replaced.set_by_rule(value, strength)
        change = f"becomes {show_value(value)}" if show_value(value) else "is left out"
        old = show_value(replaced.value)
        self.notes.append(f"{other} {old} {change}: {name} {_reason(text)}")

    def _add_fault(self, name: str, text: str) -> None:
        """Add an error about a value. If a file gives it, the error starts with the line there."""
        sourced = self.values[name]
        message = f"{name}: {sourced.value!r} {text}"
        if sourced.line:
            message = f"{sourced.line}: {message}"
        self.faults.append(message)


def _reason(text: str) -> str:
    """Return the text of a rule without the fix."""
    return text.partition(";")[0]
