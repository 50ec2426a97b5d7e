"""How dense the code is: syntax nodes in a code line, and code lines in a function."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "density.py"
SPEC = importlib.util.spec_from_file_location("density", SCRIPT)
DENSITY = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(DENSITY)
MOST = 11.0  # syntax nodes in a code line
LONGEST = 60  # code lines in a function
# Modules that were denser when the limit was set, and how dense they may be at most.
DENSER: dict[str, float] = {}
MODULES = [path.relative_to(DENSITY.PACKAGE).as_posix() for path in DENSITY.PACKAGE.rglob("*.py")]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_module_is_denser_than_its_limit(module):
    assert DENSITY.density(DENSITY.PACKAGE / module) <= DENSER.get(module, MOST) + 0.05


def test_the_list_of_denser_modules_is_short_enough():
    """No module of it is gone, or has become light enough to leave it."""
    assert not [name for name in DENSER if DENSITY.density(DENSITY.PACKAGE / name) <= MOST]


def test_a_long_function_has_a_comment_that_says_why():
    long = {
        module: found
        for module in MODULES
        if (found := DENSITY.long_functions(DENSITY.PACKAGE / module, LONGEST))
    }
    assert not long


def test_docstrings_comments_and_empty_lines_are_no_code(tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""Two\nlines."""\n\n# a comment\nx = 1\n')
    assert DENSITY.density(path) == 7  # Module, Expr, Constant, Assign, Name, Store, Constant
