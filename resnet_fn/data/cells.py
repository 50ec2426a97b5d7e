"""These functions write texts into cells of CSV files, and read them back.

A spreadsheet computes a cell that begins with "=", "+", "-", "@", a tab or a line break as a
formula, which can send the other cells elsewhere. An apostrophe before it makes the cell a text.
"""

import csv
import re
from typing import Any, TextIO

from resnet_fn.config.printing import in_utf8

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_ROW_END = "\r\n"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class _OneByteLines:
    """Ends rows with "\n". With this as its own end of a line, Python 3.11's writer would leave a
    "\r" in a cell without quotation marks.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, row: str) -> int:
        return self._file.write(f"{row.removesuffix(_ROW_END)}\n")


def table_writer(file: TextIO) -> Any:
    """Return a CSV writer whose rows `csv.reader` reads as they are, with any cells."""
    return csv.writer(_OneByteLines(file), lineterminator=_ROW_END)


def to_cell(text: str) -> str:
    """Return a text as the cell that `from_cell` reads as this text. Numbers stay as they are.

    Bytes of a file's name that are not UTF-8 are written as escapes, and are not read back.
    """
    is_formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return in_utf8(f"'{text}" if is_formula else text)


def from_cell(cell: str) -> str:
    """Return the text of a cell, without the apostrophe that `to_cell` or a spreadsheet wrote."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
