"""Cells of a table survive writing and reading, and no spreadsheet runs one."""

import csv
import io

import pytest

from resnet_fn.data.cells import from_cell, table_writer, to_cell

FORMULAS = [
    '=HYPERLINK("http://x","y")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "-",
    "=",
]
PLAIN = ["cat", "", "a=b", "'quoted'", "-1", "+1.5e-3", "-.5", "3", "'", " =1", "é/ü.jpg"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(text):
    assert to_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", PLAIN)
def test_numbers_and_other_texts_stay_as_they_are(text):
    assert to_cell(text) == text


@pytest.mark.parametrize("text", [*FORMULAS, *PLAIN, *(f"'{text}" for text in FORMULAS), "''-1"])
def test_cells_are_read_as_written(text):
    file = io.StringIO()
    csv.writer(file).writerow([to_cell(text), "next"])
    (row,) = csv.reader(io.StringIO(file.getvalue(), newline=""))
    assert from_cell(row[0]) == text


def test_csv_with_line_breaks_is_read_back():
    rows = [["a\rb", "c\nd", 'e"f', "", "g\r\n"], ["\r", "h,i", "é", "j", "\n"], ["plain", "k"]]
    text = io.StringIO(newline="")
    table_writer(text).writerows(rows)
    assert list(csv.reader(io.StringIO(text.getvalue(), newline=""))) == rows
    assert text.getvalue().endswith('"\n"\nplain,k\n')
