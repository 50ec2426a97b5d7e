"""A `Draft` holds the settings of a run and where each comes from, before a `Recipe` and
`RunOptions` are made of them.

A value comes from a recipe, from a line of the user's recipe file, or from a flag. A flag is
stronger than a file's line, which is stronger than a recipe. By one of `RULES`, a setting may need
another one that does not fit it. If it is the weaker one, it is usually dropped, and the run prints
a note; if not, that is an error:

    draft = settings.draft_of(recipes.recipe("imagenet_resnet50_v1"), RunOptions())
    draft.resolve({"schedule": "cosine"}).drop_notes
        {"milestones": "milestones 30.0,60.0 is left out: it needs --schedule step"}
    draft.resolve({"schedule": "cosine", "milestones": (30.0,)}).faults  # both are flags
        (("milestones", "milestones: (30.0,) needs --schedule step"),)
    Recipe.from_draft(draft.complete(epochs=30))  # `complete` raises an error for faults
"""

import enum
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from resnet_fn.config.declaration import Declaration
from resnet_fn.config.rules import RULES, Replace, Rule
from resnet_fn.config.values import expand_home, show_value


class Source(enum.IntEnum):
    """Where a setting's value comes from, weakest first."""

    # a named recipe, a file that the user's file extends, a run that is resumed, or a default
    RECIPE = 0
    FILE = 1  # the user's own recipe file
    FLAG = 2  # a flag, or a keyword in Python


class SourcedValue(NamedTuple):
    """The value of one setting, and where it comes from."""

    declared: Declaration
    value: Any  # can have a wrong type before the checks
    # Of a value that a rule has set (`by_rule`): the source of the setting that the rule obeyed, so
    # that later rules take this value to be as strong.
    source: Source = Source.RECIPE
    line: str = ""  # the value's line in a file, "mine.toml line 3"; "" if no file gives it
    by_rule: bool = False

    @property
    def name(self) -> str:
        """Return the setting's name."""
        return self.declared.name

    @property
    def is_chosen(self) -> bool:
        """Return whether the user gave the value, in a file or by a flag."""
        return self.source >= Source.FILE and not self.by_rule

    @property
    def would_be_lost(self) -> bool:
        """Return whether dropping the setting takes something from the user: a value other than
        `dropped_to`, or one that the user gave and that does not mean off (0, false, empty).
        """
        if self.value != self.declared.dropped_to:
            return True
        return self.is_chosen and bool(self.value)

    @property
    def needs_note(self) -> bool:
        """Return whether the user should hear that the value is dropped: somebody asked for it."""
        # an older version may have stored `if_not_stored`, its default
        usual = (self.declared.default, self.declared.if_not_stored)
        return self.is_chosen or self.value not in usual

    def converted(self) -> "SourcedValue":
        """Return this value with its setting's type. In the user's texts, ~ is the home folder."""
        value = self.declared.convert(self.value)
        # any text may be a path, as that of `class_weights`; but `name` never is
        if self.is_chosen and isinstance(value, str) and self.name != "name":
            value = expand_home(value)
        return self._replace(value=value)


class Draft(NamedTuple):
    """Settings with their sources. They need not be valid before `resolve`."""

    values: Mapping[str, SourcedValue]
    resumes: bool = False  # whether a stored run goes on, which rules newer than it must not stop
    # Of `resolve`: lines about dropped settings, by their names, and pairs (setting, error text) for
    # invalid settings and for broken rules that changed nothing.
    drop_notes: Mapping[str, str] = {}
    faults: tuple[tuple[str, str], ...] = ()

    def resolve(self, given: Mapping[str, Any]) -> "Draft":
        """Return this draft with the flags `given` over its values, after all checks.

        Values get their settings' types where that is possible. Then each is checked by itself, and
        the rules are applied in their order; for a broken one, see `Rule.on_break`. A KeyError is
        raised for an unknown name.
        """
        flags = {
            name: SourcedValue(self.values[name].declared, value, Source.FLAG)
            for name, value in given.items()
        }
        merged = {**self.values, **flags}
        values = {name: sourced.converted() for name, sourced in merged.items()}
        resolution = _Resolution(values, without(given, self.drop_notes))
        for rule in RULES:  # in order, because a rule may change what a later one reads
            if self._must_obey(rule, resolution.values):
                resolution.apply(rule)
        return self._replace(
            values=resolution.values,
            drop_notes=resolution.notes,
            faults=tuple(resolution.faults),
        )

    def _must_obey(self, rule: Rule, values: Mapping[str, SourcedValue]) -> bool:
        """Return whether a rule counts here.

        A stored run may break a rule for new runs: one that is resumed, or one whose recipe is read,
        in which the user chose none of the settings that the rule has or reads.
        """
        if not rule.only_new_runs:
            return True
        if self.resumes:
            return False
        involved = {*rule.names, *rule.reads}
        return any(values[name].is_chosen for name in involved if name in values)

    def complete(self, **given: Any) -> "Draft":
        """Return `resolve(given)`, or raise a ValueError that lists all faults."""
        draft = self.resolve(given)
        if draft.faults:
            raise ValueError("; ".join(text for _, text in draft.faults))
        return draft

    def plain_values(self) -> dict[str, Any]:
        """Return the values without their sources."""
        return {name: sourced.value for name, sourced in self.values.items()}

    def chosen(self) -> dict[str, Source]:
        """Return the settings that the user chose and no rule has changed, with their sources."""
        return {name: sourced.source for name, sourced in self.values.items() if sourced.is_chosen}


