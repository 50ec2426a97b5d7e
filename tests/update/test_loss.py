"""Losses against PyTorch's and their formulas."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.update.loss import binary_cross_entropy, cross_entropy, make_loss, sigmoid_focal_loss

pytestmark = pytest.mark.usefixtures("device")

GENERATOR = np.random.default_rng(0)
LOGITS = (GENERATOR.standard_normal((8, 5)) * 4).astype(np.float32)
LABELS = GENERATOR.integers(0, 5, 8).astype(np.int32)
SOFT = GENERATOR.dirichlet(np.ones(5), 8).astype(np.float32)


def with_gradient(loss, *arguments) -> tuple[np.ndarray, np.ndarray]:
    value, gradient = mindspore.value_and_grad(lambda logits: loss(logits, *arguments).sum())(
        Tensor(LOGITS)
    )
    return value.asnumpy(), gradient.asnumpy()


def torch_with_gradient(loss) -> tuple[np.ndarray, np.ndarray]:
    torch = pytest.importorskip("torch", reason="torch's own figures are the expectation")
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(torch, logits).sum()
    value.backward()
    return value.detach().numpy(), logits.grad.numpy()


def assert_equal(
    ours: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray]
) -> None:
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


def test_extreme_logits_stay_finite() -> None:
    logits = Tensor(np.float32([[1e4, -1e4]]))
    targets = Tensor(np.float32([[0, 1]]))
    assert binary_cross_entropy(logits, targets).asnumpy() == pytest.approx(1e4)
    focal = sigmoid_focal_loss(logits, targets).asnumpy()
    assert focal.tolist() == [pytest.approx([0.75e4, 0.25e4])]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"kind": "hinge"}, "loss: 'hinge'|cross_entropy, bce, focal"),
        ({"kind": "own"}, "loss: 'own'|resnet_fn.fit"),
        ({"over": "most"}, "smoothing_over: 'most'|all, others"),
    ],
)
def test_unknown_losses_are_named(options, parts, raises_line):
    with raises_line(*parts.split("|")):
        make_loss(**options)


def test_float16_logits_lose_nothing_in_the_loss():
    # exp(-12) vanishes beside 1 in float16 (the loss would be 0), not in float32.
    loss = cross_entropy(
        Tensor(np.array([[12.0, 0.0]], np.float16)), Tensor(np.array([0], np.int32))
    )
    assert loss.asnumpy() == pytest.approx(np.log1p(np.exp(-12.0)), rel=0.1)


def torchs_loss(torch, kind, logits, targets, weight):
    """The loss of each sample and class, or of each sample."""
    functional = torch.nn.functional
    if kind == "cross_entropy":
        return functional.cross_entropy(logits, targets, weight, reduction="none")
    losses = functional.binary_cross_entropy_with_logits(logits, targets, weight, reduction="none")
    if kind == "focal":  # torchvision.ops.sigmoid_focal_loss, written from the paper
        p = torch.sigmoid(logits)
        losses = losses * (1 - (p * targets + (1 - p) * (1 - targets))) ** 2
        losses = (losses * (0.25 * targets + (1 - 0.25) * (1 - targets))).sum(1)
    return losses


@pytest.mark.parametrize("kind", ["cross_entropy", "bce", "focal"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weights", [[], [0.5, 2.0, 1.0, 0.0, 4.0]])
def test_losses_and_class_weights_are_torchs(kind, soft, weights):
    """Before its mean: torch's own mean of weighted cross-entropies divides by the weights, and
    parts of a batch would not add up to it.
    """
    labels = SOFT if soft else LABELS
    ours = with_gradient(make_loss(0.1, kind, weights=weights), Tensor(labels))
    smooth = (SOFT if soft else np.eye(5, dtype=np.float32)[LABELS]) * 0.9 + 0.1 / 5

    def theirs(torch, logits):
        arguments = logits, torch.tensor(smooth), torch.tensor(weights or [1.0] * 5)
        return torchs_loss(torch, kind, *arguments).mean()

    assert_equal(ours, torch_with_gradient(theirs))
