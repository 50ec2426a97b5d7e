"""Measured figures in docs/: each has its command or says that it was made by hand."""

import math
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
# The second cell of each row of the page of benchmarks: what follows the script's name, or that it
# has no command.
_HOW = re.compile(r"by hand|`(step|startup|allreduce|time-to-accuracy)((?: --[\w-]+ [\w,-]+)*)`")


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


def sections(page):
    """Title and lines of each `##` section."""
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        title, *lines = section.splitlines()
        yield title, [line for line in lines if line]


def test_every_benchmark_has_its_command():
    for machine, (day, header, _, *rows) in sections(
        text_of("benchmarks.md").partition("## Lab notes")[0]
    ):
        assert re.fullmatch(r"\*.+ · 20\d\d-\d\d-\d\d\*", day), machine
        assert header.startswith("| what | how |")
        for row in rows:
            assert _HOW.fullmatch(row.split(" | ")[1]), row


def test_quoted_cores_follow_from_measured_decoding_rates():
    """docs/distributed.md: eight cards' images/s over those of a core, half of what docs/data.md
    measured on two.
    """
    rates = re.findall(
        r"^\| `(?:imagefolder|mindrecord)`.*? \| ([\d,]+) \|", text_of("data.md"), re.M
    )
    files, records = (math.ceil(8 * 2115 / (int(rate.replace(",", "")) / 2)) for rate in rates)
    need = r"at\s+2,115\s+images/s each need (\d+) cores.*?files, or (\d+) cores to decode packed"
    quoted = re.search(need, text_of("distributed.md"), re.S)
    assert quoted
    assert (int(quoted[1]), int(quoted[2])) == (files, records)
