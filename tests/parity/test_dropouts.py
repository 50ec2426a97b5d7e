"""Dropout: evaluated at its real rates, compiled as trained, and each with a mask of its own."""

import dataclasses
import functools

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.show.table import table
from resnet_fn.parity.trace.stages import DROPOUT, EVAL_FORWARD, TRAIN_FORWARD
from small_nets import (
    DropPath,
    Ours,
    Theirs,
    cell,
    ladder_of,
    module,
    ours,
    recording_of,
    t,
    theirs,
    torch,
)

RNG = np.random.default_rng(0)
LABELS = (np.arange(8) % 3).astype(np.int32)
BATCHES = [(RNG.normal(size=(8, 8)).astype(np.float32), LABELS) for _ in range(2)]

pytestmark = pytest.mark.usefixtures("device")


def check(port, reference, stage, batches=BATCHES, **options):
    """The ladder, which differs first in this stage; None: in none.

    It is compiled, unless evaluation differs.
    """
    mode = "pynative" if stage == EVAL_FORWARD else "graph"
    ladder = ladder_of(port, reference, batches, **{"mode": mode, **options})
    assert (ladder.first_stage and ladder.first_stage.id) == stage, table(ladder)
    assert ladder.agrees == (stage is None)
    return ladder


def dropped(drop):
    def construct(self, x):
        return self.head(self.drop(ops.tanh(self.part(x))))

    return ours(construct, nn.Dense(8, 8), drop=drop)


def drop_path(fault=""):
    def construct(self, x):
        keep = 1 - self.drop_prob
        if fault == "factor in evaluation" and not self.training:
            return x * keep
        if fault == "sign where it drops" and self.drop_prob > 0:
            x = 0.5 * x
        if self.drop_prob == 0 or not self.training:
            return x
        if fault == "frozen":
            return x * Tensor((np.random.rand(8, 1) < keep).astype(np.float32) / keep)
        return x * ops.bernoulli(ops.ones((x.shape[0], 1), mindspore.float32), keep) / keep

    return cell(construct, drop_prob=0.3)


@functools.cache
def with_drop_path():
    def forward(self, x):
        return self.head(self.drop(torch.tanh(self.part(x))))

    return recording_of(theirs(forward, t.Linear(8, 8), drop=DropPath(0.3)), BATCHES)


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("", None),
        ("factor in evaluation", EVAL_FORWARD),
        ("sign where it drops", EVAL_FORWARD),
        ("frozen", DROPOUT),
    ],
)
def test_faults_at_real_dropout_rates_are_found(fault, stage):
    """Compiled evaluation has them, too."""
    options = {"mode": "graph"} if fault == "factor in evaluation" else {}
    check(dropped(drop_path(fault)), with_drop_path(), stage, **options)


def _unchanged(cell, args):
    return args


def _doubled(cell, args):
    return (args[0] * 2,)


@pytest.mark.parametrize(("fault", "hook"), [("", _doubled), ("frozen", _unchanged)])
def test_dropping_layers_with_hooks_are_compiled(fault, hook):
    def halved(self, x):
        return self.inner(x * 0.5)

    path = drop_path(fault)
    if hook is _doubled:
        path = cell(halved, drop_prob=0.3, inner=path)
    port = dropped(path)
    path.register_forward_pre_hook(hook)
    check(port, with_drop_path(), DROPOUT if fault else None)


@pytest.mark.parametrize("fault", ["", "frozen"])
def test_dropping_layers_given_keywords_are_compiled(fault):
    """No mask is recognised, because the layer adds what it drops."""

    def added(self, x, branch):
        keep = 1 - self.drop_prob
        if keep == 1 or not self.training:
            return x + branch
        if fault:
            mask = Tensor((np.random.rand(8, 1) < keep).astype(np.float32))
        else:
            mask = ops.bernoulli(ops.ones((x.shape[0], 1), mindspore.float32), keep)
        return x + branch * mask / keep

    def construct(self, x):
        return self.head(self.add(x, branch=ops.tanh(self.part(x))))

    def forward(self, x):
        return self.head(self.add(x, branch=torch.tanh(self.part(x))))

    class Added(DropPath):
        def forward(self, x, branch):
            return x + super().forward(branch)

    reference = theirs(forward, t.Linear(8, 8), add=Added(0.3))
    port = ours(construct, nn.Dense(8, 8), add=cell(added, drop_prob=0.3))
    check(port, reference, DROPOUT if fault else None)


