"""--map with a sum and a sign: forward and gradients agree; that a sum is trained as two parameters is named."""

import dataclasses
import json

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.name_map import read_map
from resnet_fn.parity.report import table
from small_nets import SGD, ladder_of, torch

pytestmark = pytest.mark.usefixtures("device")

RNG = np.random.default_rng(0)
BATCHES = [(RNG.normal(size=(6, 8)).astype(np.float32), np.array([0, 1, 2] * 2, np.int32)) for _ in range(3)]


class Theirs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 5), torch.nn.Linear(8, 5)
        self.decay, self.head = torch.nn.Parameter(torch.rand(5)), torch.nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.first(x) + self.second(x.flip(0))) * torch.exp(-self.decay))


class Ours(nn.Cell):
    """One bias for two; the decay is kept negative."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(8, 5), nn.Dense(8, 5, has_bias=False)
        self.minus, self.head = Parameter(Tensor(np.zeros(5, np.float32))), nn.Dense(5, 3)

    def construct(self, x):
        x = ops.tanh(self.first(x) + self.second(ops.reverse(x, [0])))
        return self.head(x * ops.exp(self.minus))


def climb(corrections, optimizer, tmp_path, clip_norm=0.0):
    (tmp_path / "map.json").write_text(json.dumps(corrections))
    module = Theirs()
    if "first.bias" not in corrections:
        module.second.bias = None
    task = dataclasses.replace(SGD, optimizer=optimizer, nesterov=False, clip_norm=clip_norm)
    corrections = read_map(str(tmp_path / "map.json"))
    return ladder_of(Ours(), module, BATCHES, task, corrections=corrections, quick=True, mode="pynative")


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_sign_is_followed_through_all_stages(optimizer, tmp_path):
    ladder = climb({"minus": "-decay"}, optimizer, tmp_path)
    assert ladder.agrees, table(ladder)


@pytest.mark.parametrize("clip_norm", [0.0, 0.1])
def test_a_sum_is_compared_until_each_part_counts(clip_norm, tmp_path):
    corrections = {"minus": "-decay", "first.bias": "first.bias + second.bias"}
    ladder = climb(corrections, "sgd", tmp_path, clip_norm)
    verdicts = {stage.name: stage.verdict for stage in ladder.stages}
    assert verdicts["gradients"] == verdicts["eval layers"] == "ok", table(ladder)
    assert ladder.first_stage.name == "gradient norm"
    assert any(line.startswith("first.bias: the sum of first.bias, second.bias in the") for line in ladder.changed)
    if not clip_norm:
        (change,) = [stage for stage in ladder.stages if stage.name == "change by update 1"]
        assert [item.name for item in change.differences if item.verdict == "DIFFERS"] == ["first.bias"]
