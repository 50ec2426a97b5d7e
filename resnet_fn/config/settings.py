"""`Settings` is the base class of `Recipe` and `RunOptions`, whose attributes are the settings.

The constructor checks keywords as `train` checks flags: it keeps them, in the types of the
settings, or raises an error. Other settings may get other values than their defaults:

    Recipe(epochs=-1)              # ValueError: epochs: -1 is too small; give 1 or more
    recipe = Recipe(optimizer="adamw", seed=1)
    recipe.nesterov                # False: it is for SGD
    recipe.chosen                  # {"optimizer": Source.FLAG, "seed": Source.FLAG}
    chosen_or_not_default(recipe)  # {"seed": 1, "optimizer": "adamw", "nesterov": False}
    changed(recipe, seed=2)        # a copy, which is checked, too

To make a recipe, Python calls the first two of these functions, and the second calls the third:

    1  `BaseSettings.__new__` rejects unknown names, and remembers the keywords in `chosen`, unless
       they are all settings
    2  `__init__` sets an attribute for each setting. Dataclass writes it, so that type checkers,
       editors and `help` have the settings
    3  `__post_init__` checks the attributes, and replaces them by the values that result

`Draft.make` makes a recipe from the values of a draft as they are, without 2 and 3.

In Python, rules about a recipe's settings together with options, such as accumulate with
sync_batchnorm, are checked when the run is built.
"""

import dataclasses
from typing import Any

from resnet_fn.config.base_settings import AnySettings, BaseSettings, unchecked
from resnet_fn.config.declaration import Declaration, check_names
from resnet_fn.config.draft import draft_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(BaseSettings):
    """Settings that are checked, and that do not change.

    The user chose a setting by a flag, a file's line or a keyword (`chosen`). Given is what a call
    changes, by the table below. Given settings stay, or are errors if they have no effect. Those
    that are off already (`nesterov=False` with Adam) have nothing to lose. Rules drop others that
    have no effect, and --multi-label replaces what does not fit it. Lion has its own default of
    beta2.

        made by                       given                          chosen
        Recipe(some=...)              the keywords                   the keywords
        Recipe(**all_settings)        those that are not defaults    none
        dataclasses.replace(recipe)   those that are not defaults    none: it passes all settings
        changed(recipe, seed=2)       seed                           seed, and those of `recipe` that
                                                                     no rule has set
        Draft.make                    (is not checked)               those of the draft that no rule
                                                                     has set
        copy, pickle                  (is not checked)               none
    """

    def __init_subclass__(cls) -> None:
        """Collect the declarations in `cls.declarations`, and put each default in the place of its
        declaration, where `@dataclass`, which runs next, looks for it.

        The class's docstring gets a line for each setting.
        """
        cls.declarations = {**getattr(cls, "declarations", {})}  # those of a base class
        for name, declared in [*vars(cls).items()]:
            if isinstance(declared, Declaration):
                declared.name = name
                setattr(cls, name, declared.default)
                cls.declarations[name] = declared
        lines = ""
        for name, declared in cls.declarations.items():
            lines += f"        {name}: {declared.explain(declared.default)}\n"
        about = (cls.__doc__ or "").rstrip()
        cls.__doc__ = f"{about}\n\n    Attributes:\n{lines}"

    def __post_init__(self) -> None:
        """Check the settings as flags over the defaults, and take the values that result. `chosen`
        stays as `__new__` made it.
        """
        defaults = draft_of(unchecked(type(self), {}))
        checked = defaults.complete(**chosen_or_not_default(self)).make(type(self))
        vars(self).update(vars(checked))  # `vars`, because the class is frozen


def chosen_or_not_default(config: Settings) -> dict[str, Any]:
    """Return the settings that the user chose or that differ from their defaults."""
    return {
        name: value
        for name, value in vars(config).items()
        if name in config.chosen or value != config.declarations[name].default
    }


def changed(config: AnySettings, **given: Any) -> AnySettings:
    """Return a copy of a recipe or options with the values `given`.

    An older value that has no effect beside these is dropped or replaced, also a chosen one, and
    stays so if `changed` is called again. An optimizer's own defaults take the place of other
    defaults, but of no value that was chosen. `Draft.resolve` has the rules; its notes are left out
    here. Raises ValueError if one of `given` is wrong or has no effect, or if an older value
    contradicts it, as a warm-up of 10 epochs does to `epochs=5`.
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