@pytest.mark.parametrize("fault", ["mode", "condition"])
def test_a_layer_that_never_drops_is_no_dropout(fault):
    """Drop path as MindCV writes it, by a layer inside that drops ones."""

    def construct(self, x):
        skips = self.drop_prob == 0 or self.training == (fault == "mode")
        if skips != (fault == "condition"):
            return x
        return x * self.drop(ops.ones((x.shape[0], 1), x.dtype))

    drop = cell(construct, drop_prob=0.3, drop=nn.Dropout(p=0.3))
    check(dropped(drop), with_drop_path(), DROPOUT)


@pytest.mark.parametrize(("fault", "stage"), [("", None), ("factor in evaluation", EVAL_FORWARD)])
def test_evaluation_has_real_rates_uncompiled(fault, stage):
    net = dropped(drop_path(fault))
    check(net, with_drop_path(), stage, mode="pynative")
    assert net.drop.drop_prob == 0.3


@pytest.mark.parametrize("factor", [1.0, np.inf])
def test_infinity_where_the_port_drops_is_found(factor):
    """Its dropout does not run at a rate of 0, so that no mask is recognised."""

    def kept(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        mask = self.dropout(ops.ones((x.shape[0], 1), x.dtype))
        return ops.where(mask == 0, (factor - 1) * (1 + ops.abs(x)), x * mask)

    def forward(n, x):
        return n.head(x + n.path(n.part(x)))

    path = cell(kept, drop_prob=0.4, dropout=nn.Dropout(p=0.4))
    port = ours(forward, nn.Dense(8, 8), path=path)
    reference = theirs(forward, t.Linear(8, 8), path=DropPath(0.4))
    ladder = check(port, reference, None if factor == 1 else DROPOUT, mode="pynative")
    if factor != 1:
        hint = "path.dropout: where it drops, the port alone returns infinity or NaN"
        assert hint in ladder.first_stage.hints


@functools.cache
def with_stochastic_depth():
    def forward(self, x):
        h = torch.tanh(self.part(x))
        if not self.training:
            return self.head(x + h * (1 - self.drop_prob))
        return self.head(x + h * (torch.rand(len(x), 1) >= self.drop_prob))

    return recording_of(theirs(forward, t.Linear(8, 8), drop_prob=0.3), BATCHES)


@pytest.mark.parametrize(
    ("train", "evaluation", "stage"),
    [(False, True, None), (True, True, DROPOUT), (False, False, EVAL_FORWARD)],
)
def test_wrong_factors_of_stochastic_depth_are_found(train, evaluation, stage):
    """Stochastic depth by hand."""

    def construct(self, x):
        h = ops.tanh(self.part(x))
        if not self.training:
            h = h * (1 - self.drop_prob) if evaluation else h
        elif self.drop_prob > 0:
            h = h * (ops.rand(x.shape[0], 1) >= self.drop_prob)
            h = h / (1 - self.drop_prob) if train else h
        return self.head(x + h)

    port = ours(construct, nn.Dense(8, 8), drop_prob=0.3)
    check(port, with_stochastic_depth(), stage)


NAMES = ("scores", "fc1", "fc2")


@functools.cache
def with_two_dropouts():
    def forward(self, x):
        x = x * self.drop_scores(torch.sigmoid(self.scores(x)))
        return self.fc2(self.between(torch.tanh(self.fc1(x))))

    parts = {name: t.Linear(8, 8) for name in NAMES}
    drops = {"drop_scores": t.Dropout(0.1), "between": t.Dropout(0.2)}
    return recording_of(Theirs(module(forward, **parts, **drops)), BATCHES)


@pytest.mark.parametrize(
    ("place", "share", "stage"),
    [
        ("between", 0.1, None),
        ("after", 0.1, dataclasses.replace(TRAIN_FORWARD, masked=True)),
        ("between", 0.9, DROPOUT),
    ],
)
def test_a_dropout_without_a_mask_leaves_others_theirs(place, share, stage):
    def construct(self, x):
        if self.dropout > 0:
            scores = ops.dropout(ops.sigmoid(self.scores(x)), share, self.training)
        else:
            scores = ops.sigmoid(self.scores(x))
        x = x * scores
        if place == "after":
            return self.between(self.fc2(ops.tanh(self.fc1(x))))
        return self.fc2(self.between(ops.tanh(self.fc1(x))))

    layers = {name: nn.Dense(8, 8) for name in NAMES}
    port = cell(construct, **layers, dropout=0.1, between=nn.Dropout(p=0.2))
    ladder = check(Ours(port), with_two_dropouts(), stage)
    assert any(one.id.masked for one in ladder.stages)


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_state_that_evaluation_carries_is_compared(mode):
    def construct(self, x):
        h = ops.tanh(self.part(x) + self.carried)
        ops.assign(self.carried, ops.stop_gradient(h).mean(0))
        return self.head(h)

    def forward(self, x):
        h = torch.tanh(self.part(x) + self.carried)
        self.carried = h.detach().mean(0)
        return self.head(h)

    carried = Parameter(Tensor(np.zeros(8, np.float32)), requires_grad=False)
    net, reference = (
        ours(construct, nn.Dense(8, 8), carried=carried),
        theirs(forward, t.Linear(8, 8)),
    )
    reference.register_buffer("carried", torch.zeros(8))
    check(net, reference, None, mode=mode)
    assert not net.carried.numpy().any()


class Merged(Ours):
    """LoRA, which merges its weights for evaluation."""

    def __init__(self, factor):
        super().__init__(nn.Dense(8, 8))
        self.merged, self.factor = False, factor
        self.part.weight.requires_grad = False
        self.a = Parameter(ops.randn(2, 8), name="a")
        self.b = Parameter(ops.randn(8, 2), name="b")

    def set_train(self, mode=True):
        super().set_train(mode)
        added = ops.matmul(self.b, self.a)
        if self.merged is mode:
            sign = -1 if mode else self.factor
            ops.assign(self.part.weight, self.part.weight + sign * added)
            self.merged = not mode
        return self

    def construct(self, x):
        h = self.part(x)
        if not self.merged:
            h = h + ops.matmul(ops.matmul(x, self.a.T), self.b.T)
        return self.head(ops.relu(h))


class Lora(Theirs):
    def __init__(self):
        super().__init__(t.Linear(8, 8))
        self.merged = False
        self.part.weight.requires_grad_(False)
        self.a, self.b = t.Parameter(torch.randn(2, 8)), t.Parameter(torch.randn(8, 2))

    def train(self, mode=True):
        super().train(mode)
        if self.merged is mode:
            with torch.no_grad():
                self.part.weight += (-1 if mode else 1) * self.b @ self.a
            self.merged = not mode
        return self

    def forward(self, x):
        h = self.part(x)
        if not self.merged:
            h = h + x @ self.a.T @ self.b.T
        return self.head(torch.relu(h))


@pytest.mark.parametrize(("factor", "stage"), [(1, None), (0.5, EVAL_FORWARD)])
def test_weights_are_read_before_evaluation_merges_them(factor, stage):
    check(Merged(factor), Lora(), stage)


@functools.cache
def with_layer_drop():
    """Layers are left out in training, each for the whole batch."""

    def forward(self, x):
        for layer in self.layers:
            if not self.training or torch.rand(()) >= self.layerdrop:
                x = x + torch.tanh(layer(x))
        return self.head(x)

    layers = t.ModuleList([t.Linear(8, 8), t.Linear(8, 8)])
    return recording_of(theirs(forward, layers=layers, layerdrop=0.1), BATCHES)


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("", None),
        ("frozen", DROPOUT),
        ("factor in evaluation", EVAL_FORWARD),
        ("factor in training", DROPOUT),
    ],
)
def test_rare_drops_of_whole_layers_are_seen(fault, stage):
    def construct(self, x):
        for layer in self.layers:
            h = ops.tanh(layer(x))
            if self.training:
                if fault == "frozen":
                    h = h * Tensor(np.float32(np.random.rand() >= self.layerdrop))
                else:
                    h = h * (ops.rand(1) >= self.layerdrop)
                if fault == "factor in training" and self.layerdrop > 0:
                    h = 1.25 * h
            elif fault == "factor in evaluation":
                h = h * (1 - self.layerdrop)
            x = x + h
        return self.head(x)

    layers = nn.CellList([nn.Dense(8, 8), nn.Dense(8, 8)])
    check(ours(construct, layers=layers, layerdrop=0.1), with_layer_drop(), stage)


