"""Loading a trained net: averages, sizes, flips, foreign checkpoints."""

import contextlib
from pathlib import Path

import mindspore
import numpy as np
import pytest

from resnet_fn import train
from resnet_fn.checkpoint import tensor_file
from resnet_fn.checkpoint.folder import (
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
    write_checkpoint,
)
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.values import to_dict
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.evaluate import main as evaluate_main
from resnet_fn.evaluation.loaded_net import FlipAverage, load_run
from resnet_fn.inspect.__main__ import main as inspect_main
from resnet_fn.models import create_model
from resnet_fn.predict import main as predict
from resnet_fn.weights.load import read_weights

RECIPE = Recipe(model="resnet8", image_size=8, batch_size=240, epochs=1)
OPTIONS = RunOptions(out_dir="run", mode="pynative", progress=False)

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def poisoned(monkeypatch):
    """A run whose checkpoint has a NaN with a valid hash: this package never saves one, but a file
    may hold it.
    """
    train(RECIPE, OPTIONS)
    saved = load_checkpoint(Path("run/checkpoints/step-00000005"))
    saved.weights["fc.bias"][0] = np.nan
    with monkeypatch.context() as patch:
        patch.setattr(tensor_file, "bad_values", lambda *_: np.array(False))
        return write_checkpoint(saved.path, saved.weights, saved.training, saved.state)


def test_inspect_shows_a_rejected_non_finite_checkpoint(poisoned, capsys, raises_line):
    Path("image.png").write_bytes(b"is not even looked at")
    for use in (
        lambda: load_run("run"),
        lambda: evaluate_main(["--checkpoint", "run"]),
        lambda: predict(["--checkpoint", "run", "image.png"]),
        lambda: train(RECIPE, OPTIONS),
    ):
        with raises_line(poisoned, "1 of 10 values of fc.bias", "--allow-non-finite"):
            use()
    assert np.isnan(load_run("run", allow_non_finite=True).net.fc.bias.asnumpy()).sum() == 1
    assert evaluate_main(["--checkpoint", "run", "--allow-non-finite"]) == 0
    capsys.readouterr()
    assert inspect_main(["run"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("fc.bias"))
    assert line.endswith("1 NOT FINITE")


def test_ema_without_an_average_has_a_fix(run):
    trained = load_run(run)
    save_checkpoint(
        Path("bare/checkpoints/step-00000005"),
        list(trained.net.get_parameters()),
        [],
        trained.checkpoint.state,
    )
    with pytest.raises(
        CheckpointError, match=r"step-00000005: contains no EMA weights; leave out --ema, or"
    ):
        load_run("bare", ema=True)


def test_flip_average_is_the_mean_of_both_views():
    mindspore.set_seed(3)
    net = create_model("resnet8", num_classes=10, in_channels=1).set_train(False)
    images = np.random.default_rng(0).standard_normal((64, 1, 8, 8)).astype(np.float32)
    views = (images, np.ascontiguousarray(images[..., ::-1]))
    expected = sum(net(mindspore.Tensor(view)).asnumpy() for view in views) / 2
    average = FlipAverage(net)(mindspore.Tensor(images)).asnumpy()
    np.testing.assert_allclose(average, expected, rtol=1e-6, atol=1e-6)


SETTINGS = {  # entries of other types: tests/checkpoint/test_run_state.py
    "a text": ({"head_learning_rate": "a"}, ""),
    "an unknown setting": ({"flavour": 1}, "recipe: unknown setting 'flavour'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_strangers_checkpoint_is_named(name, raises_line):
    """The hashes are right, because anyone can write them."""
    settings, fault = SETTINGS[name]
    net = create_model("resnet8", num_classes=10, in_channels=1)
    state = {"update": 5, "best": None, "recipe": to_dict(RECIPE) | settings}
    state["dataset"] = to_dict(load_digits().input)
    save_checkpoint(Path("run/checkpoints/step-00000005"), list(net.get_parameters()), [], state)
    with raises_line("run/checkpoints/step-00000005", fault, "; ", kind=CheckpointError):
        load_run("run/checkpoints/step-00000005")
    with contextlib.suppress(ValueError):  # weights need less of it
        read_weights("run")
