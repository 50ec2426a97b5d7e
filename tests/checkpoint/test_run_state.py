"""What state.json may contain, and the message for everything else."""

from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import CheckpointError, load_checkpoint, write_checkpoint
from resnet_fn.checkpoint.run_folder import find_checkpoint
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.values import to_dict
from resnet_fn.evaluation.loaded_net import load_run

INPUT = {"name": "digits", "classes": ["0", "1"], "channels": 1, "image_size": 8}
INPUT |= {"full_scale": 16.0, "mean": [0.3], "std": [0.4]}
STATE = {
    **{"update": 5, "epoch": 1, "without_gain": 0, "recipe": to_dict(Recipe()), "dataset": INPUT},
    **{"best": {"top1": 0.9, "update": 5}, "last": None, "feed": {"samples": 9}},
    **{"validation": None, "parallel_layout": {}, "class_weights": [], "class_balance": []},
}
RUN = Path("run/checkpoints/step-00000005")


def write(state):
    arrays = {"w": np.zeros(3, np.float32)}
    return write_checkpoint(RUN, arrays, arrays, state)


WRONG = {
    "update": [None, -1, 1.5, "5", True, [5]],
    "without_gain": [None, "x"],
    "best": [7, [], {}, {"update": "../../x"}, {"update": 5, "top1": "high"}],
    "last": [0, {"event": "eval"}, {"update": 5, "loss": []}],
    "recipe": [None, [], 3, "resnet", {}, {"model": 3}],
    "dataset": [
        None,
        [],
        {},
        {**INPUT, "more": 1},
        {**INPUT, "std": [0.0]},
        {**INPUT, "full_scale": 0},
        {**INPUT, "mean": []},
        {**INPUT, "channels": 3},
        {**INPUT, "classes": None},
        {**INPUT, "classes": [1]},
        {**INPUT, "image_size": "8"},
    ],
    "feed": [None, {}, {"samples": "9"}],
    "parallel_layout": [None, []],
    "class_weights": [None, ["x"], {}],
    "class_balance": [{}, [1], [{"training_images": 1}]],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_strangers_entries_of_other_types_are_named(name, raises_line):
    write(STATE)
    assert find_checkpoint(Path("run"), "best").state == STATE
    for value in WRONG[name]:
        path = write({**STATE, name: value})
        with raises_line(f"{path}/state.json: {name} ", "; use another", kind=CheckpointError):
            find_checkpoint(path)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", ["recipe", "dataset"])
def test_a_missing_entry_of_the_state_is_named(name, raises_line):
    path = write({key: value for key, value in STATE.items() if key != name})
    assert name not in load_checkpoint(path).state
    with raises_line(f"{path}/state.json has no {name!r}; give", kind=CheckpointError):
        load_run(path)