def test_training_on_changed_sizes_has_no_dropout():
    conv = nn.Conv2d(3, 4, 3, has_bias=True)
    net = Ours(conv, nn.ReLU(), nn.Dropout(p=0.3), width=4)
    reference = Theirs(t.Conv2d(3, 4, 3, padding=1), t.ReLU(), t.Dropout(0.3), width=4)
    images = [(RNG.normal(size=(8, 3, 8, 8)).astype(np.float32), LABELS)] * 2
    ladder = check(net, reference, None, images, quick=False, mode="pynative")
    assert "height ≠ width, in training" not in str(ladder.coverage.not_exercised)


@functools.cache
def with_a_dropout_in_code():
    def forward(self, x):
        hidden = torch.tanh(self.part(x))
        dropped = t.functional.dropout(hidden, self.dropout, self.training)
        return {"logits": self.head(dropped), "hidden": hidden}

    return recording_of(theirs(forward, t.Linear(8, 8), dropout=0.1), BATCHES)


def test_outputs_of_one_net_alone_do_not_count():
    """The effect of dropout on all outputs together is another one then."""

    def construct(self, x):
        hidden = ops.tanh(self.part(x))
        dropped = ops.dropout(hidden, self.dropout, True) if self.training else hidden
        return {"logits": self.head(dropped), "hidden": hidden, "further": 5 * hidden}

    port = ours(construct, nn.Dense(8, 8), dropout=0.1)
    ladder = ladder_of(port, with_a_dropout_in_code(), mode="pynative")
    assert ladder.first_stage is None or ladder.first_stage.id != DROPOUT, table(ladder)


