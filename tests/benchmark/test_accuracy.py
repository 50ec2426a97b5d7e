"""When a growing log has an evaluation at the target; what PyTorch's side calls accuracy; all sides' processes."""

import json
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.benchmark.__main__ import main
from resnet_fn.benchmark.accuracy import reached, torch_top1
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.recipes import recipe


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


def test_accuracy_is_of_every_test_image_once():
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


@pytest.mark.slow
def test_all_sides_learn():
    """30 % of ten classes: no chance result, and seen after the first epochs of all."""
    pytest.importorskip("torch")
    assert main(["time-to-accuracy", "--rounds", "1", "--target", "0.3", "--json", "accuracy.json"]) == 0
    with open("accuracy.json", encoding="utf-8") as file:
        result = json.load(file)
    (ours,), (cached,), (torch,) = (result["seconds"][kind] for kind in ("ours", "ours_from_cache", "torch"))
    assert result["ratio"] == pytest.approx({"ours_from_cache": cached / ours, "torch": torch / ours})
    assert cached < ours  # compiling both functions takes five seconds
