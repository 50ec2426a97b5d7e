"""A recipe as a file: the settings that flags would change, with their names and checks, a line each.

extends = "imagenet_resnet50_v1"    a recipe's name, or another file; without it the settings' own defaults
epochs = 30
lr = 0.05
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resnet_fn.config.fields import aliases, check_value, combine, faults, off_value, to_dict
from resnet_fn.config.gone import GONE, translated
from resnet_fn.config.hints import closest
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.config.settings_file import ENDINGS, read_settings, settings_text

_FIELDS = {field.name: (config, field) for config in (Recipe, RunOptions) for field in dataclasses.fields(config)}
_NAMES = {name: name for name in _FIELDS} | aliases(Recipe) | aliases(RunOptions)
# Options that a run leaves out of its own recipe file.
_OWN_PLACE = ("out_dir", "resume", "allow_other_data", "progress")


@dataclasses.dataclass(frozen=True)
class RecipeFile:
    """A recipe and the options of its file; unchecked as a whole, see `combined`.

    Attributes:
        recipe: the settings of the file over those of what it extends.
        options: the `RunOptions` that it gives.
        places: of each setting that a file gives: "mine.toml line 3".
        typed: the settings that the file itself gives another value than their default, not what it extends.
        notes: what is left out of what it extends, and what it gives that has gone, a line each.
    """

    recipe: Recipe
    options: RunOptions = RunOptions()
    places: dict[str, str] = dataclasses.field(default_factory=dict)
    typed: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @classmethod
    def of_run(cls, settings: Mapping[str, Any]) -> "RecipeFile":
        """The settings of a run's config.json with which it resumes: all but where it is kept.

        Nobody types them again: options that have no effect by today's rules are left out, with a line.
        """
        options = {name: value for name, value in settings["options"].items() if name not in _OWN_PLACE}
        recipe, now = recipe_from_dict(settings["recipe"]), translated(RunOptions, options)
        of_run = RunOptions.__new__(RunOptions, **now)
        vars(of_run).update({**vars(RunOptions()), **now})
        of_run, lines = combine(of_run, {}, recipe=recipe)
        return cls(recipe, of_run, notes=tuple(lines))

    def combined(self, given: Mapping[str, Any]) -> tuple["RecipeFile", list[str]]:
        """This with the flags that were given, and all that is wrong then, with the line of a file.

        A flag may give what the file lacks. A setting of the file that loses its effect by the flags is left out.
        """
        alone = [*faults(self.recipe, self.typed), *faults(self.options, self.typed, self.recipe)]
        typed = frozenset({*given, *(text.partition(":")[0] for text in alone)})
        of_recipe, of_options = _by_config(given)
        recipe, lines = combine(self.recipe, of_recipe, typed)
        options, more = combine(self.options, of_options, typed, recipe)
        places = {name: place for name, place in self.places.items() if name not in given}
        marks = {name: f"{place}: " for name, place in places.items()}
        wrong = (*faults(recipe, typed), *faults(options, typed, recipe))
        file = RecipeFile(recipe, options, places, typed, (*self.notes, *lines, *more))
        return file, [marks.get(text.partition(":")[0], "") + text for text in wrong]

    def complete(self, **given: Any) -> "RecipeFile":
        """This with other settings, checked as a whole; a ValueError of all that is wrong with it."""
        file, wrong = self.combined(given)
        if wrong:
            raise ValueError("; ".join(wrong))
        return file

    def checked(self) -> Recipe:
        """The recipe, checked as a whole; errors as `complete`."""
        return self.complete().recipe


def read_recipe_file(path: Path, named: Mapping[str, Recipe], above: tuple[Path, ...] = ()) -> RecipeFile:
    """Read a recipe file and what it extends.

    Args:
        path: ends in .toml or .json.
        named: the recipes that it may extend by name.
        above: the files that extend this one.

    Raises:
        ValueError: it cannot be read; a name that is no setting, or a value that a setting cannot have, with its line.
    """
    entries = read_settings(path)
    base = RecipeFile(Recipe())
    if "extends" in entries:
        word, place = entries.pop("extends")
        try:
            base = _extended(path, word, named, (*above, path.resolve()))
        except ValueError as error:
            raise ValueError(f"{place}: extends: {error}") from None
    values: dict[str, Any] = {"name": path.stem}
    typed: dict[str, tuple[str, str]] = {}
    notes = list(base.notes)
    for word, (value, place) in entries.items():
        name = _NAMES.get(word.replace("-", "_"))
        gone = GONE.get(word.replace("-", "_") if name is None else name)
        if gone and (name is None or value in tuple(gone.values)):
            if value not in (gone.same or ()):
                notes.append(f"{place}: {word} {value!r} has gone: {gone.now}")
            if name is None:
                continue
            value = translated(_FIELDS[name][0], {name: value})[name]
        if name is None:
            raise ValueError(f"{place}: unknown setting {word!r}; {closest(word.replace('-', '_'), _NAMES)}")
        if name in typed:
            other, line = typed[name][0], typed[name][1].rpartition(" ")[2]
            raise ValueError(f"{place}: {word}: is given on line {line} already, as {other}; keep one")
        config, field = _FIELDS[name]
        try:
            numbers = isinstance(value, list) and all(type(part) in (int, float) for part in value)
            if numbers and type(field.default) is tuple:
                value = tuple(map(float, value))
            check_value(config, name, value)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        values[name], typed[name] = value, (word, place)
    places = {name: place for name, (_, place) in typed.items()}
    of_recipe, of_options = _by_config(values)
    recipe, lines = combine(base.recipe, of_recipe)
    options, more = combine(base.options, of_options)
    # A run's own file gives nearly all settings: what it gives as its default needs nothing.
    given = frozenset(name for name in typed if values[name] != off_value(_FIELDS[name][1]))
    return RecipeFile(recipe, options, {**base.places, **places}, given, (*notes, *lines, *more))


def _extended(path: Path, word: Any, named: Mapping[str, Recipe], above: tuple[Path, ...]) -> RecipeFile:
    if not isinstance(word, str):
        raise ValueError(f"{word!r} is not a text")
    if not word.endswith(ENDINGS):
        if word not in named:
            raise ValueError(f"{word!r} is unknown; {closest(word, named)}")
        return RecipeFile(named[word])
    other = path.parent / word
    if other.resolve() in above:
        raise ValueError(f"{word} extends itself; name another recipe")
    return read_recipe_file(other, named, above).complete()  # what is extended must be whole


def _by_config(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of the recipe, and those of the options."""
    of_recipe = {name: value for name, value in values.items() if _FIELDS[name][0] is Recipe}
    return of_recipe, {name: value for name, value in values.items() if name not in of_recipe}


def recipe_text(recipe: Recipe, options: RunOptions) -> str:
    """A run as a recipe file that reproduces it, also in a later version: see `settings_text`.

    All settings of the recipe that change something; of the options those that are not their defaults, without where
    the run is kept.
    """
    idle = {text.partition(":")[0] for text in faults(recipe, vars(recipe))}  # a file that gave them would be rejected
    values = {name: value for name, value in to_dict(recipe).items() if name not in idle}
    usual = to_dict(RunOptions())
    values |= {k: v for k, v in to_dict(options).items() if v != usual[k] and k not in _OWN_PLACE}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        groups.setdefault(_FIELDS[name][1].metadata["group"], {})[name] = value
    return settings_text(groups)
