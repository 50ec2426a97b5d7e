"""The command `convert`: weight files from one project's names to another's."""

import json
from pathlib import Path

import pytest

from resnet_fn.config.cli import UsageError
from resnet_fn.config.recipe import Recipe
from resnet_fn.convert import main as convert
from resnet_fn.evaluate import main as evaluate
from resnet_fn.export import main as export
from resnet_fn.inspect.__main__ import main as inspect
from resnet_fn.models import create_model
from resnet_fn.run.loop import train
from resnet_fn.train import parse
from resnet_fn.weights.files import read_arrays
from resnet_fn.weights.load import read_weights, start_from


@pytest.fixture(scope="module")
def trained(device, tmp_path_factory):
    """A folder with `run`, ten updates with a moving average, and `net.safetensors`, converted from
    it.
    """
    folder = tmp_path_factory.mktemp("trained")
    words = ["--model", "resnet8", "--batch-size", "240", "--epochs", "2"]  # 5 updates an epoch
    words += ["--ema", "0.5", "--mode", "pynative", "--no-progress"]
    train(*parse([*words, "--out-dir", str(folder / "run")]))
    convert([str(folder / "run"), str(folder / "net.safetensors"), "--to", "torchvision"])
    return folder


def test_evaluate_scores_a_weight_file_as_its_run(trained, events):
    weights = ["--weights", str(trained / "net.safetensors")]
    evaluate([*weights, "--recipe", "digits", "--model", "resnet8", "--json", "result.json"])
    result = json.loads(Path("result.json").read_text())
    last = events(trained / "run", "eval")[-1]
    assert (result["top1"], result["top5"], result["count"]) == (last["top1"], last["top5"], 360)
    assert result["loss"] == pytest.approx(last["loss"], rel=1e-6)
    with pytest.raises(
        UsageError, match=r"^--weights needs --recipe NAME, because a weight file does not"
    ):
        evaluate(weights)


def test_an_exported_file_contains_its_classes(trained):
    """So that a training from it keeps the last layer, for these classes alone."""
    export([str(trained / "run"), "--format", "safetensors", "--out", "net.safetensors"])
    source = read_weights("net.safetensors")
    assert source.classes == tuple("0123456789")
    net = create_model("resnet8", num_classes=10, in_channels=1)
    recipe = Recipe(model="resnet8")
    for classes, state in (("0123456789", "kept"), ("abcdefghij", "new")):
        assert start_from(net, source, recipe, classes)[0].endswith(f"the last layer is {state}")


def test_each_command_prints_what_it_left_out(trained, capsys):
    torch = pytest.importorskip("torch", reason="torch.save writes the file")
    arrays = read_arrays(trained / "net.safetensors").arrays
    state = {f"model.{name}": torch.tensor(array) for name, array in arrays.items()}
    torch.save({"state_dict": {**state, "loss.weight": torch.ones(10)}}, "last.ckpt")
    notes = ["stripped from all names: 'model.'", "left out: loss.weight"]
    commands = (
        (evaluate, ["--weights", "last.ckpt", "--recipe", "digits", "--model", "resnet8"]),
        (convert, ["last.ckpt", "a.safetensors"]),
        (inspect, ["last.ckpt"]),
    )
    for command, words in commands:
        command(words)
        shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert [line for line in shown if line in notes] == notes, words


def test_inspect_shows_averaged_weights(trained, capsys):
    inspect([str(trained / "run")])
    assert "moving average of the weights" in capsys.readouterr().out
