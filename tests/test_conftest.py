"""The test suite prints a failure when it happens."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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


def test_only_tests_that_passed_are_left_out(python, tmp_path):
    """Not one whose name begins so, which skipped."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_two.py").write_text(
        "import pytest\n\n\ndef test_good(): pass\n\n\n"
        "@pytest.mark.parametrize('x', ['a b', 'a'])\n"
        "def test_good_too(x): x == 'a b' or pytest.importorskip('nothing')\n"
    )
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-rap", tmp_path)
    before = python(*words).stdout
    assert "2 passed, 1 skipped" in before
    Path("log").write_text(before)
    assert "1 skipped in" in python(*words, "--not-passed-in=log", code=None).stdout
    assert "2 passed, 1 skipped" in python(*words, "--not-passed-in=absent").stdout


def test_a_log_is_read_without_named_files(python, tmp_path):
    """As `.ci/run` does it: pytest finds the tests, and the conftest.py beside them, by itself."""
    [words] = re.findall(r"^ *tests torch (.*)$", (ROOT / ".ci/run").read_text(), re.M)
    (tmp_path / "tests").mkdir()
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "tests")
    (tmp_path / "tests/test_two.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (tmp_path / "log").write_text("PASSED tests/test_two.py::test_a\n")
    script = f"log={tmp_path}/log files=(); cd {tmp_path}; python -m pytest {words}"
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
