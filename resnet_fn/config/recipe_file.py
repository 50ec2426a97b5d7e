"""This module reads and writes recipe files, in TOML. The line `extends` names a recipe or another
recipe file.

    extends = "imagenet_resnet50_v1"
    epochs = 30
    lr = 0.05
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from resnet_fn.config.draft import Draft, Source, SourcedValue
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.options import OF_ONE_START, RunOptions
from resnet_fn.config.path_hints import near_path
from resnet_fn.config.reading import read_regular
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.rules import dropped
from resnet_fn.config.setting_names import all_names, hint_for_setting
from resnet_fn.config.settings import draft_of
from resnet_fn.config.values import expand_home, to_dict

ENDING = ".toml"
FORMAT = 1  # the file's format, in the line `format`
_LARGEST = 1 << 20  # bytes of a recipe file
_DECLARED = Recipe.declarations | RunOptions.declarations
_NAMES = all_names(Recipe, RunOptions)


class Entry(NamedTuple):
    """What a recipe file has about one name."""

    value: Any
    line: str  # "mine.toml line 3"


def read_recipe_file(
    path: Path, named: Mapping[str, Recipe], extended_by: tuple[Path, ...] = ()
) -> Draft:
    """Read a recipe file and the recipe or file that it extends.

    `extended_by` has the files that extend `path`, from which a circle is recognised.
    """
    entries = read_toml(path)
    _check_format(entries.pop("format", None))
    base = _base_of(path, entries.pop("extends", None), named, extended_by)
    # The name counts as chosen, so that a file always has a chosen setting: `recipes.chosen`.
    values = {**base.values, "name": SourcedValue(_DECLARED["name"], path.stem, Source.FILE)}
    written_as: dict[str, str] = {}  # setting → its name in this file, for example an alias
    faults = []
    for written, (value, line) in entries.items():
        word = written.replace("-", "_")
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


def _base_of(
    path: Path, extends: Entry | None, named: Mapping[str, Recipe], extended_by: tuple[Path, ...]
) -> Draft:
    """Return the draft that the file `path` changes: of what it extends, or of the defaults."""
    if extends is None:
        return draft_of(Recipe(), RunOptions())
    try:
        return _read_extended(path, str(extends.value), named, (*extended_by, path.resolve()))
    except ValueError as error:
        raise ValueError(f"{extends.line}: extends: {error}") from None


def _read_extended(
    path: Path, extends: str, named: Mapping[str, Recipe], extended_by: tuple[Path, ...]
) -> Draft:
    if not extends.endswith(ENDING):
        if extends not in named:
            raise ValueError(f"{extends!r} is unknown; {suggest_name(extends, named)}")
        return draft_of(named[extends], RunOptions())
    file = path.parent / expand_home(extends)
    if file.resolve() in extended_by:
        raise ValueError(f"{extends} extends itself; name another recipe")
    draft = read_recipe_file(file, named, extended_by)
    # This raises an error unless the extended file is valid by itself. Its values stay as they are
    # written, because this file may change what the rules read. The rules for new runs wait until
    # then, when it is known whether the run is new.
    draft.complete(resumes=True)
    return Draft(
        {name: value._replace(source=Source.RECIPE) for name, value in draft.values.items()}
    )


def read_toml(path: Path) -> dict[str, Entry]:
    """Read a TOML file without sections, and map each name to its entry."""
    try:
        data = read_regular(path, _LARGEST)
        text = data.decode("utf-8-sig", "surrogateescape")
        # with a line break at the end, an error in the last line has a line's number, too
        settings = tomllib.loads(text + "\n")
    except FileNotFoundError:
        nearest = near_path(path, f"give a recipe's name, or a file that ends in {ENDING}")
        raise ValueError(f"{path}: does not exist; {nearest}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); give a file") from None
    except RecursionError:
        raise ValueError(
            f"{path}: is nested too deeply; write one name = value for each setting"
        ) from None
    except ValueError as error:  # also a number of more than 4300 digits
        how_to_write = (
            "put texts in quotes, write true and false, and write several numbers as [1, 2]"
        )
        raise ValueError(f"{path}: is not a TOML file: {error}; {how_to_write}") from None
    entries = {}
    for word, value in settings.items():
        line = f"{path} line {_line_number(word, text)}"
        if isinstance(value, dict):
            raise ValueError(
                f"{line}: {word}: a recipe file has no sections or tables; write name = value for "
                "each setting"
            )
        entries[word] = Entry(value, line)
    return entries


def _line_number(word: str, text: str) -> int:
    """Return the number of the first line in a TOML text that begins with a name, or 1.

    A line inside a text of three quotes can look like the name's line, and then its number is
    returned.
    """
    key = re.escape(word)
    # after spaces the name, quoted or not, and "=" (or "." of a section), or the section [name]
    match = re.search(rf"^[^\S\n]*(?:[\"']?{key}[\"']?\s*[=.]|\[+\s*{key}\b)", text, re.M)
    before = text[: match.start()] if match else ""
    return before.count("\n") + 1


def recipe_text(recipe: Recipe, options: RunOptions) -> str:
    """Return a recipe file's text: the recipe's settings, and the options that are not defaults.

    It leaves out options of one start, and settings without effect, which no file may have.
    """
    usual = to_dict(RunOptions())
    values = to_dict(recipe) | {
        name: value
        for name, value in to_dict(options).items()
        if value != usual[name] and name not in OF_ONE_START
    }
    rejected = dropped(to_dict(recipe) | to_dict(options))
    groups: dict[str, str] = {}  # title → lines
    for name, value in values.items():
        declared = _DECLARED[name]
        # A rule takes nothing from a setting that is off (0, false, empty) when it is dropped.
        is_off = not value and not declared.dropped_to
        if name not in rejected or is_off:
            # JSON's values are valid TOML, except DEL, which must be escaped
            line = f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
            groups[declared.group] = groups.get(declared.group, "") + line
    parts = (f"\n# {title}\n{lines}" for title, lines in groups.items())
    return f"format = {FORMAT}\n{''.join(parts)}".replace("\x7f", "\\u007f")
