"""This module applies mixup, CutMix and random erasing to normalised images."""

from typing import NamedTuple

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.order import Batch, Streams


class Mixing(NamedTuple):
    """Holds an update's mixing weight and, for CutMix, the box that is filled with pixels of
    another image.
    """

    weight: float  # weight of a sample's own label and, with mixup, image (neighbour: 1 − weight)
    # CutMix fills the box (top, bottom, left, right) with pixels of the neighbour. Mixup has no
    # box.
    box: tuple[int, int, int, int] | None = None


def erase_and_mix(
    recipe: Recipe, batch: Batch, classes: int, update: int, epoch: int, erasing: np.ndarray | None
) -> Batch:
    """Call `erase` with draws `erasing`, [n, 5], unless `erasing` is None.

    Then apply the recipe's mixup or CutMix.
    """
    images, labels = batch
    if erasing is not None:
        images = erase(images, erasing, recipe.erasing)
    if not recipe.mixes:
        return images, labels
    mixing = None
    if epoch < recipe.epochs - recipe.mix_off_epochs:
        rng = np.random.default_rng([recipe.seed, update, Streams.MIXING])
        mixing = draw_mixing(rng, recipe.mixup, recipe.cutmix, recipe.mix_switch, *images.shape[2:])
    images, soft = mix(images, labels, classes, mixing)
    if recipe.label_threshold:
        soft = (soft > recipe.label_threshold).astype(np.float32)
    return images, soft


def draw_mixing(
    rng: np.random.Generator, mixup: float, cutmix: float, switch: float, height: int, width: int
) -> Mixing:
    """Draw the weight and box of an update for mixup (arXiv 1710.09412) or CutMix (arXiv
    1905.04899, equations 1, 2).

    `mixup` and `cutmix` are each the alpha of a distribution Beta(alpha, alpha), or 0 to turn the
    method off. If both methods are on, CutMix has the probability `switch`.
    """
    cuts = bool(cutmix) and (not mixup or rng.random() < switch)
    alpha = cutmix if cuts else mixup
    weight = float(rng.beta(alpha, alpha))
    if not cuts:
        return Mixing(weight)
    # The box covers 1 − weight of the image. The image's border can cut the box, so the real area
    # gives the weight.
    half_y = int(0.5 * np.sqrt(1 - weight) * height)
    half_x = int(0.5 * np.sqrt(1 - weight) * width)
    y = int(rng.integers(height))
    x = int(rng.integers(width))
    top = max(y - half_y, 0)
    bottom = min(y + half_y, height)
    left = max(x - half_x, 0)
    right = min(x + half_x, width)
    return Mixing(
        1 - (bottom - top) * (right - left) / (height * width), (top, bottom, left, right)
    )


def mix(
    images: np.ndarray, labels: np.ndarray, classes: int, mixing: Mixing | None
) -> tuple[np.ndarray, np.ndarray]:
    """Mix images in pairs (0 and 1, 2 and 3, …), and mix the labels of each pair.

    Images are float32 [n, C, H, W] with even n. Labels are int32 [n] or float32 [n, classes]. The
    returned labels are float32 [n, classes]. If `mixing` is None, nothing is mixed.
    """
    shares = labels
    if labels.ndim == 1:
        shares = np.zeros((len(labels), classes), np.float32)
        shares[np.arange(len(labels)), labels] = 1
    if mixing is None:
        return images, shares
    weight = np.float32(mixing.weight)
    soft = weight * shares + (1 - weight) * _neighbours(shares)
    if mixing.box is None:
        mixed = images * weight
        mixed += (1 - weight) * _neighbours(images)
        return mixed, soft
    top, bottom, left, right = mixing.box
    mixed = images.copy()
    mixed[:, :, top:bottom, left:right] = _neighbours(images[:, :, top:bottom, left:right])
    return mixed, soft


def _neighbours(array: np.ndarray) -> np.ndarray:
    return array.reshape(len(array) // 2, 2, *array.shape[1:])[:, ::-1].reshape(array.shape)


def erase(images: np.ndarray, draws: np.ndarray, probability: float) -> np.ndarray:
    """Set a random rectangle of some normalised images, [N, C, H, W], to 0 (Zhong et al., arXiv
    1708.04896).

    The columns of `draws`, [N, 5] in [0, 1), choose whether to erase, the area, the aspect ratio,
    the row and the column. As in torchvision, the area is drawn from 2 % to 33 % of the image, and
    the aspect ratio from 0.3 to 3.3. A rectangle that is too high or too wide is clipped to the
    image. torchvision would draw another rectangle.
    """
    chosen = np.flatnonzero(draws[:, 0] < probability)
    if not len(chosen):
        return images
    images = images.copy()
    height, width = images.shape[2:]
    for index in chosen:
        _, of_area, of_ratio, row, column = draws[index]
        area = (0.02 + 0.31 * of_area) * height * width
        ratio = np.exp(np.log(0.3) + (np.log(3.3) - np.log(0.3)) * of_ratio)
        tall = min(round(np.sqrt(area * ratio)), height)
        wide = min(round(np.sqrt(area / ratio)), width)
        top = int(row * (height - tall + 1))
        left = int(column * (width - wide + 1))
        images[index, :, top : top + tall, left : left + wide] = 0
    return images
