"""Each bound of the ladder names the place of its evidence, which exists; docs have each reason."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.parity.compare import allowed, chance, draws, measures
from resnet_fn.parity.trace import limits, reasons

DOCS = Path(__file__).parents[3]


def constants(module: object) -> list[tuple[str, str]]:
    """The constants of a module, each with the text below it."""
    body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign):
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = str(after.value.value)
            found.append((ast.unparse(node.targets[0]), text))
    return found


CONSTANTS = [
    pytest.param(text, id=name)
    for one in (allowed, chance, draws, limits, measures)
    for name, text in constants(one)
]


def test_there_are_constants():
    assert len(CONSTANTS) > 20


@pytest.mark.parametrize("text", CONSTANTS)
def test_a_bound_names_a_heading_that_exists(text):
    places = re.findall(r"(docs/\w+\.md)#([\w-]+)", text)
    assert places, text
    for page, anchor in places:
        words = (DOCS / page).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.+)", words, re.M)
        assert anchor in [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in titles]


def test_docs_name_each_reason():
    page = (DOCS / "docs" / "parity.md").read_text(encoding="utf-8")
    words = [one for name, one in vars(reasons).items() if name.isupper()]
    assert len(words) > 20
    assert [one for one in words if f"`{one}`" not in page] == []


def test_what_ties_excuse_keeps_the_ports_values():
    reference = np.ones(4, np.float32)
    port = np.array([2.5, 1, 1 + 1e-6, 1], np.float32)
    flipped = np.array([2, 1, 1, 1], np.float32)
    bound = allowed.larger_bound(1e-5, {reasons.MEASURED: 1e-7})
    item = bound.compare("logits", port, reference)
    excused = measures.without_step_ties(bound, item, port, reference, flipped)
    assert (excused.verdict, excused.why) == ("ok", reasons.TIES)
    assert (excused.place, excused.port, excused.reference) == ((0,), 2.5, 1.0)
    assert excused.max_abs == 1.5
    assert excused.cosine == item.cosine
