"""A file of settings, name = value: TOML where Python has it (3.11), JSON everywhere; every fault with its line."""

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from resnet_fn.config.hints import near_path

ENDINGS = (".toml", ".json")


class Entry(NamedTuple):
    """A setting in a file: its value, and where it stands, as "mine.toml line 3"."""

    value: Any
    place: str


def read_settings(path: Path) -> dict[str, Entry]:
    """Read a file that ends in .toml or .json; a ValueError if it cannot be read or is not valid."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n")
    except FileNotFoundError:
        hint = near_path(path, f"give a recipe's name, or a file that ends in {' or '.join(ENDINGS)}")
        raise ValueError(f"{path}: does not exist; {hint}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); give a file") from None
    try:
        settings = _parse_json(path, text) if path.suffix == ".json" else _parse_toml(path, text)
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply; write one name and value for each setting") from None
    entries = {word: Entry(value, _place_of(path, text, word)) for word, value in settings.items()}
    for word, (value, place) in entries.items():
        if isinstance(value, dict):
            raise ValueError(f"{place}: [{word}]: there are no sections; write name = value, one a line")
    return entries


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:
        other = path.with_suffix(".json")
        raise ValueError(f"{path}: TOML needs Python 3.11; write the same as JSON: {other}") from None
    try:
        return tomllib.loads(text + "\n")
    except tomllib.TOMLDecodeError as error:
        match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        wrong = _not_valid(path, text, "TOML", *match.groups()) if match else f"{path}: is not TOML ({error})"
        fix = "text stands in quotes, yes and no are true and false, several numbers are [1, 2]"
        raise ValueError(f"{wrong}; {fix}") from None


def _parse_json(path: Path, text: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{_place_of(path, text, name)}: {name}: is given twice; keep one")
        return dict(pairs)

    try:
        settings = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        fault = _not_valid(path, text, "JSON", error.msg, str(error.lineno), str(error.colno))
        raise ValueError(f'{fault}; write {{"name": value, …}}') from None
    if not isinstance(settings, dict):
        raise ValueError(f'{path}: is not settings; write {{"name": value, …}}')
    return settings


def _not_valid(path: Path, text: str, kind: str, fault: str, line: str, column: str) -> str:
    return f"{path} line {line}: {text.splitlines()[int(line) - 1].strip()!r} is not {kind} ({fault}, column {column})"


def _place_of(path: Path, text: str, word: str) -> str:
    """Where a name stands: "mine.toml line 3"."""
    key = re.escape(word)
    pattern = rf'"{key}"\s*:' if path.suffix == ".json" else rf"^\s*(?:[\"']?{key}[\"']?\s*[=.]|\[+\s*{key}\b)"
    match = re.search(pattern, text, re.M)
    start = match.start() + len(match[0]) - len(match[0].lstrip()) if match else 0
    return f"{path} line {text.count(chr(10), 0, start) + 1}"


def settings_text(groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Settings by group, JSON types, as a file for `read_settings`: TOML, or JSON if Python has no TOML."""
    if best_ending() == ".json":
        return json.dumps({name: value for group in groups.values() for name, value in group.items()}, indent=1) + "\n"
    # JSON's texts, numbers and lists are TOML's but for DEL, which must be escaped.
    parts = []
    for title, group in groups.items():
        lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in group.items())
        parts.append(f"# {title}\n" + "".join(lines))
    return "\n".join(parts).replace("\x7f", "\\u007f")


def best_ending() -> str:
    """ ".toml", or ".json" where Python has no TOML."""
    return ".toml" if importlib.util.find_spec("tomllib") else ".json"
