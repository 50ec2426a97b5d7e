"""The test suite prints a failure when it happens."""

import shutil
from pathlib import Path

import pytest


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_failure_is_printed_when_it_happens(processes, python, tmp_path):
    """Before the next test has ended, with its text; by xdist's processes, too."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_two.py").write_text(
        "def test_bad():\n    assert 'cause' == 2\n\n\ndef test_good(): pass\n"
    )
    done = python("-m", "pytest", "-n", processes, "-p", "no:cacheprovider", tmp_path, code=1)
    at_once, at_the_end = done.stdout.split("= FAILURES =")
    assert (
        at_once.index("test_two.py::test_bad")
        < at_once.index("assert 'cause' == 2")
        < at_once.index("[100%]")
    )
    assert "assert 'cause' == 2" in at_the_end
