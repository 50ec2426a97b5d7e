"""Functions of the user's own are found, or it is said why not."""

import sys

import pytest

from resnet_fn.config import cli
from resnet_fn.parity.commands import functions, live, record


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mine.py", "--net: 'mine.py' is not FILE:FUNCTION; give for example nets/mine.py:build"),
        ("nowhere.py:build", "--net: there is no file nowhere.py; give FILE.py:FUNCTION"),
        ("mine.txt:build", "--net: mine.txt is not a Python file; its name must end in .py"),
        ("mine.py:build", "--net: mine.py has no function 'build'"),
        ("mine.py:number", "--net: mine.py has no function 'number'"),
    ],
)
def test_a_function_that_is_not_there_is_named(place, message, tmp_path):
    for name in ("mine.py", "mine.txt"):
        (tmp_path / name).write_text("number = 7\n")
    with pytest.raises(cli.UsageError) as error:
        functions.load_function(place, "--net")
    assert str(error.value) == message


def test_a_function_may_import_from_beside_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_net.py").write_text("number = 7\n")
    (tmp_path / "mine.py").write_text("import beside_the_net\ndef build():\n    return beside_the_net.number\n")
    assert functions.load_function("mine.py:build", "--net")() == 7


def test_a_file_that_cannot_be_imported_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("import a_package_that_nobody_has\n")
    with pytest.raises(ValueError) as error:
        functions.load_function("mine.py:build", "--net")
    assert str(error.value) == (
        "--net: mine.py cannot be imported (ModuleNotFoundError: No module named 'a_package_that_nobody_has')"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "--net: mine.py:build returned int; return a dict"),
        (None, "--net: mine.py:build returned NoneType; return a dict"),
        (dict, "--net: mine.py:build returned the class dict; return a dict"),
    ],
)
def test_what_a_function_must_return(value, message):
    assert functions.returned("--net", "mine.py:build", {}, dict, "a dict") == {}
    with pytest.raises(ValueError) as error:
        functions.returned("--net", "mine.py:build", value, dict, "a dict")
    assert str(error.value) == message


def test_a_place_is_told_from_a_choice():
    assert functions.is_place("mine.py:build")
    assert functions.is_place("mine.py")
    assert not functions.is_place("adamw")


@pytest.mark.parametrize(
    ("command", "arguments", "flag"),
    [
        (live.live, ["--net", "mine", "--reference", "x"], "--net"),
        (live.live, ["--reference", "mine"], "--reference"),
        (live.live, ["--model", "resnet8", "--our-loss", "mine"], "--our-loss"),
        (record.record, ["--net", "mine", "--out", "trace"], "--net"),
        (record.record, ["--reference", "mine", "--out", "trace"], "--reference"),
    ],
)
def test_a_bare_name_where_a_function_belongs_is_refused(command, arguments, flag):
    """It was left out without a word, and the package's own net compared instead."""
    with pytest.raises(cli.UsageError) as error:
        command(arguments)
    assert str(error.value) == f"{flag}: 'mine' is not FILE:FUNCTION; give for example nets/mine.py:build"
