"""The recipe's loss in torch."""

from collections.abc import Callable

import torch

from resnet_fn.config.recipe import Recipe


def recipe_loss(recipe: Recipe) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The recipe's loss of (logits, labels)."""
    if recipe.loss != "cross_entropy" or recipe.smoothing_over != "all" or recipe.label_threshold:
        raise ValueError(f"loss: the ladder does not compare {recipe.loss} like this yet")

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        targets = labels if labels.is_floating_point() else labels.long()
        return torch.nn.functional.cross_entropy(logits, targets, label_smoothing=recipe.label_smoothing)

    return loss
