"""Per-image colour operations and policies, MindSpore's own."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from resnet_fn.config.data import DataSettings


def colour_operations(fields: "DataSettings", small: bool, levels: Sequence[int]) -> list[Any]:
    """MindSpore's own random colour and policy operations of a recipe, in their order; uint8 [H, W, C] in and out.

    TrivialAugmentWide: arXiv 2103.10158; RandAugment: arXiv 1909.13719; AutoAugment: arXiv 1805.09501.

    Args:
        fields: the recipe.
        small: whether the images are CIFAR-like: AutoAugment has a policy for each kind.
        levels: RandAugment's, see `policy_levels`.
    """
    from mindspore.dataset import transforms, vision

    operations: list[Any] = []
    if fields.color_jitter:
        span = (1 - fields.color_jitter, 1 + fields.color_jitter)
        operations.append(vision.RandomColorAdjust(span, span, span))
    if fields.policy == "trivialaugment":
        operations.append(vision.TrivialAugmentWide())
    elif fields.policy == "randaugment":
        choices = [vision.RandAugment(fields.policy_ops, level) for level in levels]
        operations.append(choices[0] if len(choices) == 1 else transforms.RandomChoice(choices))
    elif fields.policy == "autoaugment":
        policies = vision.AutoAugmentPolicy
        operations.append(vision.AutoAugment(policies.CIFAR10 if small else policies.IMAGENET))
    return operations


_LEVELS = 16
_ANOTHER = 1_640_531_527  # a step between seeds that no pattern of theirs shares


def policy_levels(fields: "DataSettings") -> list[int]:
    """RandAugment's equally likely strengths, 0..30: one, or with noise the middles of a normal distribution's parts.

    They stand for timm's mstd, which draws anew for each operation; here the operations of an image share a strength.
    """
    if not fields.policy_noise:
        return [fields.policy_magnitude]
    normal = NormalDist(fields.policy_magnitude, fields.policy_noise)
    return [min(max(round(normal.inv_cdf((part + 0.5) / _LEVELS)), 0), 30) for part in range(_LEVELS)]


def colour_each(images: np.ndarray, fields: "DataSettings", seeds: np.ndarray) -> np.ndarray:
    """Apply `colour_operations` to each image with a seed of its own, so that nothing else decides the outcome.

    A fresh operation takes its random numbers from the global data seed at its making: about 60 µs an image.

    Args:
        images: uint8 [N, H, W, 3].
        seeds: [N] in 0..2^31−1.

    Returns:
        uint8 [N, H, W, 3].
    """
    from mindspore.dataset import config

    before = config.get_seed()
    result = np.empty_like(images)
    try:
        levels = policy_levels(fields)
        for index, image in enumerate(images):
            level = levels[int(seeds[index]) % len(levels)]
            for number, operation in enumerate(colour_operations(fields, True, [level])):
                # A seed for each: from the same one, all would draw the same numbers.
                config.set_seed((int(seeds[index]) + number * _ANOTHER) % 2**31)
                image = operation(image)
            result[index] = image
    finally:
        config.set_seed(before)
    return result
