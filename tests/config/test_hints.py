"""Hints: the nearest flag, the nearest path."""

from pathlib import Path

import pytest

from resnet_fn.config.hints import closest_flag, near_path


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--lerning-rate", "did you mean --learning-rate?"),
        ("--no-nestrov", "did you mean --no-nesterov?"),
        ("--no-epoch", "did you mean --epochs?"),
        ("--no-cuda", "there is no such flag and none like it; see --help"),
    ],
)
def test_a_flag_is_like_another_by_its_bare_name(word, hint):
    flags = ["--learning-rate", "--lr", "--nesterov", "--no-nesterov", "--epochs", "--flip", "--no-flip"]
    assert closest_flag(word, flags) == hint


def test_a_path_that_is_not_there_names_the_nearest():
    """Wherever on the way it goes wrong; and the whole of it where that is there."""
    Path("runs/first/checkpoints/step-00000066").mkdir(parents=True)
    Path("runs/frist/checkpoints").mkdir(parents=True)
    whole = "runs/firs/checkpoints/step-00000066"
    assert near_path(whole, "x") == "did you mean runs/first/checkpoints/step-00000066?"
    assert near_path("rums", "x") == "did you mean runs?"
    assert near_path("/quite/elsewhere", "give a folder") == "give a folder"
