"""The base of `Recipe` and `RunOptions`: dataclasses whose constructor checks everything, through `rules.settle`."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from resnet_fn.config.fields import as_declared, check_names, explain
from resnet_fn.config.rules import Source, Value, settle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Rejects unknown names, and all that is wrong with values, in one message."""

    # The keywords of the constructor, none if all were given (`dataclasses.replace`); `vars` lists the fields alone.
    __slots__ = ("typed",)
    typed: ClassVar[frozenset[str]]

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
        """The fields: a copy was given no keywords."""
        return vars(self)

    def __post_init__(self) -> None:
        """Keywords count as typed, and so does what is not at its default."""
        vars(self).update(settle(typed_values(self)).check())


def unchecked(config: type[Settings], values: Mapping[str, Any]) -> Any:
    """Settings of this class with the defaults in place of what `values` lacks; other names are passed over."""
    new = config.__new__(config)
    vars(new).update({field.name: values.get(field.name, field.default) for field in dataclasses.fields(config)})
    return new


def values_of(config: Settings, source: Source) -> dict[str, Value]:
    """All settings: this source gave those that are not at their defaults."""
    values = ((field, as_declared(field, getattr(config, field.name))) for field in dataclasses.fields(config))
    return {
        field.name: Value(field, value, source if value != field.default else Source.DEFAULT) for field, value in values
    }


def typed_values(config: Settings) -> dict[str, Value]:
    """All settings of a user of the constructor: see `Settings.__post_init__`."""
    values = values_of(config, Source.FLAG)
    return values | {name: values[name]._replace(source=Source.FLAG) for name in config.typed}


def changed(config: Any, **given: Any) -> Any:
    """Settings with other values, without those that have no effect then; a ValueError with all that is wrong."""
    check_names(type(config), given)
    values = values_of(config, Source.RECIPE)
    for name, value in given.items():
        field = values[name].field
        values[name] = Value(field, as_declared(field, value), Source.FLAG)
    return unchecked(type(config), settle(values).check())
