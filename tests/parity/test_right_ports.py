"""Right ports of what real nets contain: each was accused, rejected or crashed before, and agrees."""

import collections
import dataclasses
from types import SimpleNamespace
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.experimental import optim as experimental

from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.name_map import read_map
from resnet_fn.parity.report import table
from resnet_fn.parity.trace import Batch
from small_nets import (
    ADAMW,
    SGD,
    DropPath,
    Ours,
    Pair,
    Theirs,
    agrees,
    cell,
    draw,
    labels,
    ladder_of,
    module,
    ones,
    ours,
    t,
    theirs,
    torch,
)

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")


def vector() -> Batch:
    return draw(6, 8), labels(6)


def vectors(updates: int = 2) -> list[Batch]:
    return [vector() for _ in range(updates)]


def qkv(kind: Any) -> dict[str, Any]:
    return {name: kind(8, 8) for name in "qkv"}


def tiny(module: Any) -> Any:
    for parameter in module.parameters():
        t.init.normal_(parameter, std=0.01)
    return module


def ordinal(module: Any) -> Any:
    """K levels passed: labels are 0 … K."""

    def loss(logits: Any, labels: Any) -> Any:
        levels = module.arange(logits.shape[1]) < labels[:, None]
        levels = levels.float()
        return (logits.sigmoid() - levels).pow(2).mean()

    return loss


class PortedNorm(nn.Cell):
    """weight = g v / |v|; g is a view, on which no operation may write."""

    def __init__(self) -> None:
        super().__init__()
        start = Parameter(Tensor(np.ones((8, 8), np.float32)), name="start")
        self.weight_g = Parameter(Tensor(ops.norm(start.view((8, 8)), 2, 1).view((8, 1))))
        self.weight_v, self.bias = ones(8, 8), ones(8)

    def construct(self, x: Tensor) -> Tensor:
        weight = self.weight_g * self.weight_v / ops.sqrt((self.weight_v**2).sum(1, keepdims=True))
        return ops.matmul(x, weight.T) + self.bias


def noisy(self: Any, x: Tensor) -> Tensor:
    """A dense layer whose weight's gradient is off by 3e-5 of its size: some elements are smaller than that."""
    extra = (self.weight * NOISE).sum()
    return ops.matmul(x, self.weight.T) + self.bias + (extra - ops.stop_gradient(extra))


class NormAct(t.BatchNorm2d):
    """timm's BatchNormAct2d: a BatchNorm and the activation after it."""

    def __init__(self, act: Any) -> None:
        super().__init__(8)
        self.act = act

    def forward(self, x: Any) -> Any:
        return self.act(super().forward(x))


def norm_and_act() -> nn.Cell:
    return Ours(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU())


def image() -> Batch:
    return draw(4, 3, 6, 6), labels(4)


def table_inside() -> Any:
    return module(lambda self, x: self.body(x) + self.table, table=t.Parameter(torch.ones(8)), body=t.Linear(8, 8))


def table_apart() -> nn.Cell:
    """MindCV's Swin has the position table in a cell of its own, torchvision in the attention."""
    bias = cell(lambda self: self.table * 1.0, table=ones(8))
    return cell(lambda self, x: self.body(x) + self.bias(), bias=bias, body=nn.Dense(8, 8))


