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

from resnet_fn.config.fields import as_declared, check_names, explain, fault, flag_name, show_value
from resnet_fn.config.rules import RULES

_Settings = TypeVar("_Settings", bound="Settings")


class Source(enum.IntEnum):
    """Who gave a value, the weakest first. The user typed what `FILE` and `FLAG` give."""

    DEFAULT = 0  # or equal to the default
    RECIPE = 1  # a named recipe, a file that the user's file extends, or the run that resumes
    FILE = 2  # the user's own recipe file
    FLAG = 3  # or a keyword in Python


class Value(NamedTuple):
    """A setting's value, and who gave it."""

    field: Any  # its declaration, see `fields.setting`
    value: Any  # of any type; another than the default's is a fault
    source: Source = Source.DEFAULT  # who gave it
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
    # By setting, what is wrong with it (invalid, or typed and without effect), after its line of a file.
    faults: Mapping[str, str] = {}

    def with_flags(self, given: Mapping[str, Any]) -> "Draft":
        """Return the draft with the flags that were given, checked, and without what then has no effect.

        A rule is skipped if it reads an invalid value, or one that is not there (a recipe's, to options alone).
        """
        flags = {name: Value(self.values[name].field, value, Source.FLAG) for name, value in given.items()}
        values = {**self.values, **flags}
        values = {name: value._replace(value=as_declared(value.field, value.value)) for name, value in values.items()}
        gave_way = set()
        notes = list(self.notes)
        faults: dict[str, str] = {}

        def add_fault(name: str, text: str) -> None:
            text = f"{values[name].place}: {text}" if values[name].place else text
            faults[name] = f"{faults[name]}; {text}" if name in faults else text

        for name, value in values.items():
            if wrong := fault(value.field, value.value):
                add_fault(name, wrong)
        known = values.keys() - faults.keys()
        for rule in RULES:
            reads = inspect.signature(rule.holds).parameters
            plain = {name: values[name].value for name in reads if name in known}
            if len(plain) < len(reads) or rule.holds(**plain):
                continue
            needs = rule.text.format(**plain)
            reason = needs.partition(";")[0]
            for name in rule.fields.split():
                if name not in known or name in gave_way or not values[name].is_on:
                    continue
                other = max((read for read in reads if read != name), key=lambda read: values[read].source)
                mine, its = values[name], values[other]
                weaker = mine.source < its.source
                may_give_way = rule.instead is None and not rule.keep
                if rule.instead is not None and its.source < mine.source:  # the other becomes what this one needs
                    values[other] = Value(its.field, rule.instead, mine.source)
                    notes.append(f"{other} {show_value(its.value)} is left out: {name} {reason}")
                elif may_give_way and (weaker or mine.source < Source.FILE):  # this one is left out
                    values[name] = Value(mine.field, mine.off, its.source)
                    gave_way.add(name)
                    notes += [f"{name} {show_value(mine.value)} is left out: it {reason}"] * bool(mine.source)
                elif weaker:  # the error names the setting of the stronger source
                    flag = f"--{'no-' * (mine.value is True)}{flag_name(name)}"
                    what = f"{its.value!r} does not go with {name} {mine.value!r}"
                    add_fault(other, f"{other}: {what}, which {needs}; give {flag} too")
                else:
                    add_fault(name, f"{name}: {mine.value!r} {needs}")
        return Draft(values, tuple(notes), faults)

    def complete(self, **given: Any) -> "Draft":
        """Return the draft with other settings, checked as a whole; a ValueError lists all that is wrong."""
        draft = self.with_flags(given)
        if draft.faults:
            raise ValueError("; ".join(draft.faults.values()))
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
        vars(self).update(vars(Draft(values_of(self, Source.FLAG)).complete().make(type(self))))


def unchecked(config: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """Make settings of this class from values, with defaults for what they lack; other names are passed over."""
    new: _Settings = config.__new__(config)
    vars(new).update({field.name: values.get(field.name, field.default) for field in dataclasses.fields(config)})
    return new


def values_of(config: Any, source: Source) -> dict[str, Value]:
    """Return all settings as `Value`s: `source` gave those that its user passed, or that are not at their defaults."""
    values = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        is_given = field.name in config.typed or value != field.default
        values[field.name] = Value(field, value, source if is_given else Source.DEFAULT)
    return values


def changed(config: Any, **given: Any) -> Any:
    """Return settings with other values, without what then has no effect; a ValueError lists all that is wrong."""
    check_names(given, type(config))
    return Draft(values_of(config, Source.RECIPE)).complete(**given).make(type(config))
