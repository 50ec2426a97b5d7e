"""With several labels each class has its own sigmoid: binary cross-entropy, focal loss, and accuracy.

Logits are [N, C], of any float type, which become float32; targets are [N, C] float32 in [0, 1], soft ones (mixup,
smoothing) included. The losses are float32 [N, C], one term for each sample and class.
"""

import mindspore
from mindspore import Tensor, ops


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
    # 1 − p_t directly: taking p_t from 1 would lose it where the example is easy.
    miss = p * (1.0 - targets) + (1.0 - p) * targets
    losses = binary_cross_entropy(logits, targets) * miss**gamma
    return losses if alpha < 0 else losses * (alpha * targets + (1.0 - alpha) * (1.0 - targets))


def accuracy_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the share of correct (sample, class) pairs: logit >= 0 where the label is above 0.5; both are [N, C]."""
    return ((logits >= 0) == (labels > 0.5)).astype(mindspore.float32).mean()
