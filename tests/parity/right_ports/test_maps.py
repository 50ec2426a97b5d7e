"""Right ports agree with a map that changes signs or adds parameters."""

import json

import pytest
from mindspore import nn, ops

from resnet_fn.parity.pair.map_file import read_map
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import (
    SGD,
    ladder_of,
    ones,
    ours,
    stage_of,
    t,
    theirs,
    torch,
    vectors,
)

pytestmark = pytest.mark.usefixtures("device")


def two_terms(self, x):
    return self.head((self.first(x) + self.second(x.flip(0))).tanh() * torch.exp(-self.decay))


def one_bias(self, x):
    """One bias for two; the decay is kept negative."""
    return self.head(
        (self.first(x) + self.second(ops.reverse(x, [0]))).tanh() * ops.exp(self.minus)
    )


def with_map(corrections, optimizer, tmp_path, clip_norm=0.0):
    (tmp_path / "map.json").write_text(json.dumps(corrections))
    second = t.Linear(8, 8, bias="first.bias" in corrections)
    module = theirs(
        two_terms, first=t.Linear(8, 8), second=second, decay=t.Parameter(torch.rand(8))
    )
    net = ours(one_bias, first=nn.Dense(8, 8), second=nn.Dense(8, 8, has_bias=False), minus=ones(8))
    task = SGD.changed(optimizer=optimizer, nesterov=False, clip_norm=clip_norm)
    corrections = read_map(str(tmp_path / "map.json"))
    return ladder_of(net, module, vectors(3), task, corrections=corrections)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_sign_is_followed_through_all_stages(optimizer, tmp_path):
    ladder = with_map({"minus": "-decay"}, optimizer, tmp_path)
    assert ladder.agrees, table(ladder)


@pytest.mark.parametrize("clip_norm", [0.0, 0.1])
def test_a_sum_is_compared_until_each_part_counts(clip_norm, tmp_path):
    corrections = {"minus": "-decay", "first.bias": "first.bias + second.bias"}
    ladder = with_map(corrections, "sgd", tmp_path, clip_norm)
    assert (
        stage_of(ladder, "gradients").verdict == stage_of(ladder, "eval layers").verdict == "ok"
    ), table(ladder)
    assert title_of_stage(ladder.first_stage) == "gradient norm"
    assert any(
        line.startswith("first.bias: the sum of first.bias, second.bias in the")
        for line in ladder.changes
    )
    if not clip_norm:
        change = stage_of(ladder, "change by update 1")
        assert [item.name for item in change.differences if item.verdict == "DIFFERS"] == [
            "first.bias"
        ]
