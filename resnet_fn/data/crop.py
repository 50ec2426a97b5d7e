"""Random crops and flips of equal-sized byte images, and per-image colour operations."""

from typing import Any

import numpy as np

from resnet_fn.config_data import DataFields


def crop_and_flip(images: np.ndarray, draws: np.ndarray, padding: int, flip: bool) -> np.ndarray:
    """Pad with black, cut a random window of the old size, mirror half of the images.

    He et al., arXiv 1512.03385, section 4.2: 4 pixels for CIFAR.

    Args:
        images: uint8 [N, H, W, C].
        draws: [N, 3] in [0, 1): vertical place, horizontal place, mirrored if below 1/2.
        padding: pixels on each side.
        flip: whether to mirror at all.

    Returns:
        uint8 [N, H, W, C].
    """
    if not padding and not flip:
        return images
    height, width = images.shape[1:3]
    top, left = ((draws[:, :2] * (2 * padding + 1)).astype(int) - padding).T.tolist()
    mirrored = (draws[:, 2] < 0.5).tolist() if flip else [False] * len(images)
    result = np.zeros_like(images)
    # A slice per image is four times as fast as one gather over all pixels.
    for image, target, y, x, mirror in zip(images, result, top, left, mirrored, strict=True):
        window = target[:, ::-1] if mirror else target
        rows, columns = slice(max(-y, 0), min(height - y, height)), slice(max(-x, 0), min(width - x, width))
        window[rows, columns] = image[rows.start + y : rows.stop + y, columns.start + x : columns.stop + x]
    return result


def colour_operations(fields: DataFields, small: bool) -> list[Any]:
    """MindSpore's own random colour and policy operations of a recipe, in their order; uint8 [H, W, C] in and out.

    TrivialAugmentWide: arXiv 2103.10158; RandAugment: arXiv 1909.13719; AutoAugment: arXiv 1805.09501.

    Args:
        fields: the recipe.
        small: whether the images are CIFAR-like: AutoAugment has a policy for each kind.
    """
    from mindspore.dataset import vision

    operations: list[Any] = []
    if fields.color_jitter:
        span = (1 - fields.color_jitter, 1 + fields.color_jitter)
        operations.append(vision.RandomColorAdjust(span, span, span))
    if fields.policy == "trivialaugment":
        operations.append(vision.TrivialAugmentWide())
    elif fields.policy == "randaugment":
        operations.append(vision.RandAugment(fields.policy_ops, fields.policy_magnitude))
    elif fields.policy == "autoaugment":
        policies = vision.AutoAugmentPolicy
        operations.append(vision.AutoAugment(policies.CIFAR10 if small else policies.IMAGENET))
    return operations


def colour_each(images: np.ndarray, fields: DataFields, seeds: np.ndarray) -> np.ndarray:
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
        for index, image in enumerate(images):
            config.set_seed(int(seeds[index]))
            for operation in colour_operations(fields, small=True):
                image = operation(image)
            result[index] = image
    finally:
        config.set_seed(before)
    return result
