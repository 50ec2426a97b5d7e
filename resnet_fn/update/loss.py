"""Losses are functions of (logits, labels) that return the mean over the batch, computed in float32."""

from collections.abc import Callable, Sequence

import mindspore
import numpy as np
from mindspore import Tensor, ops

from resnet_fn.config.fields import OWN, check_value
from resnet_fn.config.recipe import Recipe

Loss = Callable[[Tensor, Tensor], Tensor]

_one_hot, _ONE, _ZERO = ops.OneHot(), Tensor(1.0, mindspore.float32), Tensor(0.0, mindspore.float32)


def smooth_targets(labels: Tensor, classes: int, smoothing: float = 0.0, over: str = "all") -> Tensor:
    """Smooth labels, int32 classes [N] or float32 probabilities [N, C], called t below; return float32 [N, C].

    "all" (PyTorch; Szegedy et al., arXiv 1512.00567): (1 − s) · t + s / C for every class. "others" (MindSpore's
    `CrossEntropySmooth`): 1 − s for the label, s / (C − 1) for each other class, as "all" with s · C / (C − 1).
    """
    targets = _one_hot(labels, classes, _ONE, _ZERO) if labels.ndim == 1 else labels
    targets = targets.astype(mindspore.float32)
    if smoothing == 0.0:
        return targets
    smoothing = _over_all(smoothing, over, classes)
    return targets * (1.0 - smoothing) + smoothing / classes


def _over_all(smoothing: float, over: str, classes: int) -> float:
    return smoothing if over == "all" else smoothing * classes / (classes - 1)


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0, over: str = "all") -> Tensor:
    """Compute softmax cross-entropy with label smoothing (`smooth_targets`), the mean over the batch, in float32."""
    smoothing = _over_all(smoothing, over, logits.shape[1])
    return ops.cross_entropy(logits.astype(mindspore.float32), labels, label_smoothing=smoothing)


# With several labels each class has its own sigmoid. Logits are [N, C], of any float type; targets are [N, C] float32
# in [0, 1], soft ones (mixup, smoothing) included; the result is float32 [N, C], a term for each sample and class.


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute sigmoid cross-entropy, as the terms of `torch.nn.BCEWithLogitsLoss`.

    −t · log σ(x) − (1 − t) · log(1 − σ(x)), in the form max(x, 0) − x·t + log(1 + e^−|x|) that cannot overflow.
    """
    logits = logits.astype(mindspore.float32)
    return ops.relu(logits) - logits * targets + ops.log1p(ops.exp(-ops.abs(logits)))


def sigmoid_focal_loss(logits: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """Compute focal loss (Lin et al., arXiv 1708.02002, equation 5), the terms of torchvision's `sigmoid_focal_loss`.

    (1 − p_t)^gamma · cross-entropy, where p_t = p·t + (1 − p)·(1 − t). Positives weigh alpha, negatives 1 − alpha; with
    a negative alpha there is no such weighting. `gamma`: how fast easy examples fade.
    """
    p = ops.sigmoid(logits.astype(mindspore.float32))
    # This is 1 − p_t; computing p_t first and subtracting it from 1 would lose digits where p_t is near 1.
    miss = p * (1.0 - targets) + (1.0 - p) * targets
    losses = binary_cross_entropy(logits, targets) * miss**gamma
    return losses if alpha < 0 else losses * (alpha * targets + (1.0 - alpha) * (1.0 - targets))


def make_loss(
    smoothing: float = 0.0, kind: str = "cross_entropy", over: str = "all", weights: Sequence[float] = ()
) -> Loss:
    """Make the recipe's loss, a function of (logits [N, C], labels [N] or [N, C]); a ValueError for an unknown kind.

    Args:
        smoothing: label smoothing, a fraction of 1.
        kind: "cross_entropy"; "bce", the mean over samples *and* classes (timm's BinaryCrossEntropy); "focal", with
            the paper's alpha 0.25 and gamma 2, the mean over the samples of the sum over the classes.
        over: the classes over which smoothing spreads probability: "all" or "others" (all but the label).
        weights: a factor for each class's part of the loss; (): none. The mean is over the samples, not over their
            weights, so that the losses of parts of a batch add up.
    """
    check_value(Recipe, "loss", kind)
    check_value(Recipe, "smoothing_over", over)
    if kind == OWN:
        raise ValueError(f"loss: {kind!r} is a function that resnet_fn.fit is given; give cross_entropy, bce or focal")
    by_class = Tensor(np.array(weights, np.float32)) if weights else None

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        if kind == "cross_entropy" and by_class is None:
            return cross_entropy(logits, labels, smoothing, over)
        logits = logits.astype(mindspore.float32)
        targets = smooth_targets(labels, logits.shape[1], smoothing, over)
        if kind == "cross_entropy":
            return -(targets * by_class * ops.log_softmax(logits, 1)).sum() / logits.shape[0]
        losses = binary_cross_entropy(logits, targets) if kind == "bce" else sigmoid_focal_loss(logits, targets)
        if by_class is not None:
            losses = losses * by_class
        return losses.mean() if kind == "bce" else losses.sum() / logits.shape[0]

    return loss
