"""The recipe's losses in torch, from torch's own functions and the papers."""

from collections.abc import Callable

import torch
from torch.nn import functional

from resnet_fn.config.recipe import Recipe


def recipe_loss(recipe: Recipe) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The recipe's loss of (logits, labels), the mean over the batch, in the logits' precision.

    Logits are [n, classes]; labels are classes, integers [n], or probabilities [n, classes] (mixup, CutMix). The
    recipe's `label_threshold` is applied to labels where they are mixed, not here.
    """

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = recipe.label_smoothing
        if recipe.loss == "cross_entropy" and recipe.smoothing_over == "all":
            labels = labels.to(logits.dtype) if labels.is_floating_point() else labels.long()
            return functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        targets = _smoothed(labels, logits, smoothing, recipe.smoothing_over)
        if recipe.loss == "cross_entropy":
            return functional.cross_entropy(logits, targets)
        if recipe.loss == "bce":  # over samples and classes, as timm's BinaryCrossEntropy
            return functional.binary_cross_entropy_with_logits(logits, targets)
        return _focal(logits, targets).sum(1).mean()

    return loss


def _smoothed(labels: torch.Tensor, logits: torch.Tensor, smoothing: float, over: str) -> torch.Tensor:
    """Labels as probabilities; `smoothing` of each label's goes to all classes or to the others, in equal parts."""
    classes = logits.shape[1]
    targets = labels if labels.is_floating_point() else functional.one_hot(labels.long(), classes)
    targets = targets.to(logits.dtype)
    if over == "others":
        return targets * (1 - smoothing) + (1 - targets) * smoothing / (classes - 1)
    return targets * (1 - smoothing) + smoothing / classes


def _focal(logits: torch.Tensor, targets: torch.Tensor, alpha: float = 0.25, gamma: float = 2.0) -> torch.Tensor:
    """Lin et al., arXiv 1708.02002, equation 5, of each sample and class: −α_t (1 − p_t)^γ log p_t."""
    entropy = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p = torch.sigmoid(logits)
    p_t = p * targets + (1 - p) * (1 - targets)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    return alpha_t * (1 - p_t) ** gamma * entropy
