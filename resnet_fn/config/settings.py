"""Settings before they are a `Recipe` and `RunOptions`: each value with its source, and what the rules make of them.

The weaker source gives way. With `--recipe imagenet_resnet50_v1 --schedule cosine` the recipe's milestones have no
effect, because the flag is stronger: they are left out, and the run begins with a line that names them. With
`--schedule cosine --milestones 30` both are flags: the error names what does not go together. Flags, recipe files,
`Recipe(…)` and runs that resume all go through `Draft.with_flags`.
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
    """Who gave a value, the weakest first. The user typed what `FILE` and `FLAG` give."""

    RECIPE = 0  # a named recipe, a file that the user's file extends, the run that resumes, or the setting's default
    FILE = 1  # the user's own recipe file
    FLAG = 2  # or a keyword in Python


class Value(NamedTuple):
    """A setting's value, and who gave it."""

    field: Any  # its declaration, see `fields.setting`
    value: Any  # of any type; another than the default's is a fault
    source: Source = Source.RECIPE  # who gave it
    place: str = ""  # its line in a file, "mine.toml line 3"; "" if it is from no file

    @property
    def off(self) -> Any:
        """The value that the setting gets when a rule leaves it out."""
        return False if isinstance(self.field.default, bool) else self.field.default

    @property
    def is_on(self) -> bool:
        """Whether the value asks for something: it is not `off`, or was typed and is neither False, 0 nor empty."""
        return self.value != self.off or (self.source >= Source.FILE and bool(self.value))


class Draft(NamedTuple):
    """All settings of a recipe, of options or of both, on the way from files and flags."""

    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()  # a line for each setting that gave way and was not at its default
    # What is wrong: a setting that is invalid, or typed and without effect, and the text, after its line of a file.
    faults: tuple[tuple[str, str], ...] = ()

    def with_flags(self, given: Mapping[str, Any]) -> "Draft":
        """Return the draft with the flags that were given, checked, and without what then has no effect.

        A rule is skipped if it reads an invalid value, or one that is not there (a recipe's, to options alone).
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
                if rule.instead is not None and its.source < mine.source:  # the other becomes what this one needs
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
        """Return the draft with other settings, checked as a whole; a ValueError lists all that is wrong."""
        draft = self.with_flags(given)
        if draft.faults:
            raise ValueError("; ".join(text for _, text in draft.faults))
        return draft

    def make(self, settings_class: "type[_Settings]") -> "_Settings":
        """Return the recipe or the options of this draft, as they are."""
        return unchecked(settings_class, {name: value.value for name, value in self.values.items()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The base of `Recipe` and `RunOptions`, whose constructor rejects all that is wrong, in one message."""

    # The keywords of the constructor, none if all were given (`dataclasses.replace`); `vars` lists the fields alone.
    __slots__ = ("typed",)

    def __init_subclass__(cls) -> None:
        """Add the fields to the docstring, in the words of the flags' help."""
        fields = ((name, field) for name, field in vars(cls).items() if isinstance(field, dataclasses.Field))
        lines = "".join(f"\n        {name}: {explain(field, field.default)}" for name, field in fields)
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\n    Attributes:{lines}\n"

    def __new__(cls, *_: Any, **given: Any) -> Any:
        """Name the nearest field of one that does not exist."""
        check_names(given, cls)
        new = super().__new__(cls)
        object.__setattr__(new, "typed", frozenset(given if len(given) < len(dataclasses.fields(cls)) else ()))
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, for copies: nothing of a copy counts as typed."""
        return vars(self)

    def __post_init__(self) -> None:
        """Settle the values; keywords count as typed, and so does what is not at its default."""
        defaults = unchecked(type(self), {})
        vars(self).update(vars(changed(defaults, **typed_in(self))))


def unchecked(config: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """Make settings of this class from values, with defaults for what they lack; other names are passed over."""
    new: _Settings = config.__new__(config)
    vars(new).update({field.name: values.get(field.name, field.default) for field in dataclasses.fields(config)})
    return new


def typed_in(config: Any) -> dict[str, Any]:
    """Return the settings that were passed to the constructor, or that are not at their defaults."""
    usual = {field.name: field.default for field in dataclasses.fields(config)}
    return {name: value for name, value in vars(config).items() if name in config.typed or value != usual[name]}


def draft_of(*configs: Any) -> Draft:
    """Make a draft of recipe and options, in which nothing counts as typed."""
    fields = [(config, field) for config in configs for field in dataclasses.fields(config)]
    return Draft({field.name: Value(field, getattr(config, field.name)) for config, field in fields})


def changed(config: Any, **given: Any) -> Any:
    """Return settings with other values, without what then has no effect; a ValueError lists all that is wrong."""
    check_names(given, type(config))
    return draft_of(config).complete(**given).make(type(config))
