"""The recipe's losses and optimizers in torch are what their papers say, and what MindSpore's side
computes.
"""

from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

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
from small_nets import cell, module, ones, t, torch

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
    s, (rest, others) = label_smoothing, (5, 1) if smoothing_over == "all" else (4, 1 - targets)
    targets = (1 - s) * targets + s / rest * others
    if loss == "cross_entropy":
        softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return -(targets * np.log(softmax)).sum(1).mean()
    p = 1 / (1 + np.exp(-logits))
    entropy = -(targets * np.log(p) + (1 - targets) * np.log(1 - p))
    if loss == "bce":
        return entropy.mean()
    p_t, alpha_t = targets * p + (1 - targets) * (1 - p), 0.25 * targets + 0.75 * (1 - targets)
    return (alpha_t * (1 - p_t) ** 2 * entropy).sum(1).mean()


@pytest.mark.parametrize("labels", [HARD, SOFT], ids=["classes", "probabilities"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_each_loss_is_ours_and_the_published_formula(device, case, labels):
    loss = recipe_loss(plan_of(Recipe.unchecked(case), BATCHES).loss)
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(logits, torch.tensor(labels))
    value.backward()
    targets = (np.eye(5)[labels] if labels.ndim == 1 else labels).astype(np.float64)
    exact = loss(torch.tensor(LOGITS).double(), torch.tensor(labels))
    assert exact.dtype == torch.float64
    expected = published(LOGITS.astype(np.float64), targets, **case)
    assert exact.item() == pytest.approx(expected, rel=1e-12)
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
SHAPES = {
    "scale": (3,),  # a layer scale, in the port gamma: a weight like others
    "dense.weight": (3, 4),
    "dense.bias": (3,),
    "norm.weight": (3,),
    "norm.bias": (3,),
}
START, *GRADIENTS = (
    [RNG.normal(size=shape).astype(np.float32) for shape in SHAPES.values()] for _ in range(7)
)
RATES = np.linspace(0.1, 0.01, 6)


def run_torch(recipe):
    """The weights after six updates."""
    net = module(None, dense=t.Linear(4, 3), norm=t.LayerNorm(3), scale=t.Parameter(torch.ones(3)))
    assert list(dict(net.named_parameters())) == list(SHAPES)
    parameters = list(net.parameters())
    for parameter, array in zip(parameters, START, strict=True):
        parameter.data = torch.tensor(array)
    optimizer = recipe_optimizer(plan_of(recipe, BATCHES).optimizer, net)
    for gradients, rate in zip(GRADIENTS, RATES, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.tensor(gradient)
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


def run_ours(recipe):
    net = cell(lambda self: None, gamma=ones(3), dense=nn.Dense(4, 3), norm=nn.LayerNorm([3]))
    parameters = net.trainable_params()
    for parameter, array in zip(parameters, START, strict=True):
        ops.assign(parameter, Tensor(array))
    update = make_optimizer(recipe, net).update

    @mindspore.jit
    def step(rate, *gradients):
        update(gradients, rate)
        return rate * 1.0

    for gradients, rate in zip(GRADIENTS, RATES, strict=True):
        step(Tensor(rate, mindspore.float32), *map(Tensor, gradients))
    return [parameter.asnumpy() for parameter in parameters]


@pytest.mark.parametrize("decay_all", [False, True])
@pytest.mark.parametrize("fields", RECIPES, ids=lambda fields: "-".join(map(str, fields.values())))
def test_six_updates_of_each_optimizer_are_ours(device, fields, decay_all):
    recipe = Recipe(**{**COMMON, **fields, "decay_all": decay_all})
    for name, ours, theirs in zip(SHAPES, run_ours(recipe), run_torch(recipe), strict=True):
        assert np.linalg.norm(ours - theirs) <= 1e-6 * np.linalg.norm(theirs), name


def test_decay_goes_by_the_kind_of_layer():
    norms = t.BatchNorm2d(4), t.GroupNorm(2, 4), t.InstanceNorm1d(4, affine=True)
    layers = {"lstm": t.LSTM(4, 4), "attention": t.MultiheadAttention(4, 1), "tied": t.Linear(4, 4)}
    net = module(None, norms=t.ModuleList(norms), **layers, gamma=t.Parameter(torch.ones(4)))
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
def test_the_average_is_ours_and_its_definition(device, every, start):
    """ema ← d · ema + (1 − d) · value every so many updates; a copy until the start; statistics
    like weights.
    """
    recipe = Recipe(ema=0.9, ema_every=every, ema_start=start / 2, ema_warmup=False)
    reference, net = t.BatchNorm1d(3).double(), nn.BatchNorm1d(3)
    average, ema = (
        Average(reference, AveragePlan(0.9, every, start)),
        make_average(net, recipe, 2.0),
    )
    index = [id(parameter) for parameter in ema.followed].index(id(net.moving_mean))
    expected = np.zeros(3)
    for number, value in enumerate(RNG.normal(size=(8, 3)), 1):
        reference.running_mean[:] = torch.tensor(value)
        average.update(reference)
        ops.assign(net.moving_mean, Tensor(value.astype(np.float32)))
        move_average(ema.averages, *ema[1:])
        if number <= start:
            expected = value
        elif number % every == 0:
            expected = 0.9 * expected + 0.1 * value
        np.testing.assert_allclose(average.module.running_mean.numpy(), expected, rtol=1e-12)
        ours = ema.averages[index].asnumpy()
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    assert average.module is not reference


def test_recording_a_reference_needs_torch_and_numpy_alone(python, tmp_path):
    """Not even what MindSpore would have installed."""
    code = "import sys; sys.modules['mindspore'] = sys.modules['psutil'] = None\n"
    code += "from resnet_fn.parity.__main__ import main\n"
    code += f"main(['record', '--steps', '1', '--out', {str(tmp_path / 'trace')!r}])"
    python("-c", code, cwd=Path(resnet_fn.__file__).parents[1])
    assert (tmp_path / "trace" / "manifest.json").is_file()
