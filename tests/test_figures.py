"""Measured figures in docs/: each has its command or says that it was made by hand; a quoted one is its source's."""

import math
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
# The second cell of each row of the page of benchmarks: what follows the script's name, or that it has no command.
_HOW = re.compile(r"by hand|`(step|startup|allreduce|time-to-accuracy)((?: --[\w-]+ [\w,-]+)*)`")
# A line above a paragraph or list: its numbers stand in these sections of other pages, word for word.
_QUOTES = re.compile(r"^<!-- quotes: ([\w.# -]+) -->\n((?:.+\n)+)", re.M)
_NUMBER = r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w|[.,]\d)"


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


def section_of(place):
    """The text of "page.md#a-heading"."""
    name, _, anchor = place.partition("#")
    for title, lines in sections(text_of(name)):
        if re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") == anchor:
            return "\n".join(lines)
    raise AssertionError(f"{place} is no section")


def sections(page):
    """Title and lines of each `##` section."""
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        title, *lines = section.splitlines()
        yield title, [line for line in lines if line]


def numbers(text):
    """Those of a text, without links' targets and digits inside names such as ResNet-18."""
    return set(re.findall(_NUMBER, re.sub(r"\]\([^)]*\)", "]", text)))


def misquoted(page, read):
    """The numbers of quoting paragraphs that none of the sections they name has."""
    for places, paragraph in _QUOTES.findall(page):
        sources = "\n".join(read(place) for place in places.split())
        yield from sorted(numbers(paragraph) - numbers(sources))


def test_every_row_of_benchmarks_has_its_command_or_was_measured_by_hand():
    for machine, (day, header, _, *rows) in sections(text_of("benchmarks.md")):
        assert re.fullmatch(r"\*.+ · 20\d\d-\d\d-\d\d\*", day), machine
        assert header.startswith("| what | how |")
        for row in rows:
            assert _HOW.fullmatch(row.split(" | ")[1]), row


@pytest.mark.parametrize("name", sorted(path.name for path in DOCS.glob("*.md")))
def test_quoted_figures_are_those_of_the_page_they_come_from(name):
    page = text_of(name)
    assert page.count("<!-- quotes:") == len(_QUOTES.findall(page)), "a stray marker"
    assert list(misquoted(page, section_of)) == []


def test_cores_that_eight_cards_want_follow_from_the_data_page():
    """docs/scaling.md: eight cards' images/s over those of a core, half of what docs/data.md measured on two."""
    rates = re.findall(r"^\| `(?:imagefolder|mindrecord)`.*? \| ([\d,]+) \|", text_of("data.md"), re.M)
    files, records = (math.ceil(8 * 2115 / (int(rate.replace(",", "")) / 2)) for rate in rates)
    quoted = re.search(r"at 2,115 images/s want (\d+) cores.*?files, (\d+) for packed", text_of("scaling.md"), re.S)
    assert quoted
    assert (int(quoted[1]), int(quoted[2])) == (files, records)
