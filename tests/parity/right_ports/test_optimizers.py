"""Right ports agree under each kind of optimizer, and with unusual parameters."""

from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.experimental import optim as experimental

from resnet_fn.parity.pair.map_file import read_map
from resnet_fn.parity.show.titles import doubt_of, title_of_stage
from small_nets import (
    ADAMW,
    SGD,
    Other,
    Ours,
    Pair,
    Theirs,
    agrees,
    cell,
    draw,
    labels,
    ladder_of,
    ones,
    ours,
    stage_of,
    t,
    theirs,
    torch,
    vector,
    vectors,
)

pytestmark = pytest.mark.usefixtures("device")


def in_groups(kind, rate: float, *settings, **named):
    """An optimizer of two groups, which are in another order than the net's layers."""

    def make(net):
        if isinstance(net, t.Module):
            last, first = net.head.parameters(), net.part.parameters()
        else:
            last, first = net.last.trainable_params(), net.layers.trainable_params()
        groups = [
            {"params": last, "lr": rate / 2, "weight_decay": 0.1},
            {"params": first, "lr": rate},
        ]
        return kind(groups, rate, *settings, **named)

    return make


VECTORS = (
    vector,
    lambda: Theirs(t.Linear(8, 8), t.Tanh()),
    lambda: Other(nn.Dense(8, 8), nn.Tanh()),
)


