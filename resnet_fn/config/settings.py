"""The base of `Recipe` and `RunOptions`: dataclasses whose constructor checks everything, by `rules.apply_rules`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from resnet_fn.config.fields import check_names, explain
from resnet_fn.config.rules import Source, Value, apply_rules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Rejects unknown names, and all that is wrong with values, in one message."""

    # The keywords of the constructor, none if all were given (`dataclasses.replace`); `vars` lists the fields alone.
    __slots__ = ("typed",)

    def __init_subclass__(cls) -> None:
        """Add the fields to the docstring, in the words of the flags' help."""
        fields = ((name, field) for name, field in vars(cls).items() if isinstance(field, dataclasses.Field))
        lines = "".join(f"\n        {name}: {explain(field, field.default)}" for name, field in fields)
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\n    Attributes:{lines}\n"

    def __new__(cls, *_: Any, **given: Any) -> Any:
        """Name the nearest field of one that does not exist."""
        check_names(cls, given)
        new = super().__new__(cls)
        object.__setattr__(new, "typed", frozenset(given if len(given) < len(dataclasses.fields(cls)) else ()))
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, for copies: nothing of a copy counts as typed."""
        return vars(self)

    def __post_init__(self) -> None:
        """Settle the values; keywords count as typed, and so does what is not at its default."""
        vars(self).update(apply_rules(typed_values(self)).check())


def unchecked(config: type[Settings], values: Mapping[str, Any]) -> Any:
    """Make settings of this class from values, with defaults for what they lack; other names are passed over."""
    new = config.__new__(config)
    vars(new).update({field.name: values.get(field.name, field.default) for field in dataclasses.fields(config)})
    return new


def values_of(config: Settings, source: Source, typed: frozenset[str] = frozenset()) -> dict[str, Value]:
    """Return all settings as `Value`s: `source` gave those that are `typed` or not at their defaults."""
    values = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        is_given = field.name in typed or value != field.default
        values[field.name] = Value(field, value, source if is_given else Source.DEFAULT)
    return values


def typed_values(config: Any) -> dict[str, Value]:
    """Return the settings of an object that its user constructed; those that were passed count as given by a flag."""
    return values_of(config, Source.FLAG, config.typed)


def changed(config: Any, **given: Any) -> Any:
    """Return settings with other values, without what then has no effect; a ValueError lists all that is wrong."""
    check_names(type(config), given)
    values = values_of(config, Source.RECIPE)
    values |= {name: Value(values[name].field, value, Source.FLAG) for name, value in given.items()}
    return unchecked(type(config), apply_rules(values).check())
