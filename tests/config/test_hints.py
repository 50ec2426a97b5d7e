"""Hints: the nearest flag, the nearest path."""

from pathlib import Path

from resnet_fn.config.hints import near_path


def test_a_path_that_is_not_there_names_the_nearest():
    """Wherever on the way it goes wrong; and the whole of it where that is there."""
    Path("runs/first/checkpoints/step-00000066").mkdir(parents=True)
    Path("runs/frist/checkpoints").mkdir(parents=True)
    whole = "runs/firs/checkpoints/step-00000066"
    assert near_path(whole, "x") == "did you mean runs/first/checkpoints/step-00000066?"
    assert near_path("rums", "x") == "did you mean runs?"
    assert near_path("/quite/elsewhere", "give a folder") == "give a folder"
