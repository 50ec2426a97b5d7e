"""This module reads and writes recipe files, in TOML. The line `extends` names a recipe or another
recipe file.

    extends = "imagenet_resnet50_v1"
    epochs = 30
    lr = 0.05
"""

import json
from collections.abc import Mapping
from pathlib import Path

from resnet_fn.config.draft import Draft, Source, SourcedValue
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.options import OF_ONE_START, RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.rules import without_effect
from resnet_fn.config.setting_names import all_names, hint_for_setting, setting_name
from resnet_fn.config.settings import draft_of
from resnet_fn.config.toml_file import ENDING, Entry, read_toml
from resnet_fn.config.values import expand_home

FORMAT = 1  # the file's format, in the line `format`
_DECLARED = Recipe.declarations | RunOptions.declarations
_NAMES = all_names(_DECLARED)


def read_recipe_file(
    path: Path, named: Mapping[str, Recipe], extended_by: tuple[Path, ...] = ()
) -> Draft:
    """Read a recipe file and the recipe or file that it extends.

    `extended_by` has the files that extend `path`, from which a circle is recognised.
    """
    entries = read_toml(path)
    _check_format(entries.pop("format", None))
    base = draft_of(Recipe, RunOptions)
    if extends := entries.pop("extends", None):
        try:
            base = _read_extended(path, str(extends.value), named, (*extended_by, path.resolve()))
        except ValueError as error:
            raise ValueError(f"{extends.line}: extends: {error}") from None
    values = {**base.values, "name": SourcedValue(_DECLARED["name"], path.stem)}
    written_as: dict[str, str] = {}  # setting → its name in this file, for example an alias
    faults = []
    for written, (value, line) in entries.items():
        word = setting_name(written)
        name = _NAMES.get(word)
        if name is None:
            hint = hint_for_setting(word, _NAMES)
            faults.append(f"{line}: unknown setting {written!r}; {hint}")
        elif name in written_as:
            faults.append(
                f"{line}: {written}: {values[name].line} has this setting as {written_as[name]}; "
                "keep one line"
            )
        else:
            written_as[name] = written
            # converted now, because --help shows these values
            values[name] = SourcedValue(_DECLARED[name], value, Source.FILE, line).converted()
    if faults:
        raise ValueError("; ".join(faults))
    return Draft(values)


def _check_format(entry: Entry | None) -> None:
    if entry and (entry.value != FORMAT or type(entry.value) is not int):
        raise ValueError(
            f"{entry.line}: format: {entry.value!r} is not supported; this version reads format "
            f"{FORMAT}"
        )


def _read_extended(
    path: Path, extends: str, named: Mapping[str, Recipe], extended_by: tuple[Path, ...]
) -> Draft:
    """Return the draft of the recipe or file `extends`, which the file `path` names."""
    if not extends.endswith(ENDING):
        if extends not in named:
            raise ValueError(f"{extends!r} is unknown; {suggest_name(extends, named)}")
        return draft_of(named[extends], RunOptions())
    file = path.parent / expand_home(extends)
    if file.resolve() in extended_by:
        raise ValueError(f"{extends} extends itself; name another recipe")
    draft = read_recipe_file(file, named, extended_by)
    # Checked by itself, so that its errors have its lines. The result is not used: this file may
    # change what the rules read, and only later is it known whether the run is new.
    draft.complete(resumes=True)
    extended = {}
    for name, sourced in draft.values.items():
        source = min(sourced.source, Source.EXTENDED)
        extended[name] = sourced._replace(source=source)
    return Draft(extended)


def recipe_text(recipe: Recipe, options: RunOptions) -> str:
    """Return a recipe file's text: the recipe's settings, and the options that are not defaults.

    It leaves out options of one start, and settings whose values have no effect, which would be
    errors in a file.
    """
    settings = vars(recipe) | {
        name: value
        for name, value in vars(options).items()
        if name not in OF_ONE_START and value != RunOptions.declarations[name].default
    }
    useless = without_effect(vars(recipe) | vars(options))
    groups: dict[str, str] = {}  # title → lines
    for name, value in settings.items():
        in_file = SourcedValue(_DECLARED[name], value, Source.FILE)
        if name in useless and in_file.asks_for_something:
            continue
        # JSON's values are valid TOML, except DEL, which must be escaped
        line = f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
        group = in_file.declared.group
        groups[group] = groups.get(group, "") + line
    parts = (f"\n# {title}\n{lines}" for title, lines in groups.items())
    return f"format = {FORMAT}\n{''.join(parts)}".replace("\x7f", "\\u007f")
