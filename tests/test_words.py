"""Words that are not to come back: names that do not say what they hold, and phrases that are read
twice.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = {
    *("found", "told", "meant", "said", "forms", "judge", "settle", "one"),
    *("here", "there", "mine"),  # of two sides: port and reference
}
PHRASES = re.compile(
    r"\b(hangs? on|mend(s|ed)?|knows|tells?(?!\()|told|says|but for|ha(s|ve|d) "
    r"gone|follower's|goes on from there)\b"
    r"|\b(test top-1|test loss)\b|: the end\b"
    r"|, with the values? that would",
    re.IGNORECASE,
)
MODULES = sorted((ROOT / "resnet_fn").rglob("*.py"))
TESTS = {path: ast.parse(path.read_text()) for path in sorted((ROOT / "tests").rglob("test_*.py"))}


def names_of_design():
    """The names in code marks in the last column of docs/design.md's table of words."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    _, _, *rows = re.findall(r"^\|.*\|$", page.partition("## Words")[2], re.M)
    assert len(rows) == 22
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[-2])}


def test_names_say_what_they_hold():
    wrong = []
    of_trainer = NAMES | names_of_design()
    for path in MODULES:
        names = NAMES if "parity" in path.parts else of_trainer
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "arg", getattr(node, "name", ""))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            if name in names:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert not wrong


def test_names_of_tests_have_at_most_eight_words():
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path, tree in TESTS.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and re.fullmatch(r"test(_[^_]+){9,}", node.name)
    ]
    assert not wrong


def test_each_file_of_tests_has_a_docstring():
    assert not [path for path, tree in TESTS.items() if not ast.get_docstring(tree)]


@pytest.mark.parametrize("folder", ["", "docs", "resnet_fn"])
def test_texts_are_plain(folder):
    """README, docs; of modules messages, docstrings and comments, too."""
    pages = [*(ROOT / folder).glob("*.md"), *(MODULES if folder == "resnet_fn" else ())]
    lines = [
        (path, number, line)
        for path in pages
        for number, line in enumerate(path.read_text().splitlines(), 1)
    ]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, number, line in lines
        if PHRASES.search(line)
    ]
    assert pages
    assert not wrong
