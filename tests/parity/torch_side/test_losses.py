"""Torch's side of every loss: equal to ours, and to the published formulas in NumPy float64."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.torch_side.losses import recipe_loss
from resnet_fn.update.loss import make_loss

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
        return -(targets * np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))).sum(1).mean()
    p = 1 / (1 + np.exp(-logits))
    if loss == "bce":
        return -(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean()
    entropy = -(targets * np.log(p) + (1 - targets) * np.log(1 - p))
    p_t, alpha_t = targets * p + (1 - targets) * (1 - p), 0.25 * targets + 0.75 * (1 - targets)
    return (alpha_t * (1 - p_t) ** 2 * entropy).sum(1).mean()


@pytest.mark.parametrize("labels", [HARD, SOFT], ids=["classes", "probabilities"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_it_is_ours_and_the_published_formula(torch, device, case, labels):
    loss = recipe_loss(Recipe(**case))
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(logits, torch.tensor(labels))
    value.backward()
    targets = (np.eye(5)[labels] if labels.ndim == 1 else labels).astype(np.float64)
    exact = loss(torch.tensor(LOGITS).double(), torch.tensor(labels))
    assert exact.dtype == torch.float64
    assert exact.item() == pytest.approx(published(LOGITS.astype(np.float64), targets, **case), rel=1e-12)
    ours = make_loss(case["label_smoothing"], case["loss"], case["smoothing_over"])
    ours_value, ours_gradient = mindspore.value_and_grad(ours)(Tensor(LOGITS), Tensor(labels))
    assert float(ours_value.asnumpy()) == pytest.approx(value.item(), rel=1e-6)
    np.testing.assert_allclose(ours_gradient.asnumpy(), logits.grad.numpy(), rtol=1e-5, atol=1e-7)
