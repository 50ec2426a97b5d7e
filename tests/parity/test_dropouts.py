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
    ones,
    ours,
    ours_of,
    recording_of,
    t,
    theirs,
    theirs_of,
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


def dropping(self, x):
    return self.head(self.drop(self.part(x).tanh()))


def dropped(drop):
    return ours_of(dropping, drop=drop)


def of_drop_path(fault):
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

    return construct


def drop_path(fault=""):
    return cell(of_drop_path(fault), drop_prob=0.3)


@functools.cache
def with_drop_path():
    return recording_of(theirs_of(dropping, drop=DropPath(0.3)), BATCHES)


@pytest.mark.parametrize(
    ("fault", "stage", "mode"),
    [
        ("", None, "graph"),
        ("", None, "pynative"),
        ("factor in evaluation", EVAL_FORWARD, "graph"),
        ("factor in evaluation", EVAL_FORWARD, "pynative"),
        ("sign where it drops", EVAL_FORWARD, "pynative"),
        ("frozen", DROPOUT, "graph"),
    ],
)
def test_faults_at_real_dropout_rates_are_found(fault, stage, mode):
    net = dropped(drop_path(fault))
    check(net, with_drop_path(), stage, mode=mode)
    assert net.drop.drop_prob == 0.3


def test_a_dropping_layer_with_a_hook_is_compiled():
    def unchanged(cell, args):
        return args

    path = drop_path("frozen")
    path.register_forward_pre_hook(unchanged)
    check(dropped(path), with_drop_path(), DROPOUT)


def test_hooks_around_a_dropping_layer_act_once():
    """A hook doubles what the layer halves."""

    def halved(self, x):
        return self.inner(x * 0.5)

    def doubled(cell, args):
        return (args[0] * 2,)

    path = cell(halved, drop_prob=0.3, inner=drop_path())
    path.register_forward_pre_hook(doubled)
    check(dropped(path), with_drop_path(), None)


@pytest.mark.parametrize("fault", ["", "frozen"])
def test_dropping_layers_given_keywords_are_compiled(fault):
    """No mask is recognised, because the layer adds what it drops."""

    drop = of_drop_path(fault)

    def added(self, x, branch):
        return x + drop(self, branch)

    def forward(self, x):
        return self.head(self.add(x, branch=self.part(x).tanh()))

    class Added(DropPath):
        def forward(self, x, branch):
            return x + super().forward(branch)

    reference = theirs_of(forward, add=Added(0.3))
    port = ours_of(forward, add=cell(added, drop_prob=0.3))
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
    port = ours_of(forward, path=path)
    reference = theirs_of(forward, path=DropPath(0.4))
    ladder = check(port, reference, None if factor == 1 else DROPOUT, mode="pynative")
    if factor != 1:
        hint = "path.dropout: where it drops, the port alone returns infinity or NaN"
        assert hint in ladder.first_stage.hints


def stochastic_depth(rand, train=False, evaluation=True):
    """Stochastic depth by hand, with a factor in training or in evaluation."""

    def forward(self, x):
        h = self.part(x).tanh()
        if not self.training:
            h = h * (1 - self.drop_prob) if evaluation else h
        elif self.drop_prob > 0:
            h = h * (rand(x.shape[0], 1) >= self.drop_prob)
            h = h / (1 - self.drop_prob) if train else h
        return self.head(x + h)

    return forward


@functools.cache
def with_stochastic_depth():
    forward = stochastic_depth(torch.rand)
    return recording_of(theirs_of(forward, drop_prob=0.3), BATCHES)


@pytest.mark.parametrize(
    ("train", "evaluation", "stage"),
    [(False, True, None), (True, True, DROPOUT), (False, False, EVAL_FORWARD)],
)
def test_wrong_factors_of_stochastic_depth_are_found(train, evaluation, stage):
    construct = stochastic_depth(ops.rand, train, evaluation)
    check(ours_of(construct, drop_prob=0.3), with_stochastic_depth(), stage)


NAMES = ("scores", "fc1", "fc2")


