"""`Settings` is the base class of `Recipe` and `RunOptions`, whose attributes are the settings.

The constructor checks keywords as `train` checks flags, and leaves out what has no effect:

    Recipe(epochs=-1)              # ValueError: epochs: -1 is too small; give 1 or more
    recipe = Recipe(optimizer="adamw", seed=1)
    recipe.nesterov                # False: it is for SGD
    recipe.chosen                  # {"optimizer": Source.FLAG, "seed": Source.FLAG}
    chosen_or_not_default(recipe)  # {"seed": 1, "optimizer": "adamw", "nesterov": False}
    changed(recipe, seed=2)        # a copy, which is checked, too

The constructor works in three steps:

    1  `__new__` sets `chosen`. Later steps cannot distinguish keywords from defaults
    2  dataclass's `__init__` sets all attributes, and calls `__post_init__`. Dataclass writes it, so
       that type checkers, editors and `help` have the settings
    3  `__post_init__` makes a draft of the defaults. `Draft.complete` lays
       `chosen_or_not_default` over them, as flags, and checks all; the values that stay replace
       those of step 2

`changed` and recipe files make drafts, too. `Draft.make` makes an instance of one without steps 2
and 3. Copies by `dataclasses.replace`, `copy` and `pickle` forget `chosen`; those by `changed` keep it,
except for settings that a rule has changed.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from resnet_fn.config.base_settings import AnySettings, BaseSettings, Source, unchecked
from resnet_fn.config.declaration import Declaration, check_names
from resnet_fn.config.draft import draft_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(BaseSettings):
    """Settings that are checked, and that do not change.

    `Recipe(**all_settings)` and `dataclasses.replace` choose nothing: a default without effect is
    allowed, and `own_defaults` replace it.
    """

    def __init_subclass__(cls) -> None:
        """Move the class's declarations to `declarations`, and their help to its docstring.

        This runs before `@dataclass`, which reads the defaults that take the declarations' places.
        """
        declarations = {
            name: declared
            for name, declared in vars(cls).items()
            if isinstance(declared, Declaration)
        }
        for name, declared in declarations.items():
            declared.name = name
            setattr(cls, name, declared.default)
        cls.declarations = getattr(cls, "declarations", {}) | declarations
        about = (cls.__doc__ or "").rstrip()
        cls.__doc__ = f"{about}\n\n{_attributes_text(cls)}"

    def __new__(cls, *_: Any, **given: Any) -> Any:
        """Make an instance, and remember which keywords were given.

        Positional arguments pass here, so that dataclass's `__init__` rejects them with its
        TypeError.
        """
        check_names(given, cls)
        new = super().__new__(cls)
        chosen = {} if cls._has_all(given) else dict.fromkeys(given, Source.FLAG)
        object.__setattr__(new, "chosen", chosen)  # the class is frozen
        return new

    @classmethod
    def _has_all(cls, given: Mapping[str, Any]) -> bool:
        """Return whether these are all settings, as `dataclasses.replace` passes them. Which of them
        its caller chose is not known, so none counts as chosen.
        """
        return given.keys() == cls.declarations.keys()

    def __post_init__(self) -> None:
        """Check the values as flags over the defaults, and take the values that result."""
        defaults = draft_of(unchecked(type(self), {}))
        checked = defaults.complete(**chosen_or_not_default(self))
        # Only the values are taken, by `vars`, because the class is frozen. `chosen` stays as
        # `__new__` set it.
        vars(self).update(vars(checked.make(type(self))))

    def __getstate__(self) -> dict[str, Any]:
        """Return what `copy` and `pickle` take: all but `chosen`, so that a copy chooses nothing."""
        return vars(self)


def chosen_or_not_default(config: Settings) -> dict[str, Any]:
    """Return the settings that the user chose or that differ from their defaults."""
    return {
        name: value
        for name, value in vars(config).items()
        if value != config.declarations[name].default or name in config.chosen
    }


def changed(config: AnySettings, **given: Any) -> AnySettings:
    """Return a copy of a recipe or options with the values `given`.

    Other settings can change, too: see `Draft.resolve`.
    """
    check_names(given, type(config))
    # In this draft all values of `config` come from a recipe, so that those of `given` are stronger.
    draft = draft_of(config)._replace(chosen_earlier=tuple(config.chosen)).complete(**given)
    new = draft.make(type(config))
    # What the user chose earlier stays chosen, unless a rule has set it.
    for name, source in config.chosen.items():
        if not draft.values[name].by_rule:
            new.chosen.setdefault(name, source)
    return new


def _attributes_text(cls: type[Settings]) -> str:
    """Return the part of a docstring that lists the settings with their help."""
    text = "    Attributes:\n"
    for name, declared in cls.declarations.items():
        text += f"        {name}: {declared.explain(declared.default)}\n"
    return text