NOISE = Tensor(1e-5 * np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))
LEAST = Tensor(np.triu(np.full((10, 10), np.finfo(np.float32).min), 1))
ORDINAL = {"loss": ordinal(ops), "reference_loss": ordinal(torch)}
PORTS = {
    "a key bias under Adam: its gradient is 1e-10, its variance 1e-30, whose square is 0 in float32": Pair(
        lambda: (1e-2 * draw(4, 5, 8), labels(4)),
        lambda: tiny(theirs(lambda n, x: n.head(((n.q(x) @ n.k(x).mT).softmax(-1) @ n.v(x)).mean(1)), **qkv(t.Linear))),
        lambda: ours(
            lambda n, x: n.head(ops.bmm(ops.softmax(ops.bmm(n.q(x), n.k(x).swapaxes(1, 2)), -1), n.v(x)).mean(1)),
            **qkv(nn.Dense),
        ),
        ADAMW,
    ),
    "elements whose gradient is rounding, of which Adam makes a change of the learning rate's size": Pair(
        lambda: (draw(6, 64) * np.where(np.arange(64) % 8, 1, 1e-6).astype(np.float32), labels(6)),
        lambda: Theirs(t.Linear(64, 8)),
        lambda: Ours(cell(noisy, weight=ones(8, 64), bias=ones(8))),
        ADAMW,
        updates=3,
    ),
    "inputs by name, which are no prefix": Pair(
        lambda: ({"types": draw(6, 8), "ids": draw(6, 8)}, labels(6)),
        lambda: theirs(lambda n, ids, mask=None, types=None, scale=0.5: n.head(scale * (ids + types))),
        lambda: ours(lambda n, ids, mask=None, types=None, scale=0.5: n.head(scale * (ids + types))),
    ),
    "sequence first, a scalar, and no labels": Pair(
        lambda: ((draw(5, 4, 8), np.array(0.5, np.float32)), None),
        lambda: theirs(lambda n, x, time: n.head((x * time).mean(0))),
        lambda: ours(lambda n, x, time: n.head((x * time).mean(0))),
        options=dict.fromkeys(("loss", "reference_loss"), lambda outputs, _: (outputs**2).mean()),
    ),
    "a graph: nodes and edges, of other numbers": Pair(
        lambda: ((draw(5, 8), np.random.randint(0, 5, (2, 7)).astype(np.int32)), labels(5)),
        lambda: theirs(lambda n, x, edges: n.head(x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]))),
        lambda: ours(lambda n, x, edges: n.head(x + ops.index_add(ops.zeros_like(x), edges[1], x[edges[0]], 0))),
    ),
    "a mask in the default dtype, of the least number of the input's, as in CLIP": Pair(
        lambda: (draw(4, 5, 8), labels(4)),
        lambda: theirs(
            lambda n, x: n.head(
                ((x @ x.mT + torch.full((5, 5), torch.finfo(x.dtype).min).triu(1)).softmax(-1) @ x).mean(1)
            )
        ),
        lambda: ours(
            lambda n, x: n.head(
                ops.bmm(ops.softmax(ops.bmm(x, x.swapaxes(1, 2)) + LEAST[: x.shape[1], : x.shape[1]], -1), x).mean(1)
            )
        ),
    ),
    # PoolFormer where one pixel is left: its pool minus its input is zero, and so is the gradient of its scale. In
    # another kernel it is zero except for rounding, of which Adam makes whole steps.
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
        lambda: theirs(lambda n, x: n.head(x) * n.scale.exp(), scale=t.Parameter(torch.tensor(2.6592))),
        lambda: ours(lambda n, x: n.head(x) * n.scale.exp(), scale=Parameter(Tensor(2.6592, mindspore.float32))),
        ADAMW,
        {"initialisation": True},
    ),
    "labels that are no class": Pair(
        lambda: (draw(6, 8), np.array([3, 0, 1, 2, 3, 1], np.int32)), Theirs, Ours, options=ORDINAL
    ),
    "torch's old weight norm, whose computed weight cannot be copied deeply": Pair(
        vector, lambda: Theirs(t.utils.weight_norm(t.Linear(8, 8))), lambda: Ours(PortedNorm())
    ),
    "a layer that stands for two": Pair(
        image, lambda: Theirs(t.Conv2d(3, 8, 1, bias=False), NormAct(t.ReLU())), norm_and_act
    ),
    "a table in a part of its own, which is not compared with the whole layer": Pair(
        vector,
        lambda: theirs(lambda n, x: n.head(n.bias(x)), bias=table_inside()),
        lambda: ours(lambda n, x: n.head(n.body(x)), body=table_apart()),
    ),
    "a lazy layer": Pair(vector, lambda: Theirs(t.LazyLinear(8)), lambda: Ours(nn.Dense(8, 8))),
    "dropout that moves past a ReLU, which computes the same": Pair(
        vector,
        lambda: Theirs(t.Linear(8, 8), t.Dropout(0.4), t.ReLU(), t.Linear(8, 8), t.ReLU(), t.Dropout(0.4)),
        lambda: Ours(nn.Dense(8, 8), nn.ReLU(), nn.Dropout(p=0.4), nn.Dense(8, 8), nn.Dropout(p=0.4), nn.ReLU()),
    ),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the old weight norm
