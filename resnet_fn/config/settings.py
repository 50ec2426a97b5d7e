"""`Settings` is the base class of `Recipe` and `RunOptions`, whose attributes are the settings.

The constructor checks keywords as `train` checks flags: it keeps them, in the types of the
settings, or raises an error. A setting that has no effect beside them, or does not fit them, may
get another value than its default:

    Recipe(epochs=-1)              # ValueError: epochs: -1 is too small; give 1 or more
    recipe = Recipe(optimizer="adamw", seed=1)
    recipe.nesterov                # False: it is for SGD
    recipe.chosen                  # {"optimizer": Source.FLAG, "seed": Source.FLAG}
    changed(recipe, seed=2)        # a copy, which is checked, too

Settings are merged in three steps, for which see `draft.py`:

    draft = draft_of(recipe)               # the settings, with the source of each
    draft = draft.complete({"seed": 2})    # flags over them, all checks, all rules
    recipe = Recipe.from_draft(draft)      # the settings, and which of them were chosen

Three ways to make a recipe or options keep account of what was chosen; `copy` and `pickle` copy it:

    made by                              counts as given     checks, rules    `chosen`
    Recipe(seed=1)                       seed                all              seed
    changed(recipe, seed=1)              seed                all              recipe's, and seed
    Recipe.from_draft(draft)                                 the draft's      the draft's

Three do not; then `chosen` is None (unless `unchecked` gets it), which `changed` keeps, too:

    dataclasses.replace(recipe, seed=1)  all not default     all
    Recipe.unchecked({"seed": 1})                            none
    stored.recipe_from_dict(...)                             not new runs'

In Python, rules about a recipe's settings together with options, such as accumulate with
sync_batchnorm, are checked when the run is built.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from resnet_fn.config.declaration import Declaration
from resnet_fn.config.draft import Draft, Resolved, Source, SourcedValue
from resnet_fn.config.setting_names import check_names


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings:
    """Settings that are checked, and that do not change. A subclass declares them, each with its
    type, and becomes a frozen dataclass:

        class RunOptions(Settings):
            keep_last: int = setting("logs and checkpoints", 3, "checkpoints to keep")

    `chosen` has the settings that the user chose, by a flag, a line of the user's recipe file or a
    keyword, and where each comes from, except settings that a rule has changed since; None: not
    known (`recipes.chosen_or_different` has what counts then). `==` ignores it.
    """

    # A slot, so that `vars` has the settings and nothing else.
    __slots__ = ("chosen",)
    chosen: dict[str, Source] | None
    declarations: ClassVar[dict[str, Declaration]] = {}  # of the settings, by name
    __signature__: ClassVar[inspect.Signature]  # what `help` and editors show
    # Dataclasses have it; type checkers need the line to accept `dataclasses.replace`.
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        """Collect the declarations in `cls.declarations`, and make a dataclass with their defaults.

        The class's docstring gets a line for each setting.
        """
        cls.declarations = {**cls.declarations}  # a copy, so that the base class keeps its own
        for name, value in [*vars(cls).items()]:
            if isinstance(value, Declaration):
                setattr(cls, name, value.default)
                cls.declarations[name] = value
            elif name in cls.declarations:
                raise TypeError(
                    f"{cls.__name__}.{name}: a subclass cannot change a setting's default; write a "
                    f"function that returns {cls.__mro__[1].__name__}({name}={value!r})"
                )
        cls.__doc__ = _with_attributes(cls)
        # `init=False`: a dataclass's own `__init__` does not know which settings were passed.
        dataclasses.dataclass(frozen=True, kw_only=True, init=False)(cls)
        cls.__signature__ = _signature_of(cls)

    def __init__(self, **keywords: Any) -> None:
        """Check the keywords as flags over the defaults, and take the values that result."""
        check_names(keywords, self.declarations, caller=type(self).__name__.lower())
        given = keywords
        if is_copy := _are_of_replace(self, keywords):
            given = _not_default(self, keywords)
        draft = _defaults(self).complete(given)
        self._fill(draft.plain_values(), None if is_copy else draft.sources_of_chosen())

    def _fill(self, values: Mapping[str, Any], chosen: Mapping[str, Source] | None) -> None:
        """Set each setting, and `chosen`. Missing settings get their defaults, and names that are no
        settings of this class are ignored.
        """
        for name, declared in self.declarations.items():
            vars(self)[name] = values.get(name, declared.default)  # `vars`: the class is frozen
        sources = None
        if chosen is not None:
            sources = {name: chosen[name] for name in self.declarations if name in chosen}
        object.__setattr__(self, "chosen", sources)

    @classmethod
    def from_draft(cls, draft: Resolved) -> Self:
        """Make a recipe or options of a draft without faults."""
        return cls.unchecked(draft.plain_values(), draft.sources_of_chosen())

    @classmethod
    def unchecked(
        cls, values: Mapping[str, Any], chosen: Mapping[str, Source] | None = None
    ) -> Self:
        """Make a recipe or options without checks.

        Missing settings get their defaults, and unknown names are ignored.
        """
        new = cls.__new__(cls)
        new._fill(values, chosen)
        return new

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, Source] | None]:
        """Return what `copy` and `pickle` take: the settings, and `chosen`."""
        return vars(self), self.chosen

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, Source] | None]) -> None:
        """Take what `__getstate__` has returned."""
        self._fill(*state)


def _with_attributes(settings_class: type[Settings]) -> str:
    """Return the docstring of a class with a line for each setting."""
    lines = ""
    for name, declared in settings_class.declarations.items():
        lines += f"        {name}: {declared.explain(declared.default)}\n"
    about = (settings_class.__doc__ or "").rstrip()
    return f"{about}\n\n    Attributes:\n{lines}"


def _signature_of(settings_class: type[Settings]) -> inspect.Signature:
    """Return the signature with a keyword for each setting: `__init__` itself has **keywords."""
    return inspect.Signature(
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=field.type,
            )
            for field in dataclasses.fields(settings_class)
        ]
    )


def _defaults(config: Settings) -> Draft:
    return Draft(
        {
            name: SourcedValue(declared, declared.default)
            for name, declared in config.declarations.items()
        }
    )


def _are_of_replace(config: Settings, keywords: Mapping[str, Any]) -> bool:
    """Return whether keywords are those that `dataclasses.replace` passes: all settings, whichever
    its caller gave.

    Then only those that differ from their defaults are checked as flags. A default which the caller
    asks for looks like one that nobody asked for, and a rule may replace it: with Adam,
    `replace(recipe, nesterov=True)` is no error, and nesterov stays False; with several labels,
    `replace(recipe, loss="cross_entropy")` keeps bce. `changed` raises errors there.
    """
    return keywords.keys() == config.declarations.keys()


def _not_default(config: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that differ from their settings' defaults."""
    return {
        name: value
        for name, value in values.items()
        if not config.declarations[name].is_default(value)
    }


