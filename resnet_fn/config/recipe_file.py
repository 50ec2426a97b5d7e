"""A recipe as a file: the settings that flags would change, with their names and checks, a line each.

extends = "imagenet_resnet50_v1"    a recipe's name, or another file; without it the settings' own defaults
epochs = 30
lr = 0.05
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resnet_fn.config.fields import aliases, as_declared, check_names, to_dict
from resnet_fn.config.hints import closest
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.rules import Source, Value, settle
from resnet_fn.config.settings import typed_values, unchecked, values_of
from resnet_fn.config.settings_file import ENDING, read_settings, settings_text

FORMAT = 1  # of a recipe file, its line `format`
_FIELDS = {field.name: field for config in (Recipe, RunOptions) for field in dataclasses.fields(config)}
_NAMES = {name: name for name in _FIELDS} | aliases(Recipe) | aliases(RunOptions)
# Options that a run leaves out of its own recipe file.
_OWN_PLACE = ("out_dir", "resume", "allow_other_data", "progress")


@dataclasses.dataclass(frozen=True)
class Draft:
    """A recipe and options on the way from files and flags: each value has its source, and nothing is checked yet.

    Attributes:
        values: of all settings of `Recipe` and `RunOptions`.
        notes: what was left out so far, a line each.
    """

    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, recipe: Recipe, options: RunOptions | None = None, source: Source = Source.RECIPE) -> "Draft":
        """The settings of both; this source gave what is not at its default."""
        return cls(values_of(recipe, source) | values_of(options or RunOptions(), source))

    @classmethod
    def of_run(cls, settings: Mapping[str, Any]) -> "Draft":
        """The settings of a run's config.json with which it resumes: all but where it is kept."""
        options = {name: value for name, value in settings["options"].items() if name not in _OWN_PLACE}
        check_names(Recipe, settings["recipe"])
        check_names(RunOptions, options)
        return cls.of(unchecked(Recipe, settings["recipe"]), unchecked(RunOptions, options), Source.RUN)

    @property
    def recipe(self) -> Recipe:
        """The values of the recipe."""
        return unchecked(Recipe, {name: value.value for name, value in self.values.items()})

    @property
    def options(self) -> RunOptions:
        """The values of the options."""
        return unchecked(RunOptions, {name: value.value for name, value in self.values.items()})

    def settled(self, given: Mapping[str, Any]) -> tuple["Draft", list[str]]:
        """This with the flags that were given, without what has no effect then; and all that is wrong."""
        flags = {
            name: Value(_FIELDS[name], as_declared(_FIELDS[name], value), Source.FLAG) for name, value in given.items()
        }
        values, left_out, faults = settle({**self.values, **flags})
        return Draft(values, (*self.notes, *left_out)), list(faults.values())

    def complete(self, **given: Any) -> "Draft":
        """This with other settings, checked as a whole; a ValueError of all that is wrong with it."""
        draft, wrong = self.settled(given)
        if wrong:
            raise ValueError("; ".join(wrong))
        return draft


def read_recipe_file(path: Path, named: Mapping[str, Recipe], above: tuple[Path, ...] = ()) -> Draft:
    """Read a recipe file and what it extends.

    Args:
        path: ends in .toml.
        named: the recipes that it may extend by name.
        above: the files that extend this one.

    Raises:
        ValueError: it cannot be read, has another format or a name that is no setting; with its line.
    """
    entries = read_settings(path)
    if "format" in entries:
        number, place = entries.pop("format")
        if number != FORMAT:
            raise ValueError(f"{place}: format: {number!r} is not {FORMAT}, the one that this version reads")
    base = Draft.of(Recipe())
    if "extends" in entries:
        word, place = entries.pop("extends")
        try:
            base = _extended(path, word, named, (*above, path.resolve()))
        except ValueError as error:
            raise ValueError(f"{place}: extends: {error}") from None
    values = {**base.values, "name": Value(_FIELDS["name"], path.stem, Source.FILE)}
    words: dict[str, str] = {}
    for word, (value, place) in entries.items():
        name = _NAMES.get(word.replace("-", "_"))
        if name is None:
            raise ValueError(f"{place}: unknown setting {word!r}; {closest(word.replace('-', '_'), _NAMES)}")
        if name in words:
            line = values[name].place.rpartition(" ")[2]
            raise ValueError(f"{place}: {word}: is given on line {line} already, as {words[name]}; keep one")
        words[name], field = word, _FIELDS[name]
        values[name] = Value(field, as_declared(field, value), Source.FILE, place)
    return Draft(values, base.notes)


def _extended(path: Path, word: Any, named: Mapping[str, Recipe], above: tuple[Path, ...]) -> Draft:
    if not isinstance(word, str):
        raise ValueError(f"{word!r} is not a text")
    if not word.endswith(ENDING):
        if word not in named:
            raise ValueError(f"{word!r} is unknown; {closest(word, named)}")
        return Draft.of(named[word])
    other = path.parent / word
    if other.resolve() in above:
        raise ValueError(f"{word} extends itself; name another recipe")
    draft = read_recipe_file(other, named, above).complete()  # what is extended must be whole
    values = Draft.of(draft.recipe, draft.options).values
    return Draft({name: value._replace(place=draft.values[name].place) for name, value in values.items()}, draft.notes)


def recipe_text(recipe: Recipe, options: RunOptions, resumed_from: str = "") -> str:
    """A run as a recipe file that reproduces it, also in a later version.

    All settings of the recipe that have an effect; of the options those that are not their defaults, without where
    the run is kept. `resumed_from` is the checkpoint of another run that it began with.
    """
    typed = {name: value._replace(source=Source.FILE) for name, value in values_of(recipe, Source.FILE).items()}
    idle = settle(typed).faults  # a file that gave them would be rejected
    values = {name: value for name, value in to_dict(recipe).items() if name not in idle}
    usual = to_dict(RunOptions())
    values |= {name: value for name, value in to_dict(options).items() if value != usual[name]}
    values |= {"resume": resumed_from} if resumed_from else {}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name not in _OWN_PLACE or (name == "resume" and resumed_from):
            groups.setdefault(_FIELDS[name].metadata["group"], {})[name] = value
    return f"format = {FORMAT}\n\n{settings_text(groups)}"


def check_together(recipe: Recipe, options: RunOptions) -> None:
    """Raise a ValueError if options have no effect with a recipe, or are invalid."""
    settle(values_of(recipe, Source.RECIPE) | typed_values(options)).check()