@pytest.mark.parametrize("name", PORTS)
def test_it_agrees(name):
    PORTS[name].climb()


def test_a_layer_that_stands_for_two_others_differs():
    module = Theirs(t.Conv2d(3, 8, 1, bias=False), NormAct(t.SiLU()))
    ladder = ladder_of(norm_and_act(), module, [image()], quick=True, mode="pynative")
    assert (ladder.first_stage.name, ladder.first_layer.name) == ("eval forward", "part.1"), table(ladder)


def unused() -> tuple[nn.Cell, Any]:
    """A mask token and a pooler that no output depends on."""
    module = theirs(Theirs.forward, t.Linear(8, 8), t.Sigmoid(), pooler=t.Linear(8, 8))
    module.token = t.Parameter(torch.randn(8))
    return ours(Ours.construct, nn.Dense(8, 8), nn.Sigmoid(), pooler=nn.Dense(8, 8), token=ones(8)), module


@pytest.mark.parametrize("use", [SGD, ADAMW], ids=["SGD", "AdamW"])
def test_parameters_that_no_side_uses(use):
    """torch gives them neither state nor weight decay; a line reports that."""
    ladder = agrees(*unused(), vectors(5), dataclasses.replace(use, decay_all=True))
    (line,) = [line for line in ladder.changed if "token" in line]
    assert "pooler.weight" in line
    assert "weight decay" in line


class Output(collections.OrderedDict):
    """As the outputs of transformers: a dict with attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Cache:
    """Keys and values in an object of its own."""


def test_a_dict_of_outputs_against_a_tuple():
    """Without a loss: the recipe's, of `logits`. Outputs are paired by order and shape; what we have more is named."""

    def forward(self, x):
        hidden = self.part(x)
        return Output(logits=self.head(hidden), past_key_values=Cache(), hidden_states=(x, hidden))

    def construct(self, x):
        hidden = self.part(x)
        return self.head(hidden), (hidden[:, :4], hidden[:, 4:]), (x, hidden)

    net, module = ours(construct, nn.Dense(8, 8), nn.Sigmoid()), theirs(forward, t.Linear(8, 8), t.Sigmoid())
    ladder = agrees(net, module, vectors())
    stages = {stage.name: stage for stage in ladder.stages}
    assert len(stages["eval forward"].differences) == len(stages["train forward"].differences) == 3
    assert "logits 1 0" in stages["eval forward"].note


def test_outputs_without_logits_need_a_loss():
    module = theirs(lambda self, x: Output(boxes=self.head(x), scores=x))
    with pytest.raises(ValueError, match=r"boxes.*--loss"):
        ladder_of(Ours(nn.Sigmoid()), module, vectors())


def test_labels_that_do_not_fit_are_named():
    batches = [(draw(6, 8), labels(5))] * 2
    with pytest.raises(ValueError, match=r"\[6, 3\].*\[5\].*--loss"):
        ladder_of(Ours(nn.Sigmoid()), Theirs(t.Sigmoid()), batches)


def test_one_number_is_no_constant_unless_it_is_on_one_side():
    """The bias of Linear(8, 1), whose number is drawn; MindSpore's Dense draws it likewise. No label is a class."""
    net, module = Ours(nn.Sigmoid(), classes=1), Theirs(t.Sigmoid(), classes=1)
    batches = [(draw(6, 8), np.array([1, 0, 1, 1, 0, 1], np.int32))] * 2
    agrees(net, module, batches, initialisation=True, **ORDINAL)
    net = Ours(nn.Sigmoid(), classes=1)
    ops.assign(net.head.bias, ops.zeros_like(net.head.bias))
    ladder = ladder_of(net, module, batches, initialisation=True, quick=True, mode="pynative", **ORDINAL)
    assert ladder.first_stage.name == "initialisation"


