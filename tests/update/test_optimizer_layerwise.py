"""LARS and LAMB against their equations in NumPy float64, from the same gradients."""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from resnet_fn.update.optimizer import lamb, lars

pytestmark = pytest.mark.usefixtures("device")

SHAPES = [((4, 3, 3, 3), 0.02), ((5, 4), 0.02), ((4,), 0.0)]


def problem(prefix: str):
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
    def apply(given, rate):
        optimizer_update(given, rate)
        return rate

    optimizer_update = optimizer.update
    for given, rate in zip(gradients, rates, strict=True):
        apply([Tensor(g.astype(np.float32)) for g in given], Tensor(rate, mindspore.float32))
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


@pytest.mark.parametrize("beta1", [0.9, 0.0])
def test_lamb_is_algorithm_two(beta1):
    start, gradients, rates, parameters = problem(f"lamb{beta1}")
    groups = [(p, d) for p, (_, d) in zip(parameters, SHAPES, strict=True)]
    ours = run(lamb(groups, beta1), parameters, gradients, rates)
    for i, (_, decay) in enumerate(SHAPES):
        p, m, v = start[i].copy(), 0.0, 0.0
        for t, (given, rate) in enumerate(zip(gradients, rates, strict=True), 1):
            g = given[i]
            m, v = beta1 * m + (1 - beta1) * g, 0.999 * v + 0.001 * g * g
            u = m / (1 - beta1**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + decay * p
            p = p - rate * (np.linalg.norm(p) / np.linalg.norm(u) if decay else 1.0) * u
        np.testing.assert_allclose(ours[i], p, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [lars, lamb])
def test_zero_weights_and_zero_gradients_stay_finite(make):
    parameter = Parameter(Tensor(np.zeros((2, 2), np.float32)), name=f"{make.__name__}_zero.weight")
    zeros = [[np.zeros((2, 2))], [np.ones((2, 2))], [np.zeros((2, 2))]]
    [result] = run(make([(parameter, 0.1)]), [parameter], zeros, [0.1, 0.1, 0.1])
    assert np.isfinite(result).all()
    assert result.any()
