"""Optimizers against their equations in float64, and groups of parameters."""

import inspect

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops

from resnet_fn.config.optimizers import OPTIMIZERS
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.models import build_net
from resnet_fn.update import adaptive
from resnet_fn.update.adaptive import adam, adamw, lamb, lars, lion, one_minus_powers
from resnet_fn.update.groups import (
    describe_rates,
    parameter_groups,
    shown_factor,
    unzip_groups,
    weight_decay_groups,
)
from resnet_fn.update.optimizer import momentum_sgd

pytestmark = pytest.mark.usefixtures("device")

# A parameter's shape, weight decay and factor of the learning rate.
ROWS = [((8, 4, 3, 3), 0.05, 1.0), ((8,), 0.0, 10.0), ((10, 7), 0.01, 0.5), ((5,), 0.05, 1.0)]
UPDATES = 50
RATES = [0.01 * (n + 1) / 10 if n < 10 else 0.01 * (UPDATES - n) / 40 for n in range(UPDATES)]
prefixes = iter(range(1000))


def run(make, start, gradients, rates):
    """Updates in a compiled function, as in the step; (weights, state by name without the
    prefix).
    """
    prefix = f"run{next(prefixes)}."
    parameters = [
        Parameter(Tensor(value), name=f"{prefix}{index}") for index, value in enumerate(start)
    ]
    optimizer = make(
        [(parameter, *row[1:]) for parameter, row in zip(parameters, ROWS, strict=False)]
    )
    update = optimizer.update

    @mindspore.jit
    def step(rate, *given):  # a list of tensors would be a constant, and compile anew at every call
        update(given, rate)
        return rate * 1.0

    for given, rate in zip(gradients, rates, strict=True):
        step(Tensor(rate, mindspore.float32), *map(Tensor, given))
    state = {
        parameter.name.replace(prefix, ""): parameter.asnumpy() for parameter in optimizer.state
    }
    return [parameter.asnumpy() for parameter in parameters], state


@pytest.fixture(scope="module")
def problem():
    """Weights to start from, and fifty updates' gradients of any size."""
    rng = np.random.default_rng(0)
    start = [rng.normal(size=shape).astype(np.float32) for shape, *_ in ROWS]
    start[1][:] = 0  # as beta is
    scales = [10.0 ** rng.integers(-6, 2) for _ in RATES]
    return start, [
        [(rng.normal(size=shape) * scale).astype(np.float32) for shape, *_ in ROWS]
        for scale in scales
    ]


def relative(value, expected):
    return np.linalg.norm(value - expected) / np.linalg.norm(expected)


# Each equation: (p, state, g, rate, decay, t, numbers) -> p, all float64; state holds m and v.
def sgd_equation(p, state, g, rate, decay, t, momentum, nesterov):
    g = g + decay * p
    state["m"] = momentum * state["m"] + g
    return p - rate * (g + momentum * state["m"] if nesterov else state["m"])


def lars_equation(p, state, g, rate, decay, t, momentum, trust):
    size, length = np.linalg.norm(p), np.linalg.norm(g)
    ratio = trust * size / (length + decay * size) if decay else 1.0
    state["m"] = momentum * state["m"] + rate * ratio * (g + decay * p)
    return p - state["m"]


def moments(state, g, t, beta1, beta2, epsilon):
    state["m"] = beta1 * state["m"] + (1 - beta1) * g
    state["v"] = beta2 * state["v"] + (1 - beta2) * g * g
    return state["m"] / (1 - beta1**t) / (np.sqrt(state["v"] / (1 - beta2**t)) + epsilon)


def adam_equation(p, state, g, rate, decay, t, *numbers):
    return p - rate * moments(state, g + decay * p, t, *numbers)


def adamw_equation(p, state, g, rate, decay, t, *numbers):
    return p * (1 - rate * decay) - rate * moments(state, g, t, *numbers)


def lamb_equation(p, state, g, rate, decay, t, *numbers):
    u = moments(state, g, t, *numbers) + decay * p
    return p - rate * (np.linalg.norm(p) / np.linalg.norm(u) if decay else 1.0) * u


def lion_equation(p, state, g, rate, decay, t, beta1, beta2):
    step = np.sign(beta1 * state["m"] + (1 - beta1) * g)
    state["m"] = beta2 * state["m"] + (1 - beta2) * g
    return p - rate * (step + decay * p)


