"""Hints: the nearest name, the nearest path, one line of a long text."""

from pathlib import Path

import pytest

from resnet_fn.config.hints import closest, closest_flag, few, first_line, near_path


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("ab", ["abc", "xabx", "cab", "z", "x"], "did you mean cab or abc or xabx?"),
        ("zzz", ["a", "b"], "use one of a, b"),
        ("zzz", map(str, range(40)), f"use one of {', '.join(map(str, range(30)))} and 10 more"),
    ],
)
def test_the_nearest_names_or_all_of_a_few(word, known, hint):
    assert closest(word, known) == hint


def test_of_many_names_none_of_which_is_near_the_main_ones():
    names = ["stem", "fc", "fc.bias", "fc.weight", "layer1", "layer1.0"]
    assert closest("classifier", names, ["stem", "layer1", "fc"]) == "use one of stem, layer1, fc"
    assert closest("layer2", names, ["stem", "layer1", "fc"]) == "did you mean layer1 or layer1.0?"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--lerning-rate", "did you mean --learning-rate?"),
        ("--learning_rate", "did you mean --learning-rate?"),
        ("--no-nestrov", "did you mean --no-nesterov?"),
        ("--no-epoch", "did you mean --epochs?"),
        ("--no-cuda", "there is no such flag and none like it; see --help"),
        ("-x", "there is no such flag and none like it; see --help"),
    ],
)
def test_a_flag_is_like_another_by_its_bare_name(word, hint):
    flags = ["--learning-rate", "--lr", "--nesterov", "--no-nesterov", "--epochs", "--flip", "--no-flip"]
    assert closest_flag(word, flags) == hint


def test_the_first_line_that_says_something():
    framed = RuntimeError("\n----------\n- The shapes differ -\n----------\n(file.cc:12)")
    assert first_line(framed) == "The shapes differ"
    assert first_line(KeyError()) == "KeyError"


def test_a_path_that_is_not_there_names_the_nearest():
    """Wherever on the way it goes wrong; and the whole of it where that is there."""
    Path("runs/first/checkpoints/step-00000066").mkdir(parents=True)
    Path("runs/frist/checkpoints").mkdir(parents=True)
    assert near_path("runs/firts", "x") == "did you mean runs/first or runs/frist?"
    whole = "runs/firs/checkpoints/step-00000066"
    assert near_path(whole, "x") == "did you mean runs/first/checkpoints/step-00000066?"
    assert near_path("runs/first/checkpoints/step-00000067", "x") == (
        "did you mean runs/first/checkpoints/step-00000066?"
    )
    assert near_path("rums", "x") == "did you mean runs?"
    assert near_path("/quite/elsewhere", "give a folder") == "give a folder"


def test_the_first_few_and_how_many_more():
    assert few(["a", "b", "c"]) == "a, b, c"
    assert few(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert few([4, 5, 6], 2, " ") == "4 5 and 1 more"
