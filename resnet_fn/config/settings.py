"""`Settings` is the base class of `Recipe` and `RunOptions`, whose attributes are the settings.

Keywords are checked as flags are: the constructor keeps them, in the types of the settings, or
raises an error. The other settings have their defaults; a rule gives another value to a default
that has no effect beside the keywords.

    Recipe(epochs=-1)              # ValueError: epochs: -1 is too small; give 1 or more
    recipe = Recipe(optimizer="adamw", seed=1)
    recipe.nesterov                # False: it is for SGD
    recipe.chosen                  # {"optimizer": Source.FLAG, "seed": Source.FLAG}
    recipe.changed(seed=2)         # a copy, which is checked, too

Flags and recipe files are merged in three steps, for which see `draft.py`:

    draft = draft_of(recipe, options)         # their values, which give way to any flag
    resolved = draft.complete({"seed": 2})    # flags over them, all checks, all rules
    recipe = Recipe.from_draft(resolved)      # the settings, of which the seed is chosen

In Python, rules about a recipe's settings together with options, such as accumulate with
sync_batchnorm, are checked when the run is built.
"""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Self, TypeVar, dataclass_transform, get_type_hints

from resnet_fn.config.declaration import Declaration
from resnet_fn.config.draft import Draft, Resolved, Source, SourcedValue
from resnet_fn.config.setting_names import check_names
from resnet_fn.config.values import NOTHING