BETAS = [(0.9, 0.999, 1e-8), (0.8, 0.95, 1e-3), (0.0, 0.98, 1e-8)]
CASES = [
    (momentum_sgd, sgd_equation, (0.0, False)),
    (momentum_sgd, sgd_equation, (0.9, False)),
    (momentum_sgd, sgd_equation, (0.9, True)),
    *((adam, adam_equation, numbers) for numbers in BETAS),
    (adamw, adamw_equation, BETAS[1]),  # adam's moments
    (lars, lars_equation, (0.9, 0.01)),
    (lion, lion_equation, (0.95, 0.98)),
    (lamb, lamb_equation, (0.9, 0.999, 1e-6)),
    (lamb, lamb_equation, (0.0, 0.999, 1e-6)),
]


@pytest.mark.parametrize(("make", "equation", "numbers"), CASES)
def test_fifty_updates_are_the_equations_in_float64(make, equation, numbers, problem):
    start, gradients = problem
    ours, state = run(lambda groups: make(groups, *numbers), start, gradients, RATES)
    for i, (_, decay, factor) in enumerate(ROWS):
        p = start[i].astype(np.float64)
        kept = {"m": 0.0, "v": 0.0}
        for t, (given, rate) in enumerate(zip(gradients, RATES, strict=True), 1):
            p = equation(p, kept, given[i].astype(np.float64), rate * factor, decay, t, *numbers)
        assert relative(ours[i], p) < 1e-6
        if make in (adam, adamw):  # as the docstring says of what is kept
            shares = [(1 - np.float64(np.float32(beta))) / (1 - beta) for beta in numbers[:2]]
            kept = {"m": kept["m"] * shares[0], "v": kept["v"] * shares[1]}
        largest = max(np.abs(given[i]).max() for given in gradients)
        if numbers != (0.0, False):  # without momentum its buffer is not read
            momentum = state[f"momentum.{i}"]
            np.testing.assert_allclose(momentum, kept["m"], rtol=2e-6, atol=1e-6 * largest)
        if "variance.0" in state:
            variance = state[f"variance.{i}"]
            np.testing.assert_allclose(variance, kept["v"], rtol=2e-6, atol=1e-9 * largest**2)
    counts = [value for name, value in state.items() if name.endswith("_updates")]
    assert counts == ([] if make in (momentum_sgd, lars, lion) else [UPDATES])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_row_lists_the_settings_of_its_function(name):
    row = OPTIMIZERS[name]
    make = momentum_sgd if name == "sgd" else getattr(adaptive, name)
    parameters = inspect.signature(make).parameters
    of_all = {"groups", "momentum", "beta1"}
    assert parameters.keys() - of_all - {"decoupled"} == {*row.settings}
    zero_by_default = [name for name in row.settings if Recipe.declarations[name].default == 0.0]
    assert row.value_if_zero == {name: parameters[name].default for name in zero_by_default}


def test_bias_corrections_are_float32_of_the_exact_ones():
    betas = (0.9, 0.999, 0.9999, 0.0)
    corrections = mindspore.jit(one_minus_powers(betas))
    for t in (1, 2, 3, 10, 25, 37, 38, 39, 999, 3990, 4010, 39900, 40100, 10**7):
        ours = corrections(Tensor(t, mindspore.float32)).asnumpy()
        np.testing.assert_allclose(ours, [1 - beta**t for beta in betas], rtol=3e-7)


@pytest.mark.parametrize("make", [lars, lamb])
def test_zero_weights_and_zero_gradients_stay_finite(make):
    zeros = np.zeros((2, 2), np.float32)
    ones = np.ones((2, 2), np.float32)
    [result], _ = run(make, [zeros], [[zeros], [ones], [zeros]], [0.1, 0.1, 0.1])
    assert np.isfinite(result).all()
    assert result.any()