def test_a_reference_that_writes_into_its_input():
    """And whose ReLU writes into what the layer before it gave."""

    def forward(self, x):
        x += 1
        return self.head(self.part(x))

    def construct(self, x):
        return self.head(self.part(x + 1))

    batches = vectors()
    kept = [batch[0].copy() for batch in batches]
    net = ours(construct, nn.Dense(8, 8), nn.ReLU())
    ladder = agrees(net, theirs(forward, t.Linear(8, 8), t.ReLU(inplace=True)), batches)
    assert all(np.array_equal(one, batch[0]) for one, batch in zip(kept, batches, strict=True))
    assert all(item.input.relative < 1e-6 for item in ladder.layers)


def test_batches_that_change_while_they_are_used():
    """Both sides see them as they were at first."""
    batches = vectors()

    def loss(logits: Any, labels: Any) -> Any:
        batches[0][0][0] += 1
        return F.cross_entropy(logits, labels.long())

    net = Ours(nn.Sigmoid())
    agrees(net, Theirs(t.Sigmoid()), batches, reference_loss=loss, loss=ops.cross_entropy)


def refuse(x: Any) -> Any:
    return torch.nn.functional.linear(x, torch.ones(3, 5))


def test_what_fails_in_float64_is_named_by_the_reference_s_line():
    def forward(self, x):
        return self.head(self.part(x)) if x.dtype == torch.float32 else refuse(x)

    with pytest.raises(ValueError) as error:
        ladder_of(Ours(nn.Sigmoid()), theirs(forward, t.Sigmoid()), vectors())
    assert "functional.linear(x, torch.ones(3, 5))" in str(error.value)
    assert __file__ in str(error.value)


class LayerDrop(Theirs):
    """Layers that are skipped at random in training, by a share in a configuration."""

    def __init__(self, share: Any) -> None:
        super().__init__(t.Linear(8, 8), t.Linear(8, 8), t.Linear(8, 8))
        self.config = SimpleNamespace(layerdrop=share)

    def forward(self, x: Any) -> Any:
        for layer in self.part:
            if not (self.training and torch.rand([]) < self.config.layerdrop):
                x = torch.sigmoid(layer(x))
        return self.head(x)


class PortedLayerDrop(Ours):
    def __init__(self) -> None:
        super().__init__(nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 8))
        self.layerdrop = 0.5

    def construct(self, x: Tensor) -> Tensor:
        for layer in self.part:
            if not (self.training and self.layerdrop > 0 and np.random.uniform() < self.layerdrop):
                x = ops.sigmoid(layer(x))
        return self.head(x)


@pytest.mark.parametrize("share", [0.5, torch.tensor(0.5)])
def test_layers_that_are_dropped(share):
    ladder = agrees(PortedLayerDrop(), LayerDrop(share), vectors(), ADAMW)
    (stage,) = [stage for stage in ladder.stages if stage.name == "dropout"]
    assert [(item.ours, item.theirs) for item in stage.differences] == [(0.5, 0.5)]


def test_layers_that_are_dropped_by_what_is_no_number():
    """No crash: what is random is named."""
    module = LayerDrop(torch.tensor([0.5]))
    ladder = ladder_of(PortedLayerDrop(), module, vectors(), ADAMW, quick=True, mode="pynative")
    assert ladder.first_stage is None
    assert "random" in ladder.undecided[-1].doubt


