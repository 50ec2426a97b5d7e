"""Each part whole, as small as it goes."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.benchmark.__main__ import main
from resnet_fn.benchmark.accuracy import reached, torch_top1
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.recipes import recipe

DIGITS = ("--net", "resnet8-digits", "--rounds", "1")


def run(*arguments):
    assert main([*arguments, "--json", "result.json"]) == 0
    return json.loads(Path("result.json").read_text())


@pytest.mark.slow
@pytest.mark.alone
def test_step():
    pytest.importorskip("torch")
    result = run("step", *DIGITS, "--processes", "2")
    assert len(result["step_seconds"]["ours"]) == len(result["processes"]["torch"]) == 2  # a round of each process
    assert result["ratio"]["torch"] == pytest.approx(sum(result["processes"]["torch"]) / 2)
    peaks = result["peak_mib"]
    assert result["memory"]["torch"] == pytest.approx(peaks["ours"] / peaks["torch"])
    assert min(peaks.values()) > 100  # each has imported a whole library


@pytest.mark.slow
@pytest.mark.alone
def test_startup():
    pytest.importorskip("torch")
    result = run("startup", *DIGITS, "--threads", "1")
    (ours,), (torch,) = result["seconds"]["ours"], result["seconds"]["torch"]
    assert min(ours, torch) > 1  # Python, imports and the first update of both
    assert result["ratio"]["torch"] == pytest.approx(torch / ours)


@pytest.mark.slow
@pytest.mark.alone
def test_allreduce():
    result = run("allreduce", *DIGITS)
    assert (result["workers"], result["samples"]) == (2, 64)
    assert result["efficiency"] + result["share"] == pytest.approx(1)
    assert result["one_process_step_seconds"] > 0
    assert result["weak_scaling"] == pytest.approx(result["one_worker_step_seconds"] / result["shared_step_seconds"])


@pytest.mark.slow
def test_data(capsys):
    result = run("data", "--images", "64", "--rounds", "1")
    assert {"imagefolder", "mindrecord", "cifar", "cifar, trivialaugment"} <= set(result["rates"])
    assert all(rate > 0 for rate in result["rates"].values())
    compares = importlib.util.find_spec("torch") is not None
    assert ("ratios" in result) == compares
    assert ("no comparison: PyTorch is not installed" in capsys.readouterr().out) != compares


@pytest.mark.slow
def test_time_to_accuracy():
    """30 % of ten classes: no chance result, and seen after the first epochs of all."""
    pytest.importorskip("torch")
    result = run("time-to-accuracy", "--rounds", "1", "--target", "0.3")
    (ours,), (torch,) = (result["seconds"][kind] for kind in ("ours", "torch"))
    assert result["ratio"] == pytest.approx({"torch": torch / ours})


def test_an_evaluation_counts_once_its_line_is_whole():
    log = Path("metrics.jsonl")
    assert not reached(log, 0.5)
    log.write_text('{"event": "train", "update": 1, "top1": 0.99}\n{"event": "eval", "top1": 0.4}\n')
    assert reached(log, 0.4)
    assert not reached(log, 0.5)
    log.write_text(log.read_text() + '{"event": "eval", "top1": 0.9')
    assert not reached(log, 0.5)
    log.write_text(log.read_text() + "8}\n")
    assert reached(log, 0.98)
    assert not reached(log, 0.981)


def test_pytorchs_accuracy_is_of_every_test_image_once():
    """Of a net that always says three: the share of threes."""
    torch = pytest.importorskip("torch")
    digits = open_dataset(recipe("digits"))
    labels = np.asarray(digits.test.labels)

    class AlwaysThree(torch.nn.Module):
        def forward(self, images):
            assert not self.training
            assert images.shape == (len(labels), 1, 16, 16)
            return torch.nn.functional.one_hot(torch.full((len(images),), 3), 10).float()

    assert torch_top1(AlwaysThree(), digits) == pytest.approx((labels == 3).mean())