class _Resolution:
    """The values of a draft while `Draft.resolve` applies the rules to them."""

    def __init__(self, values: dict[str, SourcedValue], notes: dict[str, str]) -> None:
        self.values = values
        self.notes = notes
        # pairs (setting, error text), because a setting can have several
        self.faults = list[tuple[str, str]]()
        for name, sourced in values.items():
            if text := sourced.declared.wrong(sourced.value):
                self._add_fault(name, text)
        # settings whose values are wrong whatever the others are: no rule reads or changes them
        self._invalid = {name for name, _ in self.faults}

    def apply(self, rule: Rule) -> None:
        """If the values break a rule, do for each of its settings what `on_break` has."""
        read = {name: self.values[name].value for name in rule.reads if self._is_valid(name)}
        text = rule.broken_by(read)
        if not text:
            return
        for name in rule.names:
            if not self._is_valid(name) or not self.values[name].would_be_lost:
                continue
            if isinstance(rule.on_break, Replace):
                self._replace_read(rule, rule.on_break.value, name, text)
            elif rule.on_break == "drop":
                self._drop(rule, name, text)
            else:
                self._add_fault(name, text)

    def _is_valid(self, name: str) -> bool:
        return name in self.values and name not in self._invalid

    def _drop(self, rule: Rule, name: str, text: str) -> None:
        """Drop a setting that breaks a rule. A fault if the user chose it, and none of the settings
        that the condition reads is stronger.
        """
        sourced = self.values[name]
        strength = max(self.values[read].source for read in rule.reads if read != name)
        if sourced.is_chosen and sourced.source >= strength:
            self._add_fault(name, text)
            return
        self._set(name, sourced.declared.dropped_to, strength)
        if sourced.needs_note:
            shown = show_value(sourced.value)
            self.notes[name] = f"{name} {shown} is left out: it {_reason(text)}"

    def _replace_read(self, rule: Rule, value: Any, name: str, text: str) -> None:
        """Give the setting that the condition reads another value, because of `name`, which breaks
        the rule. A fault if the setting read is as strong.
        """
        (read,) = rule.reads
        old = self.values[read]
        strength = self.values[name].source
        if old.source >= strength:
            self._add_fault(name, text)
            return
        self._set(read, value, strength)
        shown = show_value(old.value)
        new = show_value(value)
        change = f"{shown} becomes {new}" if new else f"{shown} is left out"
        self.notes[read] = f"{read} {change}: {name} {_reason(text)}"

    def _set(self, name: str, value: Any, source: Source) -> None:
        declared = self.values[name].declared
        self.values[name] = SourcedValue(declared, value, source, by_rule=True)

    def _add_fault(self, name: str, text: str) -> None:
        """Add an error about a value. If a file gives it, the error starts with the line there."""
        sourced = self.values[name]
        line = f"{sourced.line}: " if sourced.line else ""
        self.faults.append((name, f"{line}{name}: {sourced.value!r} {text}"))


def without(names: Collection[str], notes: Mapping[str, str]) -> dict[str, str]:
    """Return the notes but those about settings in `names`, which got other values."""
    return {name: note for name, note in notes.items() if name not in names}


def _reason(text: str) -> str:
    """Return a rule's text without the fix."""
    return text.partition(";")[0]
