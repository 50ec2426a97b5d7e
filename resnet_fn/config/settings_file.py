"""A file of settings, name = value, in TOML; every fault with its line."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from resnet_fn.config.hints import near_path

ENDING = ".toml"


class Entry(NamedTuple):
    """A setting in a file: its value, and where it stands, as "mine.toml line 3"."""

    value: Any
    place: str


def read_settings(path: Path) -> dict[str, Entry]:
    """Read a TOML file; a ValueError if it cannot be read or is not valid."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n")
    except FileNotFoundError:
        hint = near_path(path, f"give a recipe's name, or a file that ends in {ENDING}")
        raise ValueError(f"{path}: does not exist; {hint}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); give a file") from None
    try:
        settings = tomllib.loads(text + "\n")
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply; write one name and value for each setting") from None
    except tomllib.TOMLDecodeError as error:
        wrong = f"{path}: is not TOML ({error})"
        if match := re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error)):
            why, line, column = match.groups()
            start = text.splitlines()[int(line) - 1].strip()
            wrong = f"{path} line {line}: {start!r} is not TOML ({why}, column {column})"
        fix = "text stands in quotes, yes and no are true and false, several numbers are [1, 2]"
        raise ValueError(f"{wrong}; {fix}") from None
    entries = {word: Entry(value, _place_of(path, text, word)) for word, value in settings.items()}
    for word, (value, place) in entries.items():
        if isinstance(value, dict):
            raise ValueError(f"{place}: [{word}]: there are no sections; write name = value, one a line")
    return entries


def _place_of(path: Path, text: str, word: str) -> str:
    """Where a name stands: "mine.toml line 3"."""
    key = re.escape(word)
    match = re.search(rf"^\s*(?:[\"']?{key}[\"']?\s*[=.]|\[+\s*{key}\b)", text, re.M)
    start = match.start() + len(match[0]) - len(match[0].lstrip()) if match else 0
    return f"{path} line {text.count(chr(10), 0, start) + 1}"


def settings_text(groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Settings by group, JSON types, as a file for `read_settings`."""
    # JSON's texts, numbers and lists are TOML's, except DEL, which must be escaped.
    parts = []
    for title, group in groups.items():
        lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in group.items())
        parts.append(f"# {title}\n" + "".join(lines))
    return "\n".join(parts).replace("\x7f", "\\u007f")