def fused(share: float) -> Ladder:
    """The share of a dropout layer that does not run is a function's; the port drops `share`."""

    def forward(self, x):
        p = self.drop.p if self.training else 0.0
        return self.head(self.part(F.scaled_dot_product_attention(x, x, x, dropout_p=p)).mean(1))

    def construct(self, x):
        scores = self.drop(ops.softmax(ops.bmm(x, x.swapaxes(1, 2)) / 8**0.5, -1))
        return self.head(self.part(ops.bmm(scores, x)).mean(1))

    module = theirs(forward, t.Linear(8, 8), t.Dropout(0.2), drop=t.Dropout(0.1))
    net = ours(construct, nn.Dense(8, 8), nn.Dropout(p=0.2), drop=nn.Dropout(p=share))
    return ladder_of(net, module, [(draw(4, 5, 8), labels(4))] * 2, quick=True, mode="pynative")


def test_dropout_inside_a_fused_attention():
    assert fused(0.1).agrees
    assert fused(0.3).first_stage.name == "dropout"


def steps(dtype: Any) -> np.ndarray:
    """A table computed in `dtype`, then float32."""
    return (dtype(1) / dtype(10000) ** (np.arange(40, dtype=dtype).reshape(5, 8) / dtype(40))).astype(np.float32)


@pytest.mark.parametrize(("more", "verdict"), [(0, "ok"), (1e-6, "DIFFERS")])
def test_a_table_computed_in_float32(more, verdict):
    table = steps(np.float32) + np.float32(more)
    assert not np.array_equal(table, steps(np.float64))

    def forward(self, x):
        return self.head(self.part(x + self.table)).mean(1)

    module = theirs(forward, t.Sigmoid())
    module.register_buffer("table", torch.from_numpy(steps(np.float64)))
    net = ours(forward, nn.Sigmoid(), table=Parameter(Tensor(table), requires_grad=False))
    ladder = ladder_of(net, module, [(draw(4, 5, 8), labels(4))] * 2, quick=True, mode="pynative")
    (stage,) = [stage for stage in ladder.stages if stage.name == "untrained arrays"]
    assert stage.verdict == verdict
    assert ("table" in stage.note) == (not more)


def test_the_same_in_other_words_is_not_set_differently():
    """Padding in a function, a Hardtanh for a ReLU6, nothing for a dropout of 0."""

    def construct(self, x):
        return self.head(self.part(ops.pad(x, (1,) * 4)).mean((2, 3)))

    conv = nn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True)
    net = ours(construct, conv, nn.Hardtanh(0.0, 6.0), nn.Identity())
    module = Theirs(t.Conv2d(3, 8, 3, padding=1), t.ReLU6(), t.Dropout(0.0))
    assert agrees(net, module, [(draw(4, 3, 8, 8), labels(4))] * 2).notes == []


def test_both_sides_draw_in_evaluation():
    """As a variational encoder."""

    def forward(self, x):
        x = self.part(x)
        return self.head(x + torch.randn_like(x))

    def construct(self, x):
        x = self.part(x)
        return self.head(x + Tensor(draw(*x.shape)))

    ladder = ladder_of(
        ours(construct, nn.Sigmoid()), theirs(forward, t.Sigmoid()), vectors(), quick=True, mode="pynative"
    )
    assert ladder.first_stage is None, table(ladder)
    assert {"eval forward", "loss"} <= {stage.name for stage in ladder.undecided}
    assert "dropout" not in table(ladder)


def like_torch(net: nn.Cell) -> Any:
    """Groups in another order, each with its own rate and weight decay."""
    first, last = net.part.trainable_params(), net.head.trainable_params()
    groups = [{"params": last, "lr": 0.002}, {"params": first, "weight_decay": 0.0}]
    return experimental.AdamW(groups, lr=0.001, weight_decay=0.1)


def of_torch(module: Any) -> Any:
    groups = [
        {"params": module.part.parameters(), "weight_decay": 0.0},
        {"params": module.head.parameters(), "lr": 0.002},
    ]
    return torch.optim.AdamW(groups, lr=0.001, weight_decay=0.1)


def test_an_experimental_optimizer_in_groups():
    net = Ours(nn.Dense(8, 8), nn.Sigmoid())
    module = Theirs(t.Linear(8, 8), t.Sigmoid())
    ladder = agrees(net, module, vectors(3), ADAMW, optimizer=like_torch(net), reference_optimizer=of_torch)
    compared = {stage.name for stage in ladder.stages if stage.differences}
    assert {"optimizer settings", "optimizer alone", "loss trajectory"} <= compared


