"""Optimizer, scaler and initialisation against torch's own."""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, jit, nn

from resnet_fn.models.init import initialise
from resnet_fn.update.gradients import clip_by_global_norm, global_norm
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import momentum_sgd

torch = pytest.importorskip("torch", reason="torch's own optimizer, scaler and initialisation are the expectation")

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_fifty_updates_equal_torch_sgd(momentum: float, nesterov: bool) -> None:
    """Momentum, dampening 0, Nesterov, decay by group, clip_grad_norm_ and a changing rate."""
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


def test_scaler_equals_torch_grad_scaler_over_random_overflows() -> None:
    scaler = DynamicLossScaler(initial=2.0**10, growth_interval=4, floor=2.0**-40, ceiling=2.0**60)
    theirs = torch.amp.GradScaler(device="cpu", init_scale=2.0**10, growth_interval=4)
    weight = torch.nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([weight], lr=1.0)

    @jit
    def adjust(finite):
        return scaler.adjust(finite)

    rng, skipped = np.random.default_rng(0), 0
    for _ in range(100):
        finite = bool(rng.random() < 0.8)
        used = theirs.get_scale()
        before = weight.item()
        theirs.scale(weight.sum() * 1.0).backward()
        if not finite:
            weight.grad.fill_(float("inf"))
        theirs.step(sgd)
        theirs.update()
        sgd.zero_grad()
        assert (weight.item() != before) == finite  # torch skipped where we skip
        skipped += not finite
        got = adjust(Tensor(finite)).asnumpy()
        assert (got[0], got[1]) == (used, skipped)
        assert scaler.scale.asnumpy() == theirs.get_scale()
        assert scaler.good_updates.asnumpy() == theirs.state_dict()["_growth_tracker"]


def layers() -> list:
    return [
        pytest.param(
            nn.Conv2d(256, 512, 3, pad_mode="pad", padding=1, has_bias=True), torch.nn.Conv2d(256, 512, 3), id="conv"
        ),
        pytest.param(
            nn.Conv2d(512, 512, 3, pad_mode="pad", padding=1, group=32, has_bias=True),
            torch.nn.Conv2d(512, 512, 3, groups=32),
            id="grouped",
        ),
        pytest.param(nn.Conv2d(1024, 512, 1, pad_mode="valid", has_bias=True), torch.nn.Conv2d(1024, 512, 1), id="1x1"),
        pytest.param(nn.Dense(512, 1000), torch.nn.Linear(512, 1000), id="dense"),
    ]


@pytest.mark.parametrize("kind", ["torchvision", "torch"])
@pytest.mark.parametrize(("own", "other"), layers())
def test_initialisation_has_torchs_distribution(kind: str, own: nn.Cell, other: "torch.nn.Module") -> None:
    """Mean and standard deviation within five standard errors, range alike; bias included."""
    mindspore.set_seed(1)
    torch.manual_seed(1)
    initialise(nn.SequentialCell([own]), kind)
    other.reset_parameters()
    if kind == "torchvision" and isinstance(other, torch.nn.Conv2d):
        torch.nn.init.kaiming_normal_(other.weight, mode="fan_out", nonlinearity="relu")
    for ours, theirs in ((own.weight, other.weight), (own.bias, other.bias)):
        a, b = ours.asnumpy().ravel().astype(np.float64), theirs.detach().numpy().ravel().astype(np.float64)
        error = 5 * b.std() * np.sqrt(2 / len(b))
        assert abs(a.mean() - b.mean()) < error
        assert abs(a.std() - b.std()) < error
        # Uniform ranges agree to a part of n; the extremes of normals vary by some tenths.
        normal = kind == "torchvision" and ours is own.weight and isinstance(own, nn.Conv2d)
        assert np.abs(a).max() == pytest.approx(np.abs(b).max(), rel=0.3 if normal else 0.02)
