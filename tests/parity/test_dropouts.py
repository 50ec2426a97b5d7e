"""Dropout: evaluated at its real rates, compiled as trained, and each with a mask of its own."""

import dataclasses

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.trace.stages import DROPOUT, EVAL_FORWARD, TRAIN_FORWARD
from resnet_fn.recipes import recipe

RECIPE = dataclasses.replace(recipe("digits"), clip_norm=0.0, learning_rate=0.02)
RNG = np.random.default_rng(0)
LABELS = (np.arange(8) % 3).astype(np.int32)
BATCHES = [(RNG.normal(size=(8, 8)).astype(np.float32), LABELS) for _ in range(2)]
SEQUENCES = [(RNG.normal(size=(8, 5, 8)).astype(np.float32), LABELS) for _ in range(2)]

pytestmark = pytest.mark.usefixtures("device")


def compared(net, module, batches=BATCHES, **options):
    return compare_step(net, module, batches, RECIPE, initialisation=False, quick=True, **options)


class Dropped(nn.Cell):
    def __init__(self, drop):
        super().__init__()
        self.fc, self.drop, self.head = nn.Dense(8, 8), drop, nn.Dense(8, 3)

    def construct(self, x):
        return self.head(self.drop(ops.tanh(self.fc(x))))


class Drop(nn.Cell):
    def __init__(self, fault=""):
        super().__init__()
        self.drop_prob, self.fault = 0.3, fault

    def construct(self, x):
        keep = 1 - self.drop_prob
        if self.fault == "factor in evaluation" and not self.training:
            return x * keep
        if self.fault == "sign where it drops" and self.drop_prob > 0:
            x = 0.5 * x
        if self.drop_prob == 0 or not self.training:
            return x
        if self.fault == "frozen":
            return x * Tensor((np.random.rand(8, 1) < keep).astype(np.float32) / keep)
        return x * ops.bernoulli(ops.ones((x.shape[0], 1), mindspore.float32), keep) / keep


def reference_with_drop_path(torch):
    class DropPath(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop_prob = 0.3

        def forward(self, x):
            if not self.training or self.drop_prob == 0:
                return x
            keep = 1 - self.drop_prob
            return x * torch.bernoulli(torch.full((len(x), 1), keep)) / keep

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
            self.drop = DropPath()

        def forward(self, x):
            return self.head(self.drop(torch.tanh(self.fc(x))))

    return Net()


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("", None),
        ("factor in evaluation", EVAL_FORWARD),
        ("sign where it drops", EVAL_FORWARD),
        ("frozen", DROPOUT),
    ],
)
def test_faults_at_real_dropout_rates_are_found(torch, fault, stage):
    ladder = compared(Dropped(Drop(fault)), reference_with_drop_path(torch))
    assert (ladder.first_stage and ladder.first_stage.id) == stage
    assert ladder.agrees == (not fault)


class DropOfOnes(nn.Cell):
    """Drop path as MindCV writes it, by a layer inside that drops ones."""

    def __init__(self, fault):
        super().__init__()
        self.drop_prob, self.drop, self.fault = 0.3, nn.Dropout(p=0.3), fault

    def construct(self, x):
        skips = self.drop_prob == 0 or self.training == (self.fault == "mode")
        if skips != (self.fault == "condition"):
            return x
        return x * self.drop(ops.ones((x.shape[0], 1), x.dtype))


@pytest.mark.parametrize("fault", ["", "mode", "condition"])
def test_a_layer_that_never_drops_is_no_dropout(torch, fault):
    ladder = compared(Dropped(DropOfOnes(fault)), reference_with_drop_path(torch))
    assert (ladder.first_stage and ladder.first_stage.id) == (DROPOUT if fault else None)
    assert ladder.agrees != bool(fault)


@pytest.mark.parametrize("fault", ["", "factor in evaluation"])
def test_evaluation_has_real_rates_uncompiled(torch, fault):
    net = Dropped(Drop(fault))
    ladder = compared(net, reference_with_drop_path(torch), mode="pynative")
    assert ladder.agrees == (not fault)
    assert net.drop.drop_prob == 0.3


