"""This module reads tables of two columns, such as lists of images, as other programs write them.

A table is a text file of lines "FIRST SECOND", or a CSV file whose header names the columns. Excel
and PowerShell write UTF-16, a mark at the beginning (BOM), or a first line "sep=;" or "#TYPE".
"""

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from resnet_fn.config.path_hints import near_path
from resnet_fn.config.reading import open_user_file
from resnet_fn.config.wording import first_few
from resnet_fn.data.cells import from_cell

_MARKS = {  # UTF-32's mark begins with UTF-16's
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_DELIMITERS = ",;\t"
_SEPARATOR = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)  # names the delimiter for Excel
_LONGEST = 1 << 20  # characters of a line
csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))  # Python's own limit is lower
_SHOWN = 60  # characters of a cell in a message
_TYPE = "#TYPE "  # begins the first line of PowerShell's Export-Csv


# returns true for a line of text that has no second cell; None: no line may be so
IsWhole = Callable[[str], bool] | None


class Column(NamedTuple):
    """Describes a column."""

    name: str  # for messages
    headers: tuple[str, ...]  # names in the header of a CSV file, in lower case


Columns = tuple[Column, Column]
CLASS = Column("class", ("label", "class", "labels", "classes"))


class Row(NamedTuple):
    """Holds the texts of a row's cells, without spaces around them."""

    line: int  # the line at which the row begins, counted from 1
    first: str
    second: str
    more: str | None = None  # the cell of a third column, or None without this column


def read_table(
    field: str,
    path: Path,
    columns: Columns,
    fix: str,
    more: str = "",
    is_whole: IsWhole = None,
) -> Iterator[Row]:
    """Yield the rows of a table.

    Args:
        field: setting that names the file, for messages.
        path: the file.
        columns: the two columns.
        fix: fix for a file that cannot be read.
        more: name of a third column, which a header may have.
        is_whole: see `IsWhole`.

    Raises:
        ValueError: if the file cannot be read, or a line does not fit the header.
    """
    try:
        file = open_user_file(path)
    except FileNotFoundError:
        raise ValueError(f"{field}: {path} does not exist; {near_path(path, fix)}") from None
    except OSError as error:
        raise ValueError(f"{field}: {path} cannot be read ({error.strerror}); {fix}") from None
    with file:
        start = file.peek(4)
        encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8")
        if encoding == "utf-8" and b"\0" in start:
            raise ValueError(f"{field}: {path} is not in UTF-8; save it as UTF-8")
        # Names of files may be no UTF-8. They get back their bytes where they are used.
        errors = "surrogateescape" if encoding.startswith("utf-8") else "strict"
        lines = io.TextIOWrapper(file, encoding, errors, newline="")
        try:
            yield from _rows(path, _bounded(field, path, lines), columns, more, is_whole)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{field}: {path} is no {encoding.upper()} ({error.reason}); save it as UTF-8"
            ) from None


def _bounded(field: str, path: Path, lines: TextIO) -> Iterator[str]:
    """Yield the lines of a file, of which a line may be as long as the file."""
    while line := lines.readline(_LONGEST + len("\r\n")):
        if len(line.rstrip("\r\n")) > _LONGEST:
            raise ValueError(
                f"{field}: {path} has a line of more than {_LONGEST:,} characters; "
                "write a line for each row"
            )
        yield line


def _rows(
    path: Path,
    lines: Iterator[str],
    columns: Columns,
    more: str,
    is_whole: IsWhole,
) -> Iterator[Row]:
    number = 0
    delimiters = _DELIMITERS
    first = ""
    for number, first in enumerate(lines, 1):  # noqa: B007 (both are used below)
        if match := _SEPARATOR.fullmatch(first):
            delimiters = match[1]
        elif first.strip() and not first.startswith(_TYPE):
            break
    rest = chain([first], lines)
    for delimiter in delimiters:
        header = _split_header(first, delimiter)
        indices = [_find(header, column) for column in columns]
        if min(indices) >= 0:
            more = more.strip().lower()
            indices += [header.index(more)] if more and more in header else []
            # Without `strict`, a quotation mark that is not closed would hide the rows after it.
            reader = csv.reader(rest, delimiter=delimiter, strict=True)
            yield from _csv_rows(path, number, reader, indices)
            return
    has_delimiter = any(delimiter in first for delimiter in delimiters)
    if path.suffix.lower() == ".csv" and (has_delimiter or len(first.split()) == 1):
        header = _split_header(first, max(delimiters, key=first.count))
        column = next(column for column in columns if _find(header, column) < 0)
        raise ValueError(
            f"{path} line {number}: the header has {first_few(header, 6)}, but no {column.name} "
            f"column; name the {column.name} column {' or '.join(column.headers)}"
        )
    cells = first.lower().split()
    if len(cells) == 2 and all(map(lambda cell, column: cell in column.headers, cells, columns)):
        next(rest)
        number += 1
    yield from _text_rows(path, number, rest, columns, is_whole)


def _split_header(line: str, delimiter: str) -> list[str]:
    return [name.strip().lower() for name in next(csv.reader([line], delimiter=delimiter), [])]


def _find(header: Sequence[str], column: Column) -> int:
    """Return the index of a column, or -1 if the header does not have the column."""
    return next((header.index(name) for name in column.headers if name in header), -1)


def _csv_rows(path: Path, begin: int, reader: Any, indices: Sequence[int]) -> Iterator[Row]:
    """Yield the rows below the header, which begins at line `begin`."""
    width = 0
    line = begin
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ValueError(
                f"{path} line {line}: cannot be read ({error}); "
                "close each quotation mark of the line, and double those inside a cell"
            ) from None
        if cells is None:
            return
        if not width:
            width = len(cells)
        elif len(cells) != width and cells:  # an empty line has no cells
            raise ValueError(
                f"{path} line {line}: has {len(cells)} cells, but the header has {width}; "
                "fix the line"
            )
        elif any(cells):
            yield Row(line, *(from_cell(cells[column].strip()) for column in indices))
        line = begin + reader.line_num  # a quoted cell may have several lines


def _text_rows(
    path: Path,
    begin: int,
    lines: Iterable[str],
    columns: Columns,
    is_whole: IsWhole,
) -> Iterator[Row]:
    for number, line in enumerate(lines, begin):
        text = line.strip()
        if not text:
            continue
        if "\t" in line:
            first, _, second = line.rpartition("\t")
            yield Row(number, first.strip(), second.strip())
        elif is_whole and is_whole(text):
            yield Row(number, text, "")
        elif len(cells := text.rsplit(None, 1)) == 2:
            yield Row(number, *cells)
        else:
            fix = f"write {' '.join(column.name.upper() for column in columns)}"
            if "," in text:
                header = ",".join(column.headers[0] for column in columns)
                fix = f"a table with commas begins with a line {header}"
            raise ValueError(
                f"{path} line {number}: {_shorten(text)!r} has no {columns[1].name}; {fix}"
            )


def fault_of_cell(text: str) -> str:
    """Return the fault and the fix of a cell that cannot be a name, or "" for a good cell."""
    if text.isprintable():
        return ""
    if "\n" in text or "\r" in text:
        return f"{_shorten(text)!r} has a line break; write it on one line"
    if "\0" in text:
        return f"{_shorten(text)!r} has a zero byte; save the file as UTF-8"
    raw = text.encode("utf-8", "surrogateescape")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        shown = _shorten(raw.decode("cp1252", "replace"))
        return f"{shown!r} is not in UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8)"
    return ""


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