@pytest.mark.parametrize(("rate", "stage"), [(0.1, None), (0.9, DROPOUT)])
@pytest.mark.parametrize("order", [1, -1])
def test_rates_in_code_count_in_all_outputs(rate, stage, order):
    """The net has the attribute, but gives its function another number."""

    def construct(self, x):
        hidden = ops.tanh(self.part(x))
        dropped = hidden
        if self.dropout > 0 and self.training:
            dropped = ops.dropout(hidden, rate, True)
        outputs = {"logits": self.head(dropped), "hidden": hidden}
        return dict([*outputs.items()][::order])

    port = ours(construct, nn.Dense(8, 8), dropout=0.1)
    check(port, with_a_dropout_in_code(), stage, mode="pynative")


def test_outputs_without_rows_beside_dropout_are_compared():
    def construct(self, x):
        hidden = ops.tanh(self.part(x))
        logits = self.head(ops.dropout(hidden, self.dropout, True) if self.training else hidden)
        return {"logits": logits, "boxes": x[x[:, 0] > 99]}

    def forward(self, x):
        hidden = torch.tanh(self.part(x))
        logits = self.head(t.functional.dropout(hidden, self.dropout, self.training))
        return {"logits": logits, "boxes": x[x[:, 0] > 99]}

    port, reference = ours(construct, nn.Dense(8, 8)), theirs(forward, t.Linear(8, 8))
    port.dropout = reference.dropout = 0.1
    check(port, reference, None, mode="pynative")
