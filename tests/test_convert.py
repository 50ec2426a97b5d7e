"""Weights on the command line: train, evaluate, convert, inspect, as real processes on the digits."""

import json
import shutil
from pathlib import Path

import pytest

SMALL = ["--model", "resnet8", "--batch-size", "240", "--epochs", "2", "--no-progress"]  # 5 updates an epoch


@pytest.fixture(scope="module")
def done(python):
    """done(command, *arguments): what a command of the package printed."""
    return lambda command, *arguments: python("-m", f"resnet_fn.{command}", *arguments, seconds=300).stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory, done) -> Path:
    """A folder with `run`, ten updates with a moving average, and `net.safetensors`, converted from it."""
    folder = tmp_path_factory.mktemp("trained")
    done("train", *SMALL, "--ema", "0.5", "--out-dir", folder / "run")
    out = done("convert", folder / "run", folder / "net.safetensors", "--to", "torchvision")
    assert out.startswith("resnet8: 47 tensors from ours names to torchvision names in ")
    return folder


def test_evaluate_scores_a_weight_file_as_its_run(trained, done, python, events):
    flags = ["--recipe", "digits", "--model", "resnet8"]
    done("evaluate", "--weights", trained / "net.safetensors", *flags, "--json", "result.json")
    result, last = json.loads(Path("result.json").read_text()), events(trained / "run", "eval")[-1]
    assert (result["top1"], result["top5"], result["count"]) == (last["top1"], last["top5"], 360)
    assert result["loss"] == pytest.approx(last["loss"], rel=1e-6)
    without = python("-m", "resnet_fn.evaluate", "--weights", trained / "net.safetensors", code=2)
    words = "--weights needs --recipe NAME: a weight file holds neither its data nor its net"
    assert without.stderr == f"evaluate: error: {words}\n"


@pytest.mark.slow
def test_training_starts_from_weights_and_resumes_without_them(trained, done, events):
    shutil.copy(trained / "net.safetensors", "start.safetensors")
    done("train", *SMALL, "--weights", "start.safetensors", "--out-dir", "run")
    fresh = events(trained / "run", "train")[0]["loss"]
    assert events("run", "train")[0]["loss"] < fresh
    end = Path("run/checkpoints/step-00000010")
    weights = (end / "weights.safetensors").read_bytes()
    losses = [event["loss"] for event in events("run", "train")]
    shutil.rmtree(end)
    Path("start.safetensors").unlink()
    assert "resuming after update 5" in done("train", *SMALL, "--weights", "start.safetensors", "--out-dir", "run")
    assert (end / "weights.safetensors").read_bytes() == weights
    assert [event["loss"] for event in events("run", "train")] == losses


@pytest.mark.slow
def test_inspect_sees_the_gradients_of_the_next_update(trained, done, events):
    """From the checkpoint after update 5: update 6's loss and gradient norm, as training logged them."""
    folder = trained / "run/checkpoints/step-00000005"
    flags = ["--gradients", "--activations", "--batch-size", "240", "--json", "inside.json"]
    out = done("inspect", folder, *flags)
    assert "activations after update 5, evaluation mode, 240 validation images" in out
    sixth, gradients = events(trained / "run", "train")[5], json.loads(Path("inside.json").read_text())["gradients"]
    assert (sixth["update"], gradients["samples"]) == (6, 240)
    assert gradients["loss"] == pytest.approx(sixth["loss"], rel=1e-5)
    norm = sum(row["norm"] ** 2 for row in gradients["parameters"]) ** 0.5
    assert norm == pytest.approx(sixth["grad_norm"], rel=1e-4)
    assert f"global norm {norm:.4f}, before clipping at 1" in out
    assert "the moving average of its weights" in done("inspect", trained / "run")
