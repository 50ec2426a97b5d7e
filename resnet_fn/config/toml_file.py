"""This module reads the TOML of a recipe file, lines `name = value`, with the number of each line."""

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from resnet_fn.config.path_hints import near_path
from resnet_fn.config.reading import read_regular

ENDING = ".toml"
_LARGEST = 1 << 20  # bytes of a file


class Entry(NamedTuple):
    """What a file has about one name."""

    value: Any
    line: str  # "mine.toml line 3"


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
