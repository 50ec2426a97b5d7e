"""The recipe's losses and optimizers in torch are what their papers say, and what MindSpore's side
computes.
"""

import dataclasses
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import resnet_fn
from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.batches import make_batches
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.torch_recipe import (
    Average,
    decay_groups,
    recipe_loss,
    recipe_optimizer,
)
from resnet_fn.parity.trace.plan import AveragePlan
from resnet_fn.update.average import make_average, move_average
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import make_optimizer

BATCHES = make_batches(4, 4, 1, 2, 3)

RNG = np.random.default_rng(0)
LOGITS = (4 * RNG.normal(size=(6, 5))).astype(np.float32)
HARD = RNG.integers(0, 5, 6).astype(np.int32)
SOFT = (0.7 * np.eye(5)[HARD] + 0.3 * np.eye(5)[HARD[::-1]]).astype(np.float32)

CASES = [
    {"loss": loss, "label_smoothing": smoothing, "smoothing_over": over}
    for loss in ("cross_entropy", "bce", "focal")
    for smoothing, over in ((0.0, "all"), (0.1, "all"), (0.1, "others"))
]


def published(logits, targets, loss, label_smoothing, smoothing_over):
    """Szegedy 2016 and Lin 2017 as they are printed, in float64."""
    s, rest = label_smoothing, 5 if smoothing_over == "all" else 4
    others = 1 if smoothing_over == "all" else 1 - targets
    targets = (1 - s) * targets + s / rest * others
    if loss == "cross_entropy":
        return (
            -(targets * np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))).sum(1).mean()
        )
    p = 1 / (1 + np.exp(-logits))
    if loss == "bce":
        return -(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean()
    entropy = -(targets * np.log(p) + (1 - targets) * np.log(1 - p))
    p_t, alpha_t = targets * p + (1 - targets) * (1 - p), 0.25 * targets + 0.75 * (1 - targets)
    return (alpha_t * (1 - p_t) ** 2 * entropy).sum(1).mean()


@pytest.mark.parametrize("labels", [HARD, SOFT], ids=["classes", "probabilities"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_each_loss_is_ours_and_the_published_formula(torch, device, case, labels):
    recipe = dataclasses.replace(Recipe(), **case)
    loss = recipe_loss(plan_of(recipe, BATCHES).loss)
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(logits, torch.tensor(labels))
    value.backward()
    targets = (np.eye(5)[labels] if labels.ndim == 1 else labels).astype(np.float64)
    exact = loss(torch.tensor(LOGITS).double(), torch.tensor(labels))
    assert exact.dtype == torch.float64
    assert exact.item() == pytest.approx(
        published(LOGITS.astype(np.float64), targets, **case), rel=1e-12
    )
    ours = make_loss(case["label_smoothing"], case["loss"], case["smoothing_over"])
    ours_value, ours_gradient = mindspore.value_and_grad(ours)(Tensor(LOGITS), Tensor(labels))
    assert float(ours_value.asnumpy()) == pytest.approx(value.item(), rel=1e-6)
    np.testing.assert_allclose(ours_gradient.asnumpy(), logits.grad.numpy(), rtol=1e-5, atol=1e-7)


COMMON = {"nesterov": False, "weight_decay": 0.1}
RECIPES = [
    {"optimizer": "sgd", "momentum": 0.0},
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "nesterov": True},
    {"optimizer": "adam", "beta2": 0.95},
    {"optimizer": "adamw", "momentum": 0.8},
    {"optimizer": "adamw", "epsilon": 0.1},
    {"optimizer": "lars", "trust_coefficient": 0.02},
    {"optimizer": "lamb"},
    {"optimizer": "lion", "beta2": 0.99},
    {"optimizer": "lamb", "beta2": 0.95, "epsilon": 0.1},
]
NAMES = ("scale", "dense.weight", "dense.bias", "norm.weight", "norm.bias")
UPDATES = 6


class Cell(nn.Cell):
    def __init__(self):
        super().__init__()
        self.gamma = Parameter(ops.ones(3), name="gamma")  # a layer scale: a weight like others
        self.dense, self.norm = nn.Dense(4, 3), nn.LayerNorm([3])


@pytest.fixture
def module(torch):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(3))
            self.dense, self.norm = torch.nn.Linear(4, 3), torch.nn.LayerNorm(3)

    return Module()


def problem():
    rng = np.random.default_rng(0)
    shapes = [(3,), (3, 4), (3,), (3,), (3,)]
    start = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    gradients = [
        [rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(UPDATES)
    ]
    return start, gradients, list(np.linspace(0.1, 0.01, UPDATES))


def run_torch(torch, module, recipe):
    start, gradients, rates = problem()
    parameters = dict(module.named_parameters())
    assert tuple(parameters) == NAMES
    with torch.no_grad():
        for parameter, value in zip(parameters.values(), start, strict=True):
            parameter.copy_(torch.tensor(value))
    optimizer = recipe_optimizer(plan_of(recipe, BATCHES).optimizer, module)
    for given, rate in zip(gradients, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(parameters.values(), given, strict=True):
            parameter.grad = torch.tensor(gradient).to(parameter.dtype)
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters.values()]


@pytest.mark.parametrize("decay_all", [False, True])
@pytest.mark.parametrize("fields", RECIPES, ids=lambda fields: "-".join(map(str, fields.values())))
def test_six_updates_of_each_optimizer_are_ours(torch, device, module, fields, decay_all):
    recipe = Recipe(**{**COMMON, **fields, "decay_all": decay_all})
    theirs = run_torch(torch, module, recipe)
    start, gradients, rates = problem()
    net = Cell()
    assert len(net.trainable_params()) == len(start)
    for parameter, value in zip(net.trainable_params(), start, strict=True):
        ops.assign(parameter, Tensor(value))
    update = make_optimizer(recipe, net).update

    @mindspore.jit
    def step(rate, *given):
        update(given, rate)
        return rate * 1.0

    for given, rate in zip(gradients, rates, strict=True):
        step(Tensor(rate, mindspore.float32), *map(Tensor, given))
    for ours, other in zip(net.trainable_params(), theirs, strict=True):
        assert np.linalg.norm(ours.asnumpy() - other) <= 1e-6 * np.linalg.norm(other), ours.name


def test_decay_goes_by_the_kind_of_layer(torch):
    net = torch.nn.Module()
    net.norms = torch.nn.ModuleList(
        [torch.nn.BatchNorm2d(4), torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm1d(4, affine=True)]
    )
    net.lstm, net.attention = torch.nn.LSTM(4, 4), torch.nn.MultiheadAttention(4, 1)
    net.gamma = torch.nn.Parameter(torch.ones(4))
    net.tied = torch.nn.Linear(4, 4)
    net.tied.weight = net.lstm.weight_hh_l0
    net.tied.bias.requires_grad = False
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    decayed, spared = ([names[id(p)] for p in group["params"]] for group in decay_groups(net, 0.1))
    assert decayed == [
        "gamma",
        "lstm.weight_ih_l0",
        "lstm.weight_hh_l0",
        "attention.in_proj_weight",
        "attention.out_proj.weight",
    ]
    assert len(spared) == 3 * 2 + 2 + 2
    everything, nothing = decay_groups(net, 0.1, decay_all=True)
    assert (len(everything["params"]), everything["weight_decay"]) == (len(names) - 1, 0.1)
    assert nothing["params"] == []


@pytest.mark.parametrize(("every", "start"), [(1, 0), (3, 0), (2, 3), (1, 2)])
def test_the_average_is_ours_and_its_definition(torch, device, every, start):
    """ema ← d · ema + (1 − d) · value every so many updates; a copy until the start; statistics
    like weights.
    """
    recipe = Recipe(ema=0.9, ema_every=every, ema_start=start / 2, ema_warmup=False)
    module, values = torch.nn.BatchNorm1d(3).double(), np.random.default_rng(0).normal(size=(8, 3))
    net = nn.BatchNorm1d(3)
    ours = net.moving_mean
    module.running_mean[:] = 0
    average = Average(module, AveragePlan(0.9, every, start))
    ema = make_average(net, recipe, 2.0)
    followed = ema.averages[[id(parameter) for parameter in ema.followed].index(id(ours))]
    expected = np.zeros(3)
    for t, value in enumerate(values, 1):
        module.running_mean[:] = torch.tensor(value)
        average.update(module)
        ops.assign(ours, Tensor(value.astype(np.float32)))
        move_average(ema.averages, *ema[1:])
        if t <= start:
            expected = value
        elif t % every == 0:
            expected = 0.9 * expected + 0.1 * value
        np.testing.assert_allclose(average.module.running_mean.numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(followed.asnumpy(), expected, rtol=1e-5, atol=1e-6)
    assert average.module is not module


def test_recording_a_reference_needs_torch_and_numpy_alone(torch, python, tmp_path):
    """Not even what MindSpore would have installed."""
    code = "import sys; sys.modules['mindspore'] = sys.modules['psutil'] = None\n"
    code += "from resnet_fn.parity.__main__ import main\n"
    code += f"main(['record', '--steps', '1', '--out', {str(tmp_path / 'trace')!r}])"
    python("-c", code, cwd=Path(resnet_fn.__file__).parents[1])
    assert (tmp_path / "trace" / "manifest.json").is_file()