class Depth(nn.Cell):
    """Stochastic depth by hand."""

    def __init__(self, train, evaluation):
        super().__init__()
        self.fc, self.head, self.drop_prob = nn.Dense(8, 8), nn.Dense(8, 3), 0.3
        self.train_factor, self.eval_factor = train, evaluation

    def construct(self, x):
        h = ops.tanh(self.fc(x))
        if not self.training:
            return x + h * (1 - self.drop_prob) if self.eval_factor else x + h
        if self.drop_prob > 0:
            h = h * (ops.rand(x.shape[0], 1) >= self.drop_prob)
            h = h / (1 - self.drop_prob) if self.train_factor else h
        return x + h


@pytest.mark.parametrize(
    ("train", "evaluation", "stage"),
    [(False, True, None), (True, True, DROPOUT), (False, False, EVAL_FORWARD)],
)
def test_wrong_factors_of_stochastic_depth_are_found(torch, train, evaluation, stage):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
            self.drop_prob = 0.3

        def forward(self, x):
            h = torch.tanh(self.fc(x))
            if not self.training:
                return x + h * (1 - self.drop_prob)
            return x + h * (torch.rand(len(x), 1) >= self.drop_prob)

    module = torch.nn.Sequential(Block(), torch.nn.Linear(8, 3))
    net = nn.SequentialCell(Depth(train, evaluation), nn.Dense(8, 3))
    ladder = compared(net, module)
    assert (ladder.first_stage and ladder.first_stage.id) == stage
    assert ladder.agrees == (stage is None)


class Block(nn.Cell):
    def __init__(self, place, share):
        super().__init__()
        self.scores, self.fc1, self.fc2 = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 8)
        self.dropout, self.place, self.share = 0.1, place, share
        self.between = nn.Dropout(p=0.2)

    def construct(self, x):
        if self.dropout > 0:
            scores = ops.dropout(ops.sigmoid(self.scores(x)), self.share, self.training)
        else:
            scores = ops.sigmoid(self.scores(x))
        x = x * scores
        if self.place == "after":
            return self.between(self.fc2(ops.tanh(self.fc1(x))))
        return self.fc2(self.between(ops.tanh(self.fc1(x))))


def reference_with_two_dropouts(torch):
    class OfScores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores, self.fc1, self.fc2 = (torch.nn.Linear(8, 8) for _ in range(3))
            self.drop_scores, self.drop = torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)

        def forward(self, x):
            x = x * self.drop_scores(torch.sigmoid(self.scores(x)))
            return self.fc2(self.drop(torch.tanh(self.fc1(x))))

    return torch.nn.Sequential(OfScores(), torch.nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("place", "share", "stage"),
    [
        ("between", 0.1, None),
        ("after", 0.1, dataclasses.replace(TRAIN_FORWARD, masked=True)),
        ("between", 0.9, DROPOUT),
    ],
)
def test_a_dropout_without_a_mask_leaves_others_theirs(torch, place, share, stage):
    net = nn.SequentialCell(Block(place, share), nn.Dense(8, 3))
    ladder = compared(net, reference_with_two_dropouts(torch), BATCHES)
    assert (ladder.first_stage and ladder.first_stage.id) == stage
    assert any(one.id.masked for one in ladder.stages)


