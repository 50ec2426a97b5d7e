"""A checkpoint that was written before the modules moved into rooms still loads, evaluates and goes on.

fixtures/run-before-rooms was made at commit 4dc4554 by

    python -m resnet_fn.train --model resnet8 --image-size 8 --batch-size 240 --epochs 2 --keep-last 2 --threads 1

Its metrics.jsonl tells both epochs; of its two checkpoints only the first is left, as if the second had been lost.
"""

import json
import shutil
from pathlib import Path

import mindspore
import numpy as np
import pytest

from resnet_fn import RunOptions, evaluate, load_checkpoint, train
from resnet_fn.config.recipe import recipe_from_dict
from resnet_fn.plot import read_events

RUN = Path(__file__).parent / "fixtures" / "run-before-rooms"
STEP = RUN / "checkpoints" / "step-00000005"

pytestmark = pytest.mark.usefixtures("device")


def close_to(value):
    """Equal on such a machine as the fixture was made on; another kind of CPU adds in another order."""
    versions, flags = json.loads((RUN / "config.json").read_text())["versions"], Path("/proc/cpuinfo")
    same = mindspore.__version__ == versions["mindspore"] and flags.exists() and "avx512f" in flags.read_text()
    # Up to one rounding: since then small gradients are joined (`Vector`), so their squares add in another order.
    return pytest.approx(value, rel=2e-7 if same else 1e-3, abs=0)


def test_it_loads():
    read = load_checkpoint(STEP)
    assert (read.state["update"], len(read.weights), len(read.training)) == (5, 47, 33)
    assert {str(array.dtype) for array in read.weights.values()} == {"float32"}
    assert read.weights["conv1.weight"].shape == (16, 1, 3, 3)
    assert np.isfinite(read.training["momentum.fc.weight"]).all()
    assert np.abs(read.training["momentum.fc.weight"]).max() > 0


def test_it_evaluates_as_it_did():
    (then,) = (event for event in read_events(RUN) if event["event"] == "eval" and event["update"] == 5)
    now = evaluate(STEP)
    assert now.pop("macro_f1") > 0  # which came later
    assert now == {key: close_to(then[key]) for key in ("loss", "top1", "top5", "count")}


@pytest.mark.slow
@pytest.mark.alone  # on all cores: on one alone the net adds in another order
def test_it_goes_on_as_the_code_of_then_did():
    shutil.copytree(RUN, "run")
    recipe = recipe_from_dict(load_checkpoint(STEP).state["recipe"])
    assert train(recipe, RunOptions(out_dir="run", progress=False)).updates == 10
    compared = {"train": ("update", "loss", "accuracy", "lr", "grad_norm"), "eval": ("update", "loss", "top1")}
    for kind, fields in compared.items():
        then, now = (
            [e for e in read_events(run) if e["event"] == kind and e["update"] > 5] for run in (RUN, Path("run"))
        )
        assert [[event[field] for field in fields] for event in now] == [
            [close_to(event[field]) for field in fields] for event in then
        ]
