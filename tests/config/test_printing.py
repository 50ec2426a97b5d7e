"""What is printed fits any terminal and any encoding, on one line."""

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import resnet_fn
from resnet_fn.config import cli
from resnet_fn.config.output_paths import file_to_write
from resnet_fn.config.printing import in_utf8, printable, say, shell_words, warn
from resnet_fn.train import main

PACKAGE = Path(resnet_fn.__file__).parent


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x9b0m\x07", r"\x1b[31mred\x9b0m\x07"),
        ("a\nb\r\tc\x7f", r"a\nb\r\tc\x7f"),
        ("gpj.\u202ean\u2028x", r"gpj.\u202ean\u2028x"),  # shown from right to left; a line's end
        (os.fsdecode(b"\xff.jpg"), r"\xff.jpg"),
        ("\ud83d", r"\ud83d"),  # half a character, as JSON can have it
        ("été 文字\u3000\u200d 😀 \\n", "été 文字\u3000\u200d 😀 \\n"),
    ],
)
def test_a_printed_text_is_one_line_without_codes(text, shown, capsys):
    assert printable(text) == printable(shown) == shown
    say(text, 3)
    warn(text)
    out, err = capsys.readouterr()
    assert (out, err) == (f"{shown}\n3\n", f"warning: {shown}\n")


def test_data_files_keep_control_characters():
    assert in_utf8("a\nb\x1b" + os.fsdecode(b"\xff")) == "a\nb\x1b\\xff"


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("ascii", rb"\xe9 \u2026 \u6587"),
        ("latin-1", b"\xe9 \\u2026 \\u6587"),
        ("utf-8", "é … 文".encode()),
    ],
)
def test_characters_that_a_stream_lacks_are_escaped(encoding, written):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    say("é … 文", stream=stream)
    assert stream.buffer.getvalue() == written + b"\n"


def test_a_process_may_have_no_stdout(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    say("a")


def test_only_one_module_prints():
    """Except the launcher, which copies its workers' logs, and the ladder."""
    files = [path for path in PACKAGE.rglob("*.py") if "parity" not in path.parts]
    printing = {
        path.name
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    }
    assert printing <= {"printing.py", "launch.py", "__main__.py"}


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        (lambda: file_to_write("no\nfolder\x1b/a"), ""),  # argparse's own, not run's
        (lambda: resnet_fn.recipes.recipe("a\nb\x1b"), r"recipe: 'a\nb\x1b' is unknown"),
        (lambda: resnet_fn.recipes.load_recipe("a\nb\x1b.toml"), r"a\nb\x1b.toml: does not exist"),
    ],
)
def test_an_error_with_line_breaks_is_one_line(raised, shown, capsys):
    with pytest.raises(SystemExit):
        cli.run("train", lambda _: raised(), [])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert shown in err


def test_help_shows_a_recipes_values_as_they_are(capsys):
    Path("mine.toml").write_text('extends = "digits"\nweights = "50%d\\u001b%(prog)s.pth"\n')
    with pytest.raises(SystemExit):
        cli.run("train", main, ["--recipe", "mine.toml", "--help"])
    assert r"50%d\x1b%(prog)s.pth*" in "".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "word", ["run", "my run", "it's", "a\nb", "\x1b[2J\\", "ü\n", "\udcff", "a\r'1", ""]
)
def test_a_shell_reads_the_words_that_are_shown(word):
    line = shell_words("printf", "%s|%s", word, "é")
    assert printable(line) == line
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout == os.fsencode(f"{word}|é")


def test_a_shell_gets_half_a_character_escaped():
    assert printable("\ud800") == r"\ud800"
    assert shell_words("\ud800") == r"$'\x5cud800'"
