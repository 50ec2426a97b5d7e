"""Every class on its own, by its sigmoid: binary cross-entropy, focal loss, and the accuracy of several labels."""

import mindspore
from mindspore import Tensor, ops

REDUCTIONS = ("mean", "sum", "none")


def binary_cross_entropy(
    logits: Tensor, targets: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Sigmoid cross-entropy of every class on its own, as `torch.nn.BCEWithLogitsLoss`.

    −t · log σ(x) − (1 − t) · log(1 − σ(x)), in the form max(x, 0) − x·t + log(1 + e^−|x|) that cannot overflow.

    Args:
        logits: [N, C], any float type; computed in float32.
        targets: [N, C] float32 in [0, 1]; soft targets from mixup and smoothing included.
        reduction: "mean" over all N · C terms, "sum", or "none" ([N, C]).
        weight: multiplies the terms; per class [C], or per sample [N, 1].
    """
    return _reduce(_sigmoid_cross_entropy(logits.astype(mindspore.float32), targets), reduction, weight)


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
        reduction, weight: see `binary_cross_entropy`.
    """
    logits = logits.astype(mindspore.float32)
    p = ops.sigmoid(logits)
    # 1 − p_t directly: taking p_t from 1 would lose it where the example is easy.
    miss = p * (1.0 - targets) + (1.0 - p) * targets
    losses = _sigmoid_cross_entropy(logits, targets) * miss**gamma
    if alpha >= 0:
        losses = losses * (alpha * targets + (1.0 - alpha) * (1.0 - targets))
    return _reduce(losses, reduction, weight)


def _sigmoid_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return ops.relu(logits) - logits * targets + ops.log1p(ops.exp(-ops.abs(logits)))


def _reduce(losses: Tensor, reduction: str, weight: Tensor | None) -> Tensor:
    if weight is not None:
        losses = losses * weight
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise ValueError(f"reduction: {reduction!r} is unknown; use one of {', '.join(REDUCTIONS)}")


def accuracy_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of correct (sample, class) pairs: logit >= 0 where the label is above 0.5; both are [N, C]."""
    return ((logits >= 0) == (labels > 0.5)).astype(mindspore.float32).mean()
