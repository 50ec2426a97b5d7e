"""Files of settings: what they hold, and every fault with its line."""

import sys
from pathlib import Path

import pytest

from resnet_fn.config.settings_file import Entry, best_ending, read_settings, settings_text

toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML needs Python 3.11")


@toml
def test_each_value_has_its_line():
    text = """\
# b = 1
a = 1

"b" = [
  2, 3]   # c = 4
  c-d = "x = 5"
'e' = 1e-3
"""
    Path("a.toml").write_text(text)
    Path("a.json").write_text('{"a": 1,\n\n"b":\n[2,\n 3], "c-d" : "x = 5",\n\n"e": 1e-3}')
    values = {"a": 1, "b": [2, 3], "c-d": "x = 5", "e": 1e-3}
    for name, lines in (("a.toml", (2, 4, 6, 7)), ("a.json", (1, 3, 5, 7))):
        expected = {word: Entry(values[word], f"{name} line {line}") for word, line in zip(values, lines, strict=True)}
        assert read_settings(Path(name)) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "[data]\nflip = true", "a.toml line 1: [data]: there are no sections; write name = value, one"),
        ("a.toml", "x = 1\ny.z = 2", "a.toml line 2: [y]: there are no sections; "),
        ("a.toml", "x = 1\nm = resnet50", "a.toml line 2: 'm = resnet50' is not TOML (Invalid value, column 5); text"),
        ("a.toml", "f = True", "a.toml line 1: 'f = True' is not TOML (Invalid value, column 5); text stands in"),
        ("a.toml", "x = 1\nx = 2", "a.toml line 2: 'x = 2' is not TOML (Cannot overwrite a value, column 6); "),
        ("a.toml", "x = [1,\n 2", "a.toml: is not TOML (Unclosed array (at end of document)); "),
        ("a.json", '{"x": 1\n "y": 9}', "a.json line 2: '\"y\": 9}' is not JSON (Expecting ',' delimiter, column 2); "),
        ("a.json", '{"x": 1,\n "x": 9}', "a.json line 1: x: is given twice; keep one"),
        ("a.json", '{"x":\n {"y": 9}}', "a.json line 1: [x]: there are no sections; "),
        ("a.json", "[1]", 'a.json: is not settings; write {"name": value, …}'),
        ("none.json", None, "none.json: does not exist; "),
        ("a.json", "[" * 100_000, "a.json: is nested too deeply; "),
        ("a.json", '{"x":' * 100_000, "a.json: is nested too deeply; "),
        ("a.toml", "x = " + "[" * 100_000, "a.toml: is nested too deeply; "),
        ("folder.json", None, "folder.json: cannot be read (Is a directory); give a file"),
    ],
)
def test_mistakes_are_told_with_their_line(name, text, message):
    if name.endswith(".toml") and sys.version_info < (3, 11):
        pytest.skip("TOML needs Python 3.11")
    if text is None:
        Path("folder.json").mkdir()
    else:
        Path(name).write_text(text)
    with pytest.raises(ValueError) as caught:
        read_settings(Path(name))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_python_3_10_is_told_to_write_json(monkeypatch):
    monkeypatch.setitem(sys.modules, "tomllib", None)
    Path("a.toml").write_text("seed = 1")
    with pytest.raises(ValueError, match=r"^a.toml: TOML needs Python 3.11; write the same as JSON: a.json$"):
        read_settings(Path("a.toml"))
    assert best_ending() == ".json"


@pytest.mark.parametrize("kind", [pytest.param(".toml", marks=toml), ".json"])
def test_what_is_written_is_read_again(kind, monkeypatch):
    if kind == ".json":
        monkeypatch.setitem(sys.modules, "tomllib", None)
    assert best_ending() == kind
    odd = 'C:\\new "ü" \x7f\t\n#\udcff😀'  # a path may hold anything, bytes that are no text included
    groups = {"one": {"text": odd, "no": False, "small": 1e-05}, "two": {"list": [0.5, 3.0], "none": []}}
    Path(f"a{kind}").write_bytes(settings_text(groups).encode("utf-8", "surrogateescape"))
    values = {word: value for word, (value, _) in read_settings(Path(f"a{kind}")).items()}
    assert values == groups["one"] | groups["two"]