class Streaming(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Dense(8, 8), nn.Dense(8, 3)
        self.carried = Parameter(Tensor(np.zeros(8, np.float32)), requires_grad=False)

    def construct(self, x):
        h = ops.tanh(self.fc(x) + self.carried)
        ops.assign(self.carried, ops.stop_gradient(h).mean(0))
        return self.head(h)


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_state_that_evaluation_carries_is_compared(torch, mode):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
            self.register_buffer("carried", torch.zeros(8))

        def forward(self, x):
            h = torch.tanh(self.fc(x) + self.carried)
            self.carried = h.detach().mean(0)
            return self.head(h)

    net = Streaming()
    ladder = compared(net, Net(), mode=mode)
    assert (ladder.first_stage, ladder.agrees) == (None, True)
    assert not net.carried.numpy().any()


class Merged(nn.Cell):
    """LoRA, which merges its weights for evaluation."""

    def __init__(self, factor):
        super().__init__()
        self.fc, self.head, self.merged, self.factor = nn.Dense(8, 8), nn.Dense(8, 3), False, factor
        self.fc.weight.requires_grad = False
        self.a = Parameter(ops.randn(2, 8), name="a")
        self.b = Parameter(ops.randn(8, 2), name="b")

    def set_train(self, mode=True):
        super().set_train(mode)
        added = ops.matmul(self.b, self.a)
        if self.merged is mode:
            sign = -1 if mode else self.factor
            ops.assign(self.fc.weight, self.fc.weight + sign * added)
            self.merged = not mode
        return self

    def construct(self, x):
        h = self.fc(x)
        if not self.merged:
            h = h + ops.matmul(ops.matmul(x, self.a.T), self.b.T)
        return self.head(ops.relu(h))


@pytest.mark.parametrize("factor", [1, 0.5])
def test_weights_are_read_before_evaluation_merges_them(torch, factor):
    class Lora(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head, self.merged = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3), False
            self.fc.weight.requires_grad_(False)
            self.a = torch.nn.Parameter(torch.randn(2, 8))
            self.b = torch.nn.Parameter(torch.randn(8, 2))

        def train(self, mode=True):
            super().train(mode)
            if self.merged is mode:
                with torch.no_grad():
                    self.fc.weight += (-1 if mode else 1) * self.b @ self.a
                self.merged = not mode
            return self

        def forward(self, x):
            h = self.fc(x)
            if not self.merged:
                h = h + x @ self.a.T @ self.b.T
            return self.head(torch.relu(h))

    ladder = compared(Merged(factor), Lora())
    assert ladder.agrees == (factor == 1)
    assert (ladder.first_stage and ladder.first_stage.id) == (None if factor == 1 else EVAL_FORWARD)


class LayerDrop(nn.Cell):
    """Leaves layers out in training, each for the whole batch."""

    def __init__(self, fault):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(8, 8), nn.Dense(8, 8)])
        self.head, self.layerdrop, self.fault = nn.Dense(8, 3), 0.1, fault

    def construct(self, x):
        for layer in self.layers:
            h = ops.tanh(layer(x))
            if self.training:
                if self.fault == "frozen":
                    h = h * Tensor(np.float32(np.random.rand() >= self.layerdrop))
                else:
                    h = h * (ops.rand(1) >= self.layerdrop)
                if self.fault == "factor in training" and self.layerdrop > 0:
                    h = 1.25 * h
            elif self.fault == "factor in evaluation":
                h = h * (1 - self.layerdrop)
            x = x + h
        return self.head(x)


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("", None),
        ("frozen", DROPOUT),
        ("factor in evaluation", EVAL_FORWARD),
        ("factor in training", DROPOUT),
    ],
)
def test_rare_drops_of_whole_layers_are_seen(torch, fault, stage):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)])
            self.head, self.layerdrop = torch.nn.Linear(8, 3), 0.1

        def forward(self, x):
            for layer in self.layers:
                if not self.training or torch.rand(()) >= self.layerdrop:
                    x = x + torch.tanh(layer(x))
            return self.head(x)

    ladder = compared(LayerDrop(fault), Net())
    assert (ladder.first_stage and ladder.first_stage.id) == stage
    assert ladder.agrees == (not fault)


def test_training_on_changed_sizes_has_no_dropout(torch):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, has_bias=True)
            self.drop, self.head = nn.Dropout(p=0.3), nn.Dense(4, 3)

        def construct(self, x):
            return self.head(self.drop(ops.relu(self.conv(x))).mean((2, 3)))

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
            self.drop, self.head = torch.nn.Dropout(0.3), torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.drop(torch.relu(self.conv(x))).mean((2, 3)))

    images = [(RNG.normal(size=(8, 3, 8, 8)).astype(np.float32), LABELS)] * 2
    ladder = compared(Net(), Module(), images)
    assert (ladder.first_stage, ladder.agrees) == (None, True)
    assert "height ≠ width, in training" not in str(ladder.coverage.not_exercised)
