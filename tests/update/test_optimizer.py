import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, jit

from resnet_fn.models import create_model
from resnet_fn.update.gradients import clip_by_global_norm, global_norm
from resnet_fn.update.optimizer import momentum_sgd, weight_decay_groups

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


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(ValueError, match="nesterov: needs momentum above 0"):
        momentum_sgd([], momentum=0.0, nesterov=True)
