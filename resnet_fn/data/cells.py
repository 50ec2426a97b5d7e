"""These functions write texts into cells of CSV files, and read them back.

A spreadsheet computes a cell that begins with "=", "+", "-", "@", a tab or a line break as a
formula, which can send the other cells elsewhere. An apostrophe before it makes the cell a text.
"""

import re

from resnet_fn.config.printing import in_utf8

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def to_cell(text: str) -> str:
    """Return a text as the cell that `from_cell` reads as this text. Numbers stay as they are.

    Bytes of a file's name that are not UTF-8 are written as escapes, and are not read back.
    """
    is_formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return in_utf8(f"'{text}" if is_formula else text)


def from_cell(cell: str) -> str:
    """Return the text of a cell, without the apostrophe that `to_cell` or a spreadsheet wrote."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