@functools.cache
def with_two_dropouts():
    def forward(self, x):
        x = x * self.drop_scores(self.scores(x).sigmoid())
        return self.fc2(self.between(self.fc1(x).tanh()))

    parts = {name: t.Linear(8, 8) for name in NAMES}
    part = module(forward, **parts, drop_scores=t.Dropout(0.1), between=t.Dropout(0.2))
    return recording_of(Theirs(part), BATCHES)


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
        scores = self.scores(x).sigmoid()
        if self.dropout > 0:
            scores = ops.dropout(scores, share, self.training)
        x = x * scores
        if place == "after":
            return self.between(self.fc2(ops.tanh(self.fc1(x))))
        return self.fc2(self.between(ops.tanh(self.fc1(x))))

    layers = {name: nn.Dense(8, 8) for name in NAMES}
    port = cell(construct, **layers, dropout=0.1, between=nn.Dropout(p=0.2))
    ladder = check(Ours(port), with_two_dropouts(), stage)
    assert any(stage.id.masked for stage in ladder.stages)


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

    reference = theirs_of(forward, carried=t.Buffer(torch.zeros(8)))
    carried = Parameter(Tensor(np.zeros(8, np.float32)), requires_grad=False)
    net = ours_of(construct, carried=carried)
    check(net, reference, None, mode=mode)
    assert not net.carried.numpy().any()


def lora(self, x):
    h = self.part(x)
    if not self.merged:
        h = h + x @ self.a.T @ self.b.T
    return self.head(h.tanh())


class Merged(Ours):
    """LoRA, which merges its weights for evaluation."""

    construct = lora

    def __init__(self, factor):
        super().__init__(nn.Dense(8, 8))
        self.merged, self.factor = False, factor
        self.part.weight.requires_grad = False
        self.a, self.b = ones(2, 8), ones(8, 2)

    def set_train(self, mode=True):
        super().set_train(mode)
        if self.merged is mode:
            sign = -1 if mode else self.factor
            ops.assign(self.part.weight, self.part.weight + sign * self.b @ self.a)
            self.merged = not mode
        return self


class Lora(Theirs):
    forward = lora

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


def with_dropout(dropout, rows=True):
    """A function with a dropout, and with another output, perhaps of no rows."""

    def forward(self, x):
        hidden = self.part(x).tanh()
        logits = self.head(dropout(hidden, self.dropout, self.training))
        return {"logits": logits, "hidden": hidden if rows else x[x[:, 0] > 99]}

    return forward


@functools.cache
def with_a_dropout_in_code(rows=True):
    forward = with_dropout(t.functional.dropout, rows)
    return recording_of(theirs_of(forward, dropout=0.1), BATCHES)


def test_outputs_of_one_net_alone_do_not_count():
    """The effect of dropout on all outputs together is another one then."""

    def construct(self, x):
        outputs = with_dropout(ops.dropout)(self, x)
        return {**outputs, "further": 5 * outputs["hidden"]}

    port = ours_of(construct, dropout=0.1)
    ladder = ladder_of(port, with_a_dropout_in_code(), mode="pynative")
    assert ladder.first_stage is None or ladder.first_stage.id != DROPOUT, table(ladder)


@pytest.mark.parametrize(("rate", "stage"), [(0.1, None), (0.9, DROPOUT)])
@pytest.mark.parametrize("order", [1, -1])
def test_rates_in_code_count_in_all_outputs(rate, stage, order):
    """The net has the attribute, but gives its function another number."""

    def dropout(hidden, share, training):
        return ops.dropout(hidden, rate, training) if share > 0 else hidden

    def construct(self, x):
        outputs = with_dropout(dropout)(self, x)
        return dict([*outputs.items()][::order])

    port = ours_of(construct, dropout=0.1)
    check(port, with_a_dropout_in_code(), stage, mode="pynative")


def test_outputs_without_rows_beside_dropout_are_compared():
    port = ours_of(with_dropout(ops.dropout, rows=False), dropout=0.1)
    check(port, with_a_dropout_in_code(rows=False), None, mode="pynative")