class Mixed(nn.Cell):
    """Layers of many kinds; names that say nothing of the kind."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1, has_bias=True)
        self.norms = nn.CellList(
            [
                nn.BatchNorm2d(4),
                nn.BatchNorm3d(4),
                nn.LayerNorm([4]),
                nn.GroupNorm(2, 4),
                nn.InstanceNorm2d(4),
                mint.nn.LayerNorm(4),
                mint.nn.GroupNorm(2, 4),
                mint.nn.BatchNorm2d(4),
            ]
        )
        self.gamma = Parameter(ops.ones(4), name="gamma")  # a layer scale's, as in ConvNeXt
        self.beta = Parameter(ops.ones(4), name="beta")
        self.lstm = nn.LSTM(4, 4)
        self.attention = nn.MultiheadAttention(4, 1)


def test_weight_decay_depends_on_the_kind_of_layer():
    """Spared are norm layers' parameters, however they are called, and biases; a `gamma` elsewhere
    is a weight.
    """
    net = Mixed()
    net.norms[5].weight.name = "head.weight"
    net.lstm.weight_ih_l0.requires_grad = False
    groups = weight_decay_groups(net, 0.1)
    assert [parameter for parameter, _ in groups] == net.trainable_params()
    decayed = " ".join(parameter.name for parameter, decay in groups if decay)
    assert decayed == (
        "gamma beta conv.weight lstm.weight_hh_l0 attention.in_proj_weight "
        "attention.out_proj.weight"
    )
    assert {decay for _, decay in weight_decay_groups(net, 0.1, decay_all=True)} == {0.1}


def test_bare_parameters_have_no_weight_decay():
    net = nn.Dense(3, 2)
    assert unzip_groups(net.trainable_params()) == unzip_groups(weight_decay_groups(net, 0.0))
    for groups, name in (
        ([{"params": net.trainable_params()}], "dict"),
        (net, "Dense"),
        ([("fc", 0.1)], "tuple"),
    ):
        message = rf"^groups: {name} is neither .*; give net.trainable_params\(\), or weig"
        with pytest.raises(ValueError, match=message):
            momentum_sgd(groups)
    with pytest.raises(ValueError, match=r"^nesterov: .*momentum"):
        momentum_sgd([], momentum=0.0, nesterov=True)


SPEC = load_digits().input
RECIPE = Recipe(model="resnet8", image_size=8, learning_rate=0.05, weight_decay=0.01)


def factors(recipe):
    net = build_net(recipe, SPEC)
    return {parameter.name: factor for parameter, _, factor in parameter_groups(recipe, net)}


def test_layer_decay_is_timms():
    """layer_scales = decay ** (layers - 1 - layer): the stem is layer 0, each block one, the head
    the last.
    """
    rates = factors(RECIPE.changed(model="resnet20", layer_decay=0.5))
    assert rates["fc.weight"] == rates["fc.bias"] == 1
    blocks = [f"layer{stage}.{block}" for stage in (1, 2, 3) for block in (0, 1, 2)]
    for distance, block in enumerate(reversed(blocks), 1):
        assert {value for name, value in rates.items() if name.startswith(block)} == {0.5**distance}
    assert rates["conv1.weight"] == rates["bn1.beta"] == 0.5**10


def test_the_rates_that_a_run_prints_are_true():
    def rates(**settings):
        recipe = RECIPE.changed(**settings)
        found = factors(recipe)
        return describe_rates(recipe.learning_rate, found), shown_factor(found.values())

    assert rates() == ("", 1)
    assert rates(head_lr_factor=10.0) == ("stem to layer3 0.05, fc 0.5", 1)
    assert rates(head_lr_factor=10.0, train_only="fc") == ("fc 0.5", 10)
    assert rates(layer_decay=0.5, freeze="stem,fc") == (
        "layer1 0.00625, layer2 0.0125, layer3 0.025",
        0.5,
    )
    deep = rates(model="resnet20", layer_decay=0.5, freeze="stem,layer1,layer2")
    assert deep == ("layer3 0.00625 to 0.025, fc 0.05", 1)


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (momentum_sgd, "momentum", 1.0),
        (lars, "momentum", -0.1),
        (adam, "beta1", 1.0),
        (adamw, "beta2", 1.5),
        (lamb, "beta2", float("nan")),
    ],
)
def test_decays_outside_0_to_1_are_rejected(make, name, value, raises_line):
    with raises_line(f"{name}: {value} is not in [0, 1)", "give"):
        make(
            [(Parameter(Tensor([1.0]), name=f"rejected{next(prefixes)}"), 0.0, 1.0)],
            **{name: value},
        )
