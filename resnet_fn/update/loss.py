"""Losses: functions of (logits, labels) that return the mean over the batch, computed in float32."""

from collections.abc import Callable, Sequence

import mindspore
import numpy as np
from mindspore import Tensor, ops

from resnet_fn.config.fields import check_value
from resnet_fn.config.recipe import Recipe

Loss = Callable[[Tensor, Tensor], Tensor]

REDUCTIONS = ("mean", "sum", "none")


def smooth_targets(labels: Tensor, classes: int, smoothing: float = 0.0, over: str = "all") -> Tensor:
    """Labels as probabilities, of which a part is spread over other classes.

    "all" (PyTorch; Szegedy et al., arXiv 1512.00567): (1 − s) · t + s / C for every class. "others"
    (`CrossEntropySmooth` of MindSpore's scripts): 1 − s for the label and s / (C − 1) for each other class; it equals
    "all" with s · C / (C − 1).

    Args:
        labels: [N] int32 classes, or [N, C] float32 probabilities t (mixup, CutMix).
        classes: C.
        smoothing: s, a fraction of 1.
        over: "all" or "others".

    Returns:
        float32 [N, C].
    """
    targets = ops.one_hot(labels, classes) if labels.ndim == 1 else labels
    targets = targets.astype(mindspore.float32)
    if smoothing == 0.0:
        return targets
    spread = _spread_over_all(smoothing, over, classes)
    return targets * (1.0 - spread) + spread / classes


def _spread_over_all(smoothing: float, over: str, classes: int) -> float:
    return smoothing if over == "all" else smoothing * classes / (classes - 1)


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0, over: str = "all") -> Tensor:
    """Softmax cross-entropy with label smoothing, the mean over the batch.

    Args:
        logits: [N, C], any float type; the loss is computed in float32.
        labels: [N] int32 classes, or [N, C] float32 probabilities (mixup, CutMix, distillation).
        smoothing: s, a fraction of 1.
        over: which classes the smoothing spreads over; see `smooth_targets`.

    Returns:
        A float32 scalar.
    """
    spread = _spread_over_all(smoothing, over, logits.shape[1])
    return ops.cross_entropy(logits.astype(mindspore.float32), labels, label_smoothing=spread)


def binary_cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Sigmoid cross-entropy of every class on its own, as `torch.nn.BCEWithLogitsLoss`.

    −t · log σ(x) − (1 − t) · log(1 − σ(x)), in the form max(x, 0) − x·t + log(1 + e^−|x|) that cannot overflow.

    Args:
        logits: [N, C], any float type; computed in float32.
        targets: [N, C] float32 in [0, 1]; soft targets from mixup and smoothing included.
        reduction: "mean" over all N · C terms, "sum", or "none" ([N, C]).
    """
    return _reduce(_sigmoid_cross_entropy(logits.astype(mindspore.float32), targets), reduction)


def sigmoid_focal_loss(
    logits: Tensor,
    targets: Tensor,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Focal loss (Lin et al., arXiv 1708.02002, equation 5), as torchvision's `sigmoid_focal_loss`.

    (1 − p_t)^gamma · cross-entropy, where p_t = p·t + (1 − p)·(1 − t); positives weigh alpha, negatives 1 − alpha.

    Args:
        logits: [N, C], any float type; computed in float32.
        targets: [N, C] float32 in [0, 1].
        alpha: weight of positives; negative: no such weighting.
        gamma: how fast easy examples fade; 0 with a negative alpha is binary cross-entropy.
        reduction: "mean" over all N · C terms, "sum", or "none" ([N, C]).
        weight: multiplies the terms; per class [C], or per sample [N, 1].
    """
    logits = logits.astype(mindspore.float32)
    p = ops.sigmoid(logits)
    # 1 − p_t directly: taking p_t from 1 would lose it where the example is easy.
    miss = p * (1.0 - targets) + (1.0 - p) * targets
    losses = _sigmoid_cross_entropy(logits, targets) * miss**gamma
    if alpha >= 0:
        losses = losses * (alpha * targets + (1.0 - alpha) * (1.0 - targets))
    if weight is not None:
        losses = losses * weight
    return _reduce(losses, reduction)


def _sigmoid_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return ops.relu(logits) - logits * targets + ops.log1p(ops.exp(-ops.abs(logits)))


def _reduce(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise ValueError(f"reduction: {reduction!r} is unknown; use one of {', '.join(REDUCTIONS)}")


def make_loss(
    smoothing: float = 0.0, kind: str = "cross_entropy", over: str = "all", weights: Sequence[float] = ()
) -> Loss:
    """The recipe's loss as a function of (logits [N, C], labels [N] or [N, C]); a ValueError for an unknown kind.

    Args:
        smoothing: label smoothing, a fraction of 1.
        kind: "cross_entropy"; "bce", the mean over samples *and* classes (timm's BinaryCrossEntropy); "focal", with
            the paper's alpha 0.25 and gamma 2, summed over the classes (a mean over them would all but vanish) and
            the mean over the samples.
        over: which classes the smoothing spreads over: "all" or "others".
        weights: what each class's part of the loss is multiplied by; (): nothing. The mean is over the samples, not
            over their weights, so that parts of a batch add up to it.
    """
    check_value(Recipe, "loss", kind)
    check_value(Recipe, "smoothing_over", over)
    by_class = Tensor(np.array(weights, np.float32)) if weights else None

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        if kind == "cross_entropy" and by_class is None:
            return cross_entropy(logits, labels, smoothing, over)
        logits = logits.astype(mindspore.float32)
        targets = smooth_targets(labels, logits.shape[1], smoothing, over)
        if kind == "cross_entropy":
            return -(targets * by_class * ops.log_softmax(logits, 1)).sum() / logits.shape[0]
        if kind == "bce":
            losses = _sigmoid_cross_entropy(logits, targets)
            return losses.mean() if by_class is None else (losses * by_class).mean()
        return sigmoid_focal_loss(logits, targets, reduction="sum", weight=by_class) / logits.shape[0]

    return loss
