"""Files of settings: what they hold, and every fault with its line."""

from pathlib import Path

import pytest

from resnet_fn.config.settings_file import Entry, read_settings, settings_text


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
    values, lines = {"a": 1, "b": [2, 3], "c-d": "x = 5", "e": 1e-3}, (2, 4, 6, 7)
    expected = {word: Entry(values[word], f"a.toml line {line}") for word, line in zip(values, lines, strict=True)}
    assert read_settings(Path("a.toml")) == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[data]\nflip = true", "a.toml line 1: |[data]|no sections|name = value"),
        ("x = 1\ny.z = 2", "a.toml line 2: |[y]|no sections"),
        ("x = 1\nm = resnet50", "a.toml line 2: |'m = resnet50'|Invalid value|column 5|quotes"),
        ("f = True", "a.toml line 1: |'f = True'|Invalid value|column 5|true and false"),
        ("x = 1\nx = 2", "a.toml line 2: |'x = 2'|Cannot overwrite|column 6"),
        ("x = [1,\n 2", "a.toml: |Unclosed array"),
        ("x = " + "[" * 100_000, "a.toml: |nested too deeply"),
        (None, "a.toml: |cannot be read (Is a directory); give a file"),
    ],
)
def test_mistakes_have_their_line(text, parts, says):
    if text is None:
        Path("a.toml").mkdir()
    else:
        Path("a.toml").write_text(text)
    with pytest.raises(ValueError) as caught:
        read_settings(Path("a.toml"))
    says(caught, *parts.split("|"))


def test_what_is_written_is_read_again():
    odd = 'C:\\new "ü" \x7f\t\n#\udcff😀'  # a path may hold anything, bytes that are no text included
    groups = {"one": {"text": odd, "no": False, "small": 1e-05}, "two": {"list": [0.5, 3.0], "none": []}}
    Path("a.toml").write_bytes(settings_text(groups).encode("utf-8", "surrogateescape"))
    values = {word: value for word, (value, _) in read_settings(Path("a.toml")).items()}
    assert values == groups["one"] | groups["two"]
