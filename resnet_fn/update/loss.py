"""This module makes loss functions of (logits, labels), which compute in float32."""

from collections.abc import Callable, Sequence

import mindspore
import numpy as np
from mindspore import Tensor, ops

from resnet_fn.config.declaration import CUSTOM
from resnet_fn.config.recipe import Recipe

Loss = Callable[[Tensor, Tensor], Tensor]

_one_hot = ops.OneHot()
_ONE = Tensor(1.0, mindspore.float32)
_ZERO = Tensor(0.0, mindspore.float32)


def smooth_targets(
    labels: Tensor, classes: int, smoothing: float = 0.0, over: str = "all"
) -> Tensor:
    """Convert labels to probabilities with label smoothing s, float32 [N, C].

    `labels` are int32 classes [N] or float32 probabilities [N, C]. If `over` is "all", a
    probability t becomes (1 − s) · t + s / C (Szegedy et al., arXiv 1512.00567), as in PyTorch. If
    `over` is "others", t becomes (1 − r) · t + r / C with r = s · C / (C − 1), so that t = 1
    becomes 1 − s, as in MindSpore's `CrossEntropySmooth`.
    """
    targets = _one_hot(labels, classes, _ONE, _ZERO) if labels.ndim == 1 else labels
    targets = targets.astype(mindspore.float32)
    if smoothing == 0.0:
        return targets
    smoothing = _over_all(smoothing, over, classes)
    return targets * (1.0 - smoothing) + smoothing / classes


def _over_all(smoothing: float, over: str, classes: int) -> float:
    return smoothing if over == "all" else smoothing * classes / (classes - 1)


def cross_entropy(
    logits: Tensor, labels: Tensor, smoothing: float = 0.0, over: str = "all"
) -> Tensor:
    """Compute the mean softmax cross-entropy over the batch, in float32, with label smoothing
    (`smooth_targets`).
    """
    smoothing = _over_all(smoothing, over, logits.shape[1])
    return ops.cross_entropy(logits.astype(mindspore.float32), labels, label_smoothing=smoothing)


# The following two losses have a sigmoid for each class. Logits are [N, C], of any float type.
# Targets are float32 [N, C] in [0, 1], also soft ones. The result is float32 [N, C], with a term
# for each sample and class.


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the sigmoid cross-entropy of each sample and class: −t · log σ(x) − (1 − t) · log(1 −
    σ(x)).
    """
    # This form cannot overflow: max(x, 0) − x·t + log(1 + e^−|x|).
    logits = logits.astype(mindspore.float32)
    return ops.relu(logits) - logits * targets + ops.log1p(ops.exp(-ops.abs(logits)))


def sigmoid_focal_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the focal loss of each sample and class (Lin et al., arXiv 1708.02002, equation 5).

    The loss is (1 − p_t)² · cross-entropy, with p = σ(logit) and p_t = p·t + (1 − p)·(1 − t), times
    0.25 for positives and 0.75 for negatives.
    """
    p = ops.sigmoid(logits.astype(mindspore.float32))
    # This is 1 − p_t. To compute p_t first and subtract it from 1 would lose digits where p_t is
    # near 1.
    miss = p * (1.0 - targets) + (1.0 - p) * targets
    losses = binary_cross_entropy(logits, targets) * miss**2.0
    return losses * (0.25 * targets + 0.75 * (1.0 - targets))


def make_loss(
    smoothing: float = 0.0,
    kind: str = "cross_entropy",
    over: str = "all",
    weights: Sequence[float] = (),
) -> Loss:
    """Make a loss function of (logits [N, C], labels [N] or [N, C]), which returns a float32
    scalar.

    Args:
        smoothing: amount of label smoothing, from 0 (none) to 1.
        kind: "cross_entropy", "bce" or "focal". "bce" is the mean over samples and classes, as
            timm's BinaryCrossEntropy. "focal" is the mean over samples of the sum over classes,
            with alpha 0.25 and gamma 2.
        over: the classes that share the smoothed probability, "all" or "others" (all except the
            label).
        weights: a factor for each class's part of the loss; () for no factors. The loss is not
            divided by the sum of the weights, unlike in PyTorch.

    Raises:
        ValueError: if `kind` or `over` is unknown.
    """
    Recipe.declarations["loss"].checked(kind)
    Recipe.declarations["smoothing_over"].checked(over)
    if kind == CUSTOM:
        raise ValueError(
            f"loss: {kind!r} is for functions passed to resnet_fn.fit; give cross_entropy, bce or "
            "focal"
        )
    by_class = Tensor(np.array(weights, np.float32)) if weights else None

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        if kind == "cross_entropy" and by_class is None:
            return cross_entropy(logits, labels, smoothing, over)
        logits = logits.astype(mindspore.float32)
        targets = smooth_targets(labels, logits.shape[1], smoothing, over)
        if kind == "cross_entropy":
            return -(targets * by_class * ops.log_softmax(logits, 1)).sum() / logits.shape[0]
        losses = (
            binary_cross_entropy(logits, targets)
            if kind == "bce"
            else sigmoid_focal_loss(logits, targets)
        )
        if by_class is not None:
            losses = losses * by_class
        return losses.mean() if kind == "bce" else losses.sum() / logits.shape[0]

    return loss