@dataclass_transform(kw_only_default=True, frozen_default=True)  # for type checkers and editors
class Settings:
    """Settings that are checked, and that do not change. A subclass declares them, each with its
    type:

        class RunOptions(Settings):
            keep_last: int = setting("logs and checkpoints", 3, "checkpoints to keep")

    `vars` has the values by name. `chosen` has where each setting comes from that the user chose,
    by a flag, a line of the recipe file or a keyword, and that has an effect. A setting that a rule
    has changed is not in it. `==` ignores it.
    """

    __slots__ = ("chosen",)  # so that `vars` has the settings and nothing else
    chosen: Mapping[str, Source]
    title: ClassVar[str] = "settings"  # the word for the class in errors
    declarations: ClassVar[dict[str, Declaration]] = {}  # of the settings, by name
    _classes: ClassVar[dict[str, str]] = {}  # the name of each setting's class, for hints
    __signature__: ClassVar[inspect.Signature]  # what `help` and editors show

    def __init_subclass__(cls) -> None:
        """Collect the declarations of a subclass, and list them in its docstring and signature."""
        cls.declarations = {**cls.declarations}  # a copy, so that the base class keeps its own
        for name, value in [*vars(cls).items()]:
            if isinstance(value, Declaration):
                setattr(cls, name, value.default)
                cls.declarations[name] = value
                cls._classes.setdefault(name, cls.__name__)
            elif name in cls.declarations:
                raise TypeError(
                    f"{cls.__name__}.{name}: a subclass cannot change a setting's default; write a "
                    f"function that returns {cls.__mro__[1].__name__}({name}={value!r})"
                )
        cls.__doc__ = _explained(cls)
        cls.__signature__ = _signature_of(cls)

    def __init__(self, **keywords: Any) -> None:
        """Take the defaults, with the keywords over them, after all checks."""
        resolved = self._completed(type(self), keywords)
        self._fill(resolved.plain_values(), resolved.sources_of_chosen())

    @classmethod
    def from_draft(cls, draft: Resolved) -> Self:
        """Make a recipe or options of a draft without faults."""
        assert not draft.faults
        return cls.unchecked(draft.plain_values(), draft.sources_of_chosen())

    @classmethod
    def unchecked(cls, values: Mapping[str, Any], chosen: Mapping[str, Source] = NOTHING) -> Self:
        """Make a recipe or options without checks.

        Missing settings get their defaults, and unknown names are ignored.
        """
        new = cls.__new__(cls)
        new._fill(values, chosen)
        return new

    def changed(self, **given: Any) -> Self:
        """Return a copy of the recipe or options with the values `given`, after all checks.

        An older value that has no effect beside these is dropped or replaced without a line, also a
        chosen one; the other chosen ones stay chosen. A dropped value does not come back: SGD's
        nesterov is False after a change to Adam and back. Raises ValueError if one of `given` is
        wrong or has no effect, or if an older value contradicts it, as a warm-up of 10 epochs does
        to `epochs=5`.
        """
        resolved = self._completed(self, given)
        in_use = resolved.in_use()
        still_chosen = {name: self.chosen[name] for name in self.chosen if name in in_use}
        chosen = still_chosen | resolved.sources_of_chosen()
        return self.unchecked(resolved.plain_values(), chosen)

    def adapted(self, **values: Any) -> Self:
        """Return a changed copy in which `values` do not count as chosen, because they are not from
        the user but, for example, from weights.
        """
        new = self.changed(**values)
        chosen = {name: source for name, source in new.chosen.items() if name not in values}
        return self.unchecked(vars(new), chosen)

    def chosen_values(self) -> dict[str, Any]:
        """Return the settings that the user chose."""
        return {name: getattr(self, name) for name in self.chosen}

    @classmethod
    def _completed(cls, base: "Settings | type[Settings]", given: Mapping[str, Any]) -> Resolved:
        """Return `given` over the values of `base`, after all checks. `base` is a recipe or options,
        or the class, which has the defaults.
        """
        check_names(given, cls.declarations, caller=cls.title, classes=cls._classes)
        return draft_of(base).complete(given)

    def _fill(self, values: Mapping[str, Any], chosen: Mapping[str, Source]) -> None:
        """Set each setting, and `chosen`. Missing settings get their defaults, and names that are no
        settings of this class are ignored.
        """
        for name, declared in self.declarations.items():
            vars(self)[name] = values.get(name, declared.default)  # `vars`: they cannot be assigned
        sources = {name: chosen[name] for name in self.declarations if name in chosen}
        object.__setattr__(self, "chosen", MappingProxyType(sources))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        """Raise an AttributeError, because settings do not change."""
        kind = type(self).__name__
        raise AttributeError(
            f"{kind}.{name}: cannot be assigned; {kind}.changed(…) returns a copy with other "
            "settings"
        )

    def __delattr__(self, name: str) -> NoReturn:
        """Raise an AttributeError, because settings do not change."""
        raise AttributeError(f"{type(self).__name__}.{name}: cannot be deleted")

    def __eq__(self, other: object) -> bool:
        """Return whether the other has the same class and settings."""
        if type(self) is not type(other):
            return NotImplemented
        return vars(self) == vars(other)

    def __hash__(self) -> int:
        """Return a hash of the settings."""
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        """Return the class and the settings that are no defaults, as a call is written."""
        settings = ", ".join(
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if value != self.declarations[name].default
        )
        return f"{type(self).__name__}({settings})"

    def __getstate__(self) -> tuple[dict[str, Any], Mapping[str, Source]]:
        """Return what `copy` and `pickle` take: the settings, and `chosen`."""
        return vars(self), dict(self.chosen)

    def __setstate__(self, state: tuple[dict[str, Any], Mapping[str, Source]]) -> None:
        """Take what `__getstate__` has returned."""
        self._fill(*state)


def _explained(settings_class: type[Settings]) -> str:
    """Return the docstring of a class with a line for each setting."""
    lines = ""
    for name, declared in settings_class.declarations.items():
        lines += f"        {name}: {declared.explain(declared.default)}\n"
    about = (settings_class.__doc__ or "").rstrip()
    return f"{about}\n\n    Attributes:\n{lines}"


def _signature_of(settings_class: type[Settings]) -> inspect.Signature:
    """Return the signature with a keyword for each setting: `__init__` itself has **keywords."""
    types = get_type_hints(settings_class)
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=declared.default,
                annotation=types.get(name, type(declared.default)),
            )
            for name, declared in settings_class.declarations.items()
        ]
    )


AnySettings = TypeVar("AnySettings", bound=Settings)


def draft_of(*configs: Settings | type[Settings]) -> Draft:
    """Make a draft of a recipe, options or both, or of their classes, which have the defaults. All
    values have the weakest source, RECIPE, so that none counts as chosen by the user.
    """
    return Draft(
        {
            name: SourcedValue(declared, getattr(config, name))
            for config in configs
            for name, declared in config.declarations.items()
        }
    )
