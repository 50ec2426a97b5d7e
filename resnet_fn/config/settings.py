"""`Settings` is the base class of `Recipe` and `RunOptions`. Their fields are the settings.

The constructor checks keywords as `train` checks flags, and leaves out what has no effect:

    Recipe(epochs=-1)              # ValueError: epochs: -1 is too small; give 1 or more
    recipe = Recipe(optimizer="adamw", seed=1)
    recipe.nesterov                # False: it is for SGD
    typed_in(recipe)               # {"nesterov": False, "optimizer": "adamw", "seed": 1}
    changed(recipe, seed=2)        # a copy, which is checked, too
"""

import dataclasses
from typing import Any

from resnet_fn.config.draft import Source, draft_of, unchecked
from resnet_fn.config.fields import check_names, explain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that are checked, and that do not change."""

    # Maps the settings that the user chose to where they come from: flags, lines of the user's
    # recipe file, and keywords of the constructor (none if all were given, as by
    # `dataclasses.replace`). As a slot, it is no field, and `vars` does not have it.
    __slots__ = ("chosen",)

    def __init_subclass__(cls) -> None:
        """Add the help of all fields to the class's docstring."""
        text = (cls.__doc__ or "").rstrip()
        text += "\n\n    Attributes:\n"
        for name, field in vars(cls).items():
            if isinstance(field, dataclasses.Field):
                text += f"        {name}: {explain(field, field.default)}\n"
        cls.__doc__ = text

    def __new__(cls, *_: Any, **given: Any) -> Any:
        """Make an instance, and remember which keywords were given."""
        check_names(given, cls)
        new = super().__new__(cls)
        named = given if len(given) < len(dataclasses.fields(cls)) else ()
        object.__setattr__(new, "chosen", dict.fromkeys(named, Source.FLAG))
        return new

    def __post_init__(self) -> None:
        """Check all values, as flags beside the defaults."""
        defaults = unchecked(type(self), {})
        vars(self).update(vars(changed(defaults, **typed_in(self))))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)  # without `chosen`, so that no field of a copy counts as chosen


def typed_in(config: Any) -> dict[str, Any]:
    """Return the settings that were passed to the constructor or differ from their defaults."""
    typed = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value != field.default or field.name in config.chosen:
            typed[field.name] = value
    return typed


def changed(config: Any, **given: Any) -> Any:
    """Return a copy of a recipe or options with the values `given`.

    Other settings can change, too: see `Draft.resolve`.
    """
    check_names(given, type(config))
    new = draft_of(config).complete(**given).make(type(config))
    object.__setattr__(new, "chosen", config.chosen | dict.fromkeys(given, Source.FLAG))
    return new