AnySettings = TypeVar("AnySettings", bound=Settings)


def draft_of(*configs: Settings) -> Draft:
    """Make a draft of a recipe, options or both. All values have the weakest source, RECIPE, so
    that none counts as chosen by the user.
    """
    return Draft(
        {
            name: SourcedValue(declared, getattr(config, name))
            for config in configs
            for name, declared in config.declarations.items()
        }
    )


def chosen_or_not_default(config: Settings) -> dict[str, Any]:
    """Return the settings that the user chose or that differ from their defaults."""
    chosen = {name: getattr(config, name) for name in config.chosen or {}}
    return _not_default(config, vars(config)) | chosen


def changed(config: AnySettings, **given: Any) -> AnySettings:
    """Return a copy of a recipe or options with the values `given`.

    An older value that has no effect beside these is dropped or replaced without a line, also a
    chosen one; the other chosen ones stay chosen. A dropped value does not come back: SGD's
    nesterov is False after a change to Adam and back. Raises ValueError if one of `given` is wrong
    or has no effect, or if an older value contradicts it, as a warm-up of 10 epochs does to
    `epochs=5`.
    """
    check_names(given, config.declarations, caller=type(config).__name__.lower())
    draft = draft_of(config).complete(given)
    chosen = None
    if config.chosen is not None:
        # `draft_of` takes all values for a recipe's, so that those of `given` are stronger. What
        # was chosen is put back here, except what a rule has set.
        still_chosen = {
            name: source for name, source in config.chosen.items() if not draft.values[name].by_rule
        }
        chosen = still_chosen | draft.sources_of_chosen()
    return type(config).unchecked(draft.plain_values(), chosen)
