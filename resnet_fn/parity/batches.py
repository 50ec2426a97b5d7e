"""Make the batches of images on which both sides of the ladder train."""

from collections.abc import Sequence

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.mix import draw_mixing, mix
from resnet_fn.parity.trace.tree import Batch


def make_batches(
    updates: int, batch_size: int, channels: int, image_size: int, classes: int, seed: int = 0
) -> list[Batch]:
    """Make batches of float32 images with int32 labels.

    An image is a random pattern of its class, plus noise.
    """
    rng = np.random.default_rng([seed, 20])
    shape = (channels, image_size, image_size)
    patterns = rng.standard_normal((min(classes, 10), *shape)).astype(np.float32)
    batches = []
    for _ in range(updates):
        labels = rng.integers(0, len(patterns), batch_size).astype(np.int32)
        noise = rng.standard_normal((batch_size, *shape)).astype(np.float32)
        images = (patterns[labels] + noise) * np.float32(0.7)
        batches.append((np.ascontiguousarray(images), labels))
    return batches


def recipe_batches(
    recipe: Recipe, batches: Sequence[Batch], classes: int, seed: int
) -> list[Batch]:
    """Apply the recipe's repeated augmentation and mixing.

    Mixed labels are probabilities, float32 [n, classes].
    """
    mixed = []
    for update, (images, labels) in enumerate(batches):
        count = len(images)
        rows = np.arange(count) % (count // recipe.repeats)
        images = images[rows]
        labels = labels[rows]
        if recipe.mixup or recipe.cutmix:
            key = [seed, 21, update]
            rng = np.random.default_rng(key)
            size = images.shape[2:]
            mixing = draw_mixing(rng, recipe.mixup, recipe.cutmix, recipe.mix_switch, *size)
            images, labels = mix(images, labels, classes, mixing)
            if recipe.label_threshold:
                is_label = labels > recipe.label_threshold
                labels = is_label.astype(np.float32)
        mixed.append((images, labels))
    return mixed