def test_an_optimizer_without_a_kernel_is_not_run():
    """The other stages are decided, and a line names it."""
    net = Ours(nn.Dense(8, 8), nn.Sigmoid())
    module = Theirs(t.Linear(8, 8), t.Sigmoid())
    optimizer = mint.optim.AdamW(net.trainable_params(), lr=0.001, weight_decay=0.01)
    own = {"optimizer": optimizer, "reference_optimizer": lambda one: torch.optim.AdamW(one.parameters(), lr=0.001)}
    ladder = agrees(net, module, vectors(3), ADAMW, **own)
    stages = {stage.name: stage for stage in ladder.stages}
    assert stages["clipped gradients"].verdict == "ok"
    assert "not run here" in stages["change by update 1"].note
    assert any("AdamW" in line for line in ladder.changed)


def test_a_parameter_without_a_counterpart_is_left_out(tmp_path):
    """Of the port's alone, and of no use: what the reference computes."""
    net, _ = unused()
    (tmp_path / "map.json").write_text('{"token": null, "pooler": null}')
    module = Theirs(t.Linear(8, 8), t.Sigmoid())
    ladder = agrees(net, module, vectors(), corrections=read_map(str(tmp_path / "map.json")))
    assert set(ladder.names.parameters) == {"part.0.weight", "part.0.bias", "head.weight", "head.bias"}
    assert any("token, pooler.weight" in line for line in ladder.changed)


@pytest.mark.parametrize("batch", [(), (1,)])
def test_positions_that_one_side_looks_up_for_each_sample(batch):
    batches = [(np.random.randint(0, 9, (6, 5)), labels(6)) for _ in range(2)]

    def each(self, x):
        places = torch.arange(5, device=x.device).expand(len(x), 5)
        return self.head(torch.tanh(self.token(x) + self.position(places)).mean(1))

    def once(self, x):
        return self.head(ops.tanh(self.token(x) + self.position(self.places)).mean(1))

    def net(first):
        places = Tensor(np.broadcast_to((np.arange(5) + first) % 5, (*batch, 5)).astype(np.int32))
        return ours(once, token=nn.Embedding(9, 8), position=nn.Embedding(5, 8), places=places)

    module = theirs(each, token=t.Embedding(9, 8), position=t.Embedding(5, 8))
    agrees(net(0), module, batches)
    layer = ladder_of(net(1), module, batches, quick=True, mode="pynative").first_layer
    assert layer is not None
    assert layer.name == "position"