PAIRS = {
    "MindSpore's SGD, groups in another order": Pair(
        *VECTORS,
        options={"reference_optimizer": in_groups(torch.optim.SGD, 0.1, 0.9, nesterov=True)},
        optimizer=in_groups(nn.SGD, 0.1, 0.9, nesterov=True),
    ),
    "an experimental optimizer, in groups": Pair(
        *VECTORS,
        options={
            "reference_optimizer": in_groups(torch.optim.AdamW, 0.002, weight_decay=0.0),
            "mode": "pynative",
        },
        optimizer=in_groups(experimental.AdamW, 0.002, weight_decay=0.0),
        updates=3,
    ),
    "MindSpore's Momentum": Pair(
        *VECTORS,
        options={
            "reference_optimizer": lambda m: torch.optim.SGD(
                m.parameters(), 0.1, 0.9, weight_decay=0.1
            ),
            "mode": "pynative",
        },
        optimizer=lambda net: nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_port_of_each_kind_agrees(name):
    PAIRS[name].climb_compiled()


def ported_norm() -> nn.Cell:
    """weight = g v / |v|; g is a view, on which no operation may write."""

    def construct(self, x):
        weight = self.weight_g * self.weight_v / ops.sqrt((self.weight_v**2).sum(1, keepdims=True))
        return ops.matmul(x, weight.T) + self.bias

    norms = ops.norm(Parameter(Tensor(np.ones((8, 8), np.float32))).view((8, 8)), 2, 1)
    view = Parameter(Tensor(norms.view((8, 1))))
    return cell(construct, weight_g=view, weight_v=ones(8, 8), bias=ones(8))


def noisy(self, x):
    """A dense layer whose weight's gradient is off by 3e-5 of its size: some elements are smaller
    than that.
    """
    extra = (self.weight * NOISE).sum()
    return ops.matmul(x, self.weight.T) + self.bias + (extra - ops.stop_gradient(extra))


NOISE = Tensor(1e-5 * np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))


PORTS = {
    "elements whose gradient is rounding, of which Adam makes a change of the learning rate's size": Pair(
        lambda: (draw(6, 64) * np.where(np.arange(64) % 8, 1, 1e-6).astype(np.float32), labels(6)),
        lambda: Theirs(t.Linear(64, 8)),
        lambda: Ours(cell(noisy, weight=ones(8, 64), bias=ones(8))),
        ADAMW,
        updates=3,
    ),
    # PoolFormer where one pixel is left: its pool minus its input is zero, and so is the gradient
    # of its scale. In another kernel it is zero except for rounding, of which Adam makes whole
    # steps.
    "a gradient that is zero in the reference only": Pair(
        vector,
        lambda: theirs(
            lambda n, x: n.head(n.part(x) + n.scale * (n.part(x)[:, None].mean(1) - n.part(x))),
            t.Linear(8, 8),
            scale=t.Parameter(torch.full((8,), 1e-5)),
        ),
        lambda: ours(
            lambda n, x: n.head(n.part(x) + n.scale * (n.part(x) * 7.1 / 7.1 - n.part(x))),
            nn.Dense(8, 8),
            scale=ones(8),
        ),
        ADAMW,
        updates=3,
    ),
    "a parameter that is one number, as CLIP's logit_scale": Pair(
        vector,
        lambda: theirs(
            lambda n, x: n.head(x) * n.scale.exp(), scale=t.Parameter(torch.tensor(2.6592))
        ),
        lambda: ours(
            lambda n, x: n.head(x) * n.scale.exp(),
            scale=Parameter(Tensor(2.6592, mindspore.float32)),
        ),
        ADAMW,
        {"initialisation": True},
    ),
    "torch's old weight norm, whose computed weight cannot be copied deeply": Pair(
        vector, lambda: Theirs(t.utils.weight_norm(t.Linear(8, 8))), lambda: Ours(ported_norm())
    ),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the old weight norm
@pytest.mark.parametrize("name", PORTS)
def test_each_right_port_agrees(name):
    PORTS[name].climb()


def unused() -> tuple[nn.Cell, Any]:
    """A mask token and a pooler that no output depends on."""
    parts = {"pooler": t.Linear(8, 8), "token": t.Parameter(torch.randn(8))}
    module = theirs(Theirs.forward, t.Linear(8, 8), t.Sigmoid(), **parts)
    ported = {"pooler": nn.Dense(8, 8), "token": ones(8)}
    return ours(Ours.construct, nn.Dense(8, 8), nn.Sigmoid(), **ported), module


@pytest.mark.parametrize("use", [SGD, ADAMW], ids=["SGD", "AdamW"])
def test_parameters_that_no_side_uses_are_named(use):
    """torch gives them neither state nor weight decay; a line reports that."""
    ladder = agrees(*unused(), vectors(5), use.changed(decay_all=True))
    (line,) = [line for line in ladder.changes if "token" in line]
    assert "pooler.weight" in line
    assert "weight decay" in line


def test_an_optimizer_without_a_kernel_is_undecided():
    """The stages before its first update are decided, and a line names it."""
    net, module = Ours(nn.Dense(8, 8), nn.Sigmoid()), Theirs(t.Linear(8, 8), t.Sigmoid())
    optimizers = {
        "optimizer": mint.optim.AdamW(net.trainable_params(), lr=0.001, weight_decay=0.01),
        "reference_optimizer": lambda one: torch.optim.AdamW(one.parameters(), lr=0.001),
    }
    ladder = ladder_of(net, module, vectors(3), ADAMW, **optimizers)
    assert stage_of(ladder, "clipped gradients").verdict == "ok"
    assert [title_of_stage(stage) for stage in ladder.undecided] == [
        "change by update 1",
        "loss trajectory",
        "weights after update 2",
        "eval forward after the updates",
    ]
    assert ladder.first_stage is None
    assert "no update was made" in doubt_of(ladder.undecided[0])
    assert any("AdamW" in line for line in ladder.changes)


def test_a_parameter_without_a_counterpart_is_left_out(tmp_path):
    """Of the port's alone, and of no use: what the reference computes."""
    net, _ = unused()
    (tmp_path / "map.json").write_text('{"token": null, "pooler": null}')
    module = Theirs(t.Linear(8, 8), t.Sigmoid())
    ladder = agrees(net, module, vectors(), corrections=read_map(str(tmp_path / "map.json")))
    layers = {"part.0.weight", "part.0.bias", "head.weight", "head.bias"}
    assert {*ladder.names.parameters} == layers
    assert any("token, pooler.weight" in line for line in ladder.changes)
