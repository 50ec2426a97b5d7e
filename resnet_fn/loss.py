"""Losses: functions of (logits, labels) that return the mean over the batch, computed in float32."""

from collections.abc import Callable

import mindspore
from mindspore import Tensor, ops

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Softmax cross-entropy with label smoothing, the mean over the batch.

    Smoothing spreads over all C classes, as PyTorch does (Szegedy et al., arXiv 1512.00567): the target is
    (1 − s) · one_hot(label) + s / C.

    Args:
        logits: [N, C], any float type; the loss is computed in float32.
        labels: [N] int32 classes, or [N, C] float32 probabilities (mixup, CutMix, distillation).
        smoothing: s, a fraction of 1.

    Returns:
        A float32 scalar.
    """
    return ops.cross_entropy(logits.astype(mindspore.float32), labels, label_smoothing=smoothing)


def make_loss(smoothing: float = 0.0) -> Loss:
    """The recipe's loss as a function of (logits, labels)."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(logits, labels, smoothing)

    return loss