class PortedPath(nn.Cell):
    """Drop-path as in MindCV: a dropout layer inside."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.keep_prob, self.dropout = 1 - share, nn.Dropout(p=share)

    def construct(self, x: Tensor) -> Tensor:
        if self.keep_prob == 1.0 or not self.training:
            return x
        return x * self.dropout(ops.ones((x.shape[0],) + (1,) * (x.ndim - 1), x.dtype))


def perceptron(self: Any, x: Any) -> Any:
    x = x + self.path(self.drop(self.fc2(self.drop(F.gelu(self.fc1(x))))))
    return self.head(x.mean(1))


def ported_perceptron(self: Any, x: Tensor) -> Tensor:
    x = x + self.skip(self.of_down(self.down(self.of_up(ops.gelu(self.up(x), approximate="none")))))
    return self.head(x.mean(1))


@pytest.mark.parametrize("use", [SGD, dataclasses.replace(ADAMW, clip_norm=0.1)])
def test_a_branch_with_dropout(use):
    """One dropout layer that runs twice is two here; the first update is made once more, with the same masks."""
    layers = {"fc1": t.Linear(8, 16), "fc2": t.Linear(16, 8), "drop": t.Dropout(0.1), "path": DropPath(0.3)}
    drops = {"of_up": nn.Dropout(p=0.1), "of_down": nn.Dropout(p=0.1), "skip": PortedPath(0.3)}
    net = ours(ported_perceptron, up=nn.Dense(8, 16), down=nn.Dense(16, 8), **drops)
    batches = [(draw(6, 5, 8), labels(6)) for _ in range(2)]
    ladder = agrees(net, theirs(perceptron, **layers), batches, use, quick=False, mode="graph")
    compared = {stage.name: stage for stage in ladder.stages}
    for name in ("train forward", "train layers", "loss", "gradients", "change by update 1"):
        assert compared[f"{name}, with dropout"].differences
    assert len(compared["dropout"].differences) == 3
    assert compared["loss"].worst.theirs != compared["loss, with dropout"].worst.theirs


@pytest.mark.parametrize("accumulate", [1, 2])
def test_dropout_with_channels_last(accumulate):
    module = t.Sequential(
        t.Conv2d(3, 4, 1), t.Dropout(0.3), t.Conv2d(4, 4, 1), t.Dropout2d(0.3), t.Flatten(), t.Linear(80, 3)
    )

    class Last(nn.Cell):
        """The first layers have channels last; a dropout of channels is written for that."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Dense(3, 4), nn.Dense(4, 4), nn.Dense(80, 3)
            self.drop, self.channels = nn.Dropout(p=0.3), nn.Dropout2d(0.3)

        def construct(self, x: Tensor) -> Tensor:
            x = self.b(self.drop(self.a(x.transpose(0, 2, 3, 1))))
            return self.head(self.channels(x.transpose(0, 3, 1, 2)).reshape(-1, 80))

    ladder = agrees(Last(), module, [(draw(4, 3, 5, 4), labels(4))] * 2, accumulate=accumulate)
    assert any(stage.name == "gradients, with dropout" for stage in ladder.stages)


def test_dropout_inside_an_lstm_is_compared_by_its_share():
    def forward(self, x):
        return self.head(self.drop(self.lstm(x)[0].mean(1)))

    lstm, ported = (kind(8, 8, 2, batch_first=True, dropout=0.2) for kind in (t.LSTM, nn.LSTM))
    module, net = theirs(forward, lstm=lstm, drop=t.Dropout(0.1)), ours(forward, lstm=ported, drop=nn.Dropout(p=0.1))
    ladder = agrees(net, module, [(draw(4, 5, 8), labels(4))] * 2)
    (stage,) = [stage for stage in ladder.stages if stage.name == "dropout"]
    assert "lstm" in stage.note
    assert "drop" not in stage.note.replace("dropout", "")
    assert any(stage.name == "gradients, with dropout" for stage in ladder.stages)


@pytest.mark.parametrize(("share", "differs"), [(0.2, False), (0.3, True)])
def test_dropout_of_scores_inside_a_fused_attention_here(share, differs):
    """The reference's mask has no place here: the share alone is compared, a line names it, and no mask is."""

    def forward(self, x):
        q, k, v = (part(x).reshape(4, 5, 2, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = self.attn_drop((q @ k.transpose(2, 3) / 2).softmax(-1)) @ v
        return self.head(self.drop(self.out_proj(mixed.transpose(1, 2).reshape(4, 5, 8))).mean(1))

    def construct(self, x):
        return self.head(self.drop(self.attn(x, x, x)[0]).mean(1))

    layers = {name: t.Linear(8, 8) for name in ("q", "k", "v", "out_proj")}
    module = theirs(forward, **layers, attn_drop=t.Dropout(0.2), drop=t.Dropout(0.1))
    net = ours(construct, attn=nn.MultiheadAttention(8, 2, dropout=share, batch_first=True), drop=nn.Dropout(p=0.1))
    ladder = ladder_of(net, module, [(draw(4, 5, 8), labels(4))] * 2, quick=True, mode="pynative")
    (stage,) = [stage for stage in ladder.stages if stage.name == "dropout"]
    assert (stage.verdict, ladder.agrees) == (("DIFFERS", False) if differs else ("ok", True)), table(ladder)
    assert ("attn" in stage.note) != differs
    assert not any("with dropout" in stage.name for stage in ladder.stages)
