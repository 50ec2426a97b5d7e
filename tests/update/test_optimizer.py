"""SGD, LARS and LAMB against their equations in NumPy float64, and torch's own SGD."""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, jit, mint, nn, ops

from resnet_fn.models import create_model
from resnet_fn.update.gradients import clip_by_global_norm, global_norm
from resnet_fn.update.optimizer import lamb, lars, momentum_sgd, one_minus_powers, weight_decay_groups

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("nesterov", [False, True])
def test_twenty_updates_equal_float64(nesterov):
    """Momentum, Nesterov, decay groups, clipping and a changing rate, against the equations in NumPy float64."""
    rng = np.random.default_rng(0)
    shapes, decays = [(4, 3, 3, 3), (4,), (10, 4)], [5e-4, 0.0, 5e-4]
    values = [rng.normal(size=shape) for shape in shapes]
    weights = [Parameter(Tensor(v.astype(np.float32)), name=f"w{i}") for i, v in enumerate(values)]
    values = [w.asnumpy().astype(np.float64) for w in weights]
    velocity = [np.zeros(shape) for shape in shapes]
    optimizer = momentum_sgd(list(zip(weights, decays, strict=True)), momentum=0.9, nesterov=nesterov)
    update = optimizer.update

    @jit
    def step(gradients, rate):
        norm = global_norm(gradients)
        update(clip_by_global_norm(gradients, norm, 1.0), rate)
        return norm

    for number in range(20):
        rate = 0.2 * (1 + np.cos(np.pi * number / 20)) / 2
        scale = 10.0 ** rng.integers(-2, 2)  # some are clipped, some are not
        gradients = [(rng.normal(size=shape) * scale).astype(np.float32) for shape in shapes]
        step([Tensor(g) for g in gradients], Tensor(rate, mindspore.float32))
        norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients))
        for i, gradient in enumerate(gradients):
            g = gradient.astype(np.float64) * min(1.0, 1.0 / norm) + decays[i] * values[i]
            velocity[i] = 0.9 * velocity[i] + g
            values[i] = values[i] - rate * (g + 0.9 * velocity[i] if nesterov else velocity[i])
    for weight, buffer, v, m in zip(weights, optimizer.state, values, velocity, strict=True):
        assert np.linalg.norm(weight.asnumpy() - v) <= 1e-5 * np.linalg.norm(v)
        assert np.linalg.norm(buffer.asnumpy() - m) <= 1e-5 * np.linalg.norm(m)


def test_no_decay_on_gamma_beta_and_bias():
    net = create_model("resnet20", num_classes=10)
    decays = {parameter.name: decay for parameter, decay in weight_decay_groups(net, 0.1)}
    # 19 convolutions + 2 projections + 1 Dense weight decay; 2 x 21 of BatchNorm and the bias do not.
    assert sum(decay == 0.1 for decay in decays.values()) == 22
    assert {name.rsplit(".", 1)[1] for name, decay in decays.items() if decay == 0} == {"gamma", "beta", "bias"}
    assert sum(decay == 0 for decay in decays.values()) == 43


class Mixed(nn.Cell):
    """Layers of many kinds; names that say nothing of the kind."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1, has_bias=True)
        self.norms = nn.CellList(
            [
                *(nn.BatchNorm2d(4), nn.BatchNorm3d(4), nn.LayerNorm([4]), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)),
                *(mint.nn.LayerNorm(4), mint.nn.GroupNorm(2, 4), mint.nn.BatchNorm2d(4)),
            ]
        )
        self.gamma = Parameter(ops.ones(4), name="gamma")  # a layer scale's, as in ConvNeXt
        self.beta = Parameter(ops.ones(4), name="beta")
        self.lstm = nn.LSTM(4, 4)
        self.attention = nn.MultiheadAttention(4, 1)


def test_decay_goes_by_the_kind_of_layer_not_by_the_name():
    """Spared are norm layers' parameters, however they are called, and biases; a `gamma` elsewhere is a weight."""
    net = Mixed()
    net.norms[5].weight.name = "head.weight"
    net.lstm.weight_ih_l0.requires_grad = False
    groups = weight_decay_groups(net, 0.1)
    assert [parameter for parameter, _ in groups] == net.trainable_params()
    decayed = ["gamma", "beta", "conv.weight", "lstm.weight_hh_l0", "attention.in_proj_weight"]
    assert [parameter.name for parameter, decay in groups if decay] == [*decayed, "attention.out_proj.weight"]
    assert {decay for _, decay in weight_decay_groups(net, 0.1, decay_all=True)} == {0.1}


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(ValueError, match="nesterov: needs momentum above 0"):
        momentum_sgd([], momentum=0.0, nesterov=True)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_fifty_updates_equal_torch_sgd(momentum, nesterov):
    """Momentum, dampening 0, Nesterov, decay by group, clip_grad_norm_ and a changing rate."""
    torch = pytest.importorskip("torch", reason="torch's own optimizer is the expectation")
    rng = np.random.default_rng(0)
    shapes, decays = [(8, 4, 3, 3), (8,), (10, 8), (10,)], [5e-4, 0.0, 5e-4, 0.0]
    start = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    ours = [Parameter(Tensor(value), name=f"w{index}") for index, value in enumerate(start)]
    theirs = [torch.nn.Parameter(torch.tensor(value)) for value in start]
    groups = [{"params": [p], "weight_decay": decay} for p, decay in zip(theirs, decays, strict=True)]
    sgd = torch.optim.SGD(groups, lr=0.1, momentum=momentum, dampening=0, nesterov=nesterov)
    update = momentum_sgd(list(zip(ours, decays, strict=True)), momentum, nesterov).update

    @jit
    def step(rate, *gradients):  # a list of tensors would be a constant, and compile anew at every call
        norm = global_norm(gradients)
        update(clip_by_global_norm(gradients, norm, 1.0), rate)
        return norm

    for number in range(50):
        rate = 0.1 * (number + 1) / 10 if number < 10 else 0.1 * (50 - number) / 40
        gradients = [(rng.standard_normal(s) * 10.0 ** rng.integers(-3, 2)).astype(np.float32) for s in shapes]
        norm = step(Tensor(rate, mindspore.float32), *map(Tensor, gradients))
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = torch.tensor(gradient)
        for group in sgd.param_groups:
            group["lr"] = rate
        assert norm.asnumpy() == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs, 1.0).item(), rel=1e-5)
        sgd.step()
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own.asnumpy(), other.detach().numpy(), rtol=1e-4, atol=2e-6)


