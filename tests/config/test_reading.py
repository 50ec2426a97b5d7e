"""Files of other people are read whole, or the error names them."""

import json
import os
from pathlib import Path

import pytest

from resnet_fn.config.reading import open_user_file, read_json, read_regular
from resnet_fn.recipes import load_recipe

KINDS = ("fifo", "device", "sparse", "nested", "folder")


@pytest.mark.parametrize("kind", KINDS)
def test_unreadable_json_of_others_is_an_error(kind, foreign):
    with pytest.raises((OSError, ValueError)):
        read_json(foreign(kind, "a.json"))


def test_json_is_read_and_longer_files_rejected():
    Path("a.json").write_text(json.dumps({"é": [1, None]}))
    assert read_json("a.json") == {"é": [1, None]}
    assert read_regular("a.json", 100) == Path("a.json").read_bytes()
    with pytest.raises(OSError, match="of at most 3"):
        read_regular("a.json", 3)


def test_a_file_beyond_memory_is_not_read(foreign):
    with pytest.raises(MemoryError, match="64,424,509,440 bytes do not fit into memory"):
        read_regular(foreign("sparse", "a"))


def test_a_list_of_images_may_be_a_pipe():
    """As in --val-list <(command)."""
    end, other = os.pipe()
    os.write(other, b"a.jpg bee\n")
    os.close(other)
    with open_user_file(f"/dev/fd/{end}") as file:
        assert file.read() == b"a.jpg bee\n"
    os.close(end)


def test_a_list_of_images_may_be_stdin(python):
    text = (
        "import os; from resnet_fn.config.reading import open_user_file as o; "
        "r, w = os.pipe(); os.write(w, b'a.jpg'); os.close(w); os.dup2(r, 0); "
        "print(*[o(p).peek() for p in ('/dev/stdin', f'/proc/{os.getpid()}/fd/0')])"
    )
    assert python("-c", text).stdout == "b'a.jpg' b''\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_or_folder_as_recipe_is_named(kind, foreign, raises_line):
    foreign(kind, "a.toml")
    if kind == "nested":
        Path("a.toml").write_text("epochs = " + "[" * 20_000)
    with raises_line("a.toml", "; "):
        load_recipe("a.toml")
