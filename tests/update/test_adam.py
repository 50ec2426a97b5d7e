"""Adam and AdamW against their equations in NumPy float64, torch's own, and inside the compiled step."""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import adam, adamw, weight_decay_groups
from resnet_fn.update.step import make_train_step

pytestmark = pytest.mark.usefixtures("device")

SHAPES = [((8, 4, 3, 3), 0.05), ((8,), 0.0), ((10, 7), 0.01), ((5,), 0.05)]
CASES = [(0.9, 0.999, 1e-8), (0.8, 0.95, 1e-3), (0.0, 0.98, 1e-8)]


def run(make, prefix, betas_and_epsilon):
    """Fifty updates of any size under a changing rate: (weights before, gradients, rates, weights after, state)."""
    rng = np.random.default_rng(0)
    start = [rng.normal(size=shape).astype(np.float32) for shape, _ in SHAPES]
    start[1][:] = 0  # as beta is
    rates = [0.01 * (n + 1) / 10 if n < 10 else 0.01 * (50 - n) / 40 for n in range(50)]
    gradients = [
        [(rng.normal(size=shape) * 10.0 ** rng.integers(-6, 2)).astype(np.float32) for shape, _ in SHAPES]
        for _ in rates
    ]
    parameters = [Parameter(Tensor(value), name=f"{prefix}{index}.weight") for index, value in enumerate(start)]
    groups = [(parameter, decay) for parameter, (_, decay) in zip(parameters, SHAPES, strict=True)]
    optimizer = make(groups, *betas_and_epsilon)
    update = optimizer.update

    @mindspore.jit
    def step(rate, *given):
        update(given, rate)
        return rate * 1.0

    for given, rate in zip(gradients, rates, strict=True):
        step(Tensor(rate, mindspore.float32), *map(Tensor, given))
    state = {parameter.name: parameter.asnumpy() for parameter in optimizer.state}
    return start, gradients, rates, [parameter.asnumpy() for parameter in parameters], state


def relative(value, expected):
    return np.linalg.norm(value - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("numbers", CASES)
@pytest.mark.parametrize("make", [adam, adamw])
def test_fifty_updates_are_the_equations_in_float64(make, numbers):
    beta1, beta2, epsilon = numbers
    start, gradients, rates, ours, state = run(make, f"{make.__name__}{beta1}.", numbers)
    assert state["adam_updates"] == 50
    for i, (_, decay) in enumerate(SHAPES):
        p, m, v = start[i].astype(np.float64), 0.0, 0.0
        for t, (given, rate) in enumerate(zip(gradients, rates, strict=True), 1):
            g = given[i].astype(np.float64)
            if make is adam:
                g = g + decay * p
            else:
                p = p * (1 - rate * decay)
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            p = p - rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
        assert relative(ours[i], p) < 1e-6
        largest = max(np.abs(given[i]).max() for given in gradients)
        name = f"{make.__name__}{beta1}.{i}.weight"
        kept = [(1 - np.float64(np.float32(beta))) / (1 - beta) for beta in (beta1, beta2)]  # as the docstring says
        np.testing.assert_allclose(state[f"momentum.{name}"], kept[0] * m, rtol=1e-6, atol=1e-6 * largest)
        np.testing.assert_allclose(state[f"variance.{name}"], kept[1] * v, rtol=2e-6, atol=1e-9 * largest**2)


@pytest.mark.parametrize("numbers", CASES)
@pytest.mark.parametrize("make", [adam, adamw])
def test_fifty_updates_equal_torch(make, numbers):
    torch = pytest.importorskip("torch", reason="torch's own optimizer is the expectation")
    beta1, beta2, epsilon = numbers
    start, gradients, rates, ours, _ = run(make, f"{make.__name__}{beta2}.", numbers)
    theirs = [torch.nn.Parameter(torch.tensor(value)) for value in start]
    groups = [{"params": [p], "weight_decay": decay} for p, (_, decay) in zip(theirs, SHAPES, strict=True)]
    kind = torch.optim.Adam if make is adam else torch.optim.AdamW
    optimizer = kind(groups, betas=(beta1, beta2), eps=epsilon)
    for given, rate in zip(gradients, rates, strict=True):
        for group, parameter, gradient in zip(optimizer.param_groups, theirs, given, strict=True):
            group["lr"] = rate
            parameter.grad = torch.tensor(gradient)
        optimizer.step()
    for own, other in zip(ours, theirs, strict=True):
        assert relative(own, other.detach().numpy()) < 1e-6


def test_in_the_step_every_weight_moves_by_the_rate_and_a_skipped_update_changes_no_bit():
    """At update 1 Adam moves each weight by lr against the gradient's sign, whatever the gradient's size."""
    net = nn.Dense(4, 3)
    optimizer = adamw(weight_decay_groups(net, 0.0))
    step = make_train_step(net, make_loss(), optimizer, clip_norm=0.1)
    held = (*net.trainable_params(), *optimizer.state)
    before = [parameter.asnumpy().copy() for parameter in held]
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(6, 4)).astype(np.float32), Tensor(np.arange(6, dtype=np.int32) % 3)
    step(Tensor(images * np.nan), labels, 0.01)
    assert all(old.tobytes() == parameter.asnumpy().tobytes() for old, parameter in zip(before, held, strict=True))
    step(Tensor(images), labels, 0.01)
    for old, parameter in zip(before[:2], held[:2], strict=True):
        np.testing.assert_allclose(np.abs(parameter.asnumpy() - old), 0.01, rtol=1e-4)
    for parameter in optimizer.state:
        assert parameter.asnumpy().all(), parameter.name