SHAPES = [((4, 3, 3, 3), 0.02), ((5, 4), 0.02), ((4,), 0.0)]


def problem(prefix):
    rng = np.random.default_rng(0)
    start = [rng.normal(size=shape) for shape, _ in SHAPES]
    gradients = [[rng.normal(size=shape) * 10.0 ** rng.integers(-3, 2) for shape, _ in SHAPES] for _ in range(20)]
    rates = np.linspace(0.5, 0.01, 20)
    parameters = [
        Parameter(Tensor(value.astype(np.float32)), name=f"{prefix}{i}.weight") for i, value in enumerate(start)
    ]
    return start, gradients, rates, parameters


def run(optimizer, parameters, gradients, rates):
    @mindspore.jit
    def apply(rate, *given):
        optimizer_update(given, rate)
        return rate

    optimizer_update = optimizer.update
    for given, rate in zip(gradients, rates, strict=True):
        apply(Tensor(rate, mindspore.float32), *(Tensor(g.astype(np.float32)) for g in given))
    return [parameter.asnumpy() for parameter in parameters]


def test_lars_is_algorithm_one():
    start, gradients, rates, parameters = problem("lars")
    ours = run(
        lars([(p, d) for p, (_, d) in zip(parameters, SHAPES, strict=True)], 0.9, 0.01), parameters, gradients, rates
    )
    for i, (_, decay) in enumerate(SHAPES):
        p, v = start[i].copy(), 0.0
        for given, rate in zip(gradients, rates, strict=True):
            g = given[i]
            trust = 0.01 * np.linalg.norm(p) / (np.linalg.norm(g) + decay * np.linalg.norm(p)) if decay else 1.0
            v = 0.9 * v + rate * trust * (g + decay * p)
            p = p - v
        np.testing.assert_allclose(ours[i], p, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("beta1", "updates"), [(0.9, 1), (0.9, 20), (0.0, 20)])
def test_lamb_is_algorithm_two(beta1, updates):
    start, gradients, rates, parameters = problem(f"lamb{beta1}{updates}")
    groups = [(p, d) for p, (_, d) in zip(parameters, SHAPES, strict=True)]
    ours = run(lamb(groups, beta1), parameters, gradients[:updates], rates[:updates])
    for i, (_, decay) in enumerate(SHAPES):
        first, m, v = start[i].astype(np.float32).astype(np.float64), 0.0, 0.0
        p = first
        for t, (given, rate) in enumerate(zip(gradients[:updates], rates, strict=False), 1):
            g = given[i]
            m, v = beta1 * m + (1 - beta1) * g, 0.999 * v + 0.001 * g * g
            u = m / (1 - beta1**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + decay * p
            p = p - rate * (np.linalg.norm(p) / np.linalg.norm(u) if decay else 1.0) * u
        assert np.linalg.norm(ours[i] - p) <= 1e-6 * np.linalg.norm(p - first)


def test_bias_corrections_are_float32_of_the_exact_ones():
    betas, counts = (0.9, 0.999, 0.9999, 0.0), (1, 2, 3, 10, 25, 37, 38, 39, 999, 3990, 4010, 39900, 40100, 10**7)
    corrections = mindspore.jit(one_minus_powers(betas))
    for t in counts:
        exact = [1 - beta**t for beta in betas]
        np.testing.assert_allclose(corrections(Tensor(t, mindspore.float32)).asnumpy(), exact, rtol=3e-7)


@pytest.mark.parametrize("make", [lars, lamb])
def test_zero_weights_and_zero_gradients_stay_finite(make):
    parameter = Parameter(Tensor(np.zeros((2, 2), np.float32)), name=f"{make.__name__}_zero.weight")
    zeros = [[np.zeros((2, 2))], [np.ones((2, 2))], [np.zeros((2, 2))]]
    [result] = run(make([(parameter, 0.1)]), [parameter], zeros, [0.1, 0.1, 0.1])
    assert np.isfinite(result).all()
    assert result.any()
