"""This module augments training images by crop, flip, colour jitter and policies such as
RandAugment.

Colour jitter and policies compute the same pixels as torchvision on PIL images. The random numbers
differ from torchvision's. Source:
https://github.com/pytorch/vision/blob/v0.28.0/torchvision/transforms/autoaugment.py
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.order import Streams

_JITTERED = ("Brightness", "Contrast", "Color")
_ENHANCED = ("Brightness", "Color", "Contrast", "Sharpness")
_BLACK = (0, 0, 0)


def crop_and_flip(images: np.ndarray, draws: np.ndarray, padding: int, flip: bool) -> np.ndarray:
    """Pad images with black, and cut out random windows of the original size (arXiv 1512.03385,
    section 4.2).

    Images are uint8 [N, H, W, C]. `padding` is in pixels on each side. The columns of `draws`, [N,
    3] in [0, 1), choose the window's row, the window's column, and whether to mirror. If `flip` is
    false, no image is mirrored.
    """
    height, width = images.shape[1:3]
    top, left = ((draws[:, :2] * (2 * padding + 1)).astype(int) - padding).T.tolist()
    mirrored = (draws[:, 2] < 0.5).tolist() if flip else [False] * len(images)
    result = np.zeros_like(images)
    # One slice for each image is four times as fast as one gather over all pixels.
    for image, target, y, x, mirror in zip(images, result, top, left, mirrored, strict=True):
        window = target[:, ::-1] if mirror else target
        rows = slice(max(-y, 0), min(height - y, height))
        columns = slice(max(-x, 0), min(width - x, width))
        window[rows, columns] = image[
            rows.start + y : rows.stop + y, columns.start + x : columns.stop + x
        ]
    return result


def colour(image: Any, recipe: Recipe, epoch: int, repeat: int, number: int) -> Any:
    """Apply the recipe's jitter and policy to an image.

    `epoch`, `repeat` and `number` select the random numbers.
    """
    if recipe.color_jitter:
        # Brightness, contrast and saturation change in random order.
        rng = np.random.default_rng([recipe.seed, epoch, Streams.JITTER, repeat, number])
        most = recipe.color_jitter
        for index, factor in zip(
            rng.permutation(len(_JITTERED)), rng.uniform(1 - most, 1 + most, 3), strict=True
        ):
            image = enhance(image, _JITTERED[index], factor)
    if recipe.policy:
        rng = np.random.default_rng([recipe.seed, epoch, Streams.POLICY, repeat, number])
        for name, magnitude in choose(recipe, image.width, rng):
            image = OPERATIONS[name](image, magnitude)
    return image


def colour_arrays(
    images: np.ndarray, recipe: Recipe, epoch: int, repeats: Iterable[int], numbers: Iterable[int]
) -> np.ndarray:
    """Apply the recipe's jitter and policy to each image in `images`, uint8 [N, H, W, 3]."""
    from PIL import Image

    draws = zip(images, repeats, numbers, strict=True)
    return np.stack(
        [
            colour(Image.fromarray(image), recipe, epoch, *numbers_of_image)
            for image, *numbers_of_image in draws
        ]
    )


def enhance(image: Any, name: str, factor: float) -> Any:
    """Apply a class of Pillow's `ImageEnhance`, such as "Color", to an image.

    Factor 1 leaves the image unchanged.
    """
    from PIL import ImageEnhance

    return getattr(ImageEnhance, name)(image).enhance(factor)


def _enhance_by(name: str, image: Any, magnitude: float) -> Any:
    return enhance(image, name, 1 + magnitude)


def _affine(image: Any, *matrix: float) -> Any:
    from PIL import Image

    nearest = Image.Resampling.NEAREST
    return image.transform(image.size, Image.Transform.AFFINE, matrix, nearest, fillcolor=_BLACK)


def _tangent(magnitude: float) -> float:
    return math.tan(math.radians(math.degrees(math.atan(magnitude))))  # rounds as torchvision does


def _image_ops(name: str, image: Any, *values: float) -> Any:
    from PIL import ImageOps

    return getattr(ImageOps, name)(image, *values)


# Each function takes an RGB PIL image and a magnitude. The magnitude is a shear's tangent, pixels,
# degrees, a factor minus 1 (Brightness to Sharpness), bits to keep (Posterize), or the lowest level
# that Solarize inverts.
OPERATIONS: dict[str, Callable[[Any, float], Any]] = {
    "Identity": lambda image, _: image,
    "ShearX": lambda image, m: _affine(image, 1, _tangent(m), 0, 0, 1, 0),
    "ShearY": lambda image, m: _affine(image, 1, 0, 0, _tangent(m), 1, 0),
    "TranslateX": lambda image, m: _affine(image, 1, 0, -int(m), 0, 1, 0),
    "TranslateY": lambda image, m: _affine(image, 1, 0, 0, 0, 1, -int(m)),
    # nearest pixel is Pillow's default
    "Rotate": lambda image, degrees: image.rotate(degrees, fillcolor=_BLACK),
    **{name: partial(_enhance_by, name) for name in _ENHANCED},
    "Posterize": lambda image, m: _image_ops("posterize", image, int(m)),
    "Solarize": lambda image, m: _image_ops("solarize", image, m),
    "AutoContrast": lambda image, _: _image_ops("autocontrast", image),
    "Equalize": lambda image, _: _image_ops("equalize", image),
    "Invert": lambda image, _: _image_ops("invert", image),
}

_BINS = 31  # number of levels of TrivialAugment and RandAugment
_AUTO_BINS = 10
_WIDEST = {"Shear": 0.99, "Translate": 32.0, "Rotate": 135.0, "Enhance": 0.99}  # TrivialAugmentWide
_USUAL = {"Shear": 0.3, "Rotate": 30.0, "Enhance": 0.9}  # translation: 150 of 331 pixels
_SIGNED = {
    "ShearX": "Shear",
    "ShearY": "Shear",
    "TranslateX": "Translate",
    "TranslateY": "Translate",
    "Rotate": "Rotate",
    **dict.fromkeys(_ENHANCED, "Enhance"),
}
# TrivialAugmentWide and RandAugment choose from these operations with equal probability.
CHOICE = ("Identity", *_SIGNED, "Posterize", "Solarize", "AutoContrast", "Equalize")

# AutoAugment's policies (Cubuk et al., arXiv 1805.09501, tables 7 and 9): operation, probability,
# level 0..9.
CIFAR10 = """
Invert 0.1, Contrast 0.2 6;           Rotate 0.7 2, TranslateX 0.3 9;    Sharpness 0.8 1, Sharpness 0.9 3
ShearY 0.5 8, TranslateY 0.7 9;       AutoContrast 0.5, Equalize 0.9;    ShearY 0.2 7, Posterize 0.3 7
Color 0.4 3, Brightness 0.6 7;        Sharpness 0.3 9, Brightness 0.7 9; Equalize 0.6, Equalize 0.5
Contrast 0.6 7, Sharpness 0.6 5;      Color 0.7 7, TranslateX 0.5 8;     Equalize 0.3, AutoContrast 0.4
TranslateY 0.4 3, Sharpness 0.2 6;    Brightness 0.9 6, Color 0.2 8;     Solarize 0.5 2, Invert 0.0
Equalize 0.2, AutoContrast 0.6;       Equalize 0.2, Equalize 0.6;        Color 0.9 9, Equalize 0.6
AutoContrast 0.8, Solarize 0.2 8;     Brightness 0.1 3, Color 0.7 0;     Solarize 0.4 5, AutoContrast 0.9
TranslateY 0.9 9, TranslateY 0.7 9;   AutoContrast 0.9, Solarize 0.8 3;  Equalize 0.8, Invert 0.1
TranslateY 0.7 9, AutoContrast 0.9
"""
IMAGENET = """
Posterize 0.4 8, Rotate 0.6 9;        Solarize 0.6 5, AutoContrast 0.6;  Equalize 0.8, Equalize 0.6
Posterize 0.6 7, Posterize 0.6 6;     Equalize 0.4, Solarize 0.2 4;      Equalize 0.4, Rotate 0.8 8
Solarize 0.6 3, Equalize 0.6;         Posterize 0.8 5, Equalize 1.0;     Rotate 0.2 3, Solarize 0.6 8
Equalize 0.6, Posterize 0.4 6;        Rotate 0.8 8, Color 0.4 0;         Rotate 0.4 9, Equalize 0.6
Equalize 0.0, Equalize 0.8;           Invert 0.6, Equalize 1.0;          Color 0.6 4, Contrast 1.0 8
Rotate 0.8 8, Color 1.0 2;            Color 0.8 8, Solarize 0.8 7;       Sharpness 0.4 7, Invert 0.6
ShearX 0.6 5, Equalize 1.0;           Color 0.4 0, Equalize 0.6;         Equalize 0.4, Solarize 0.2 4
Solarize 0.6 5, AutoContrast 0.6;     Invert 0.6, Equalize 1.0;          Color 0.6 4, Contrast 1.0 8
Equalize 0.8, Equalize 0.6
"""

# Image files (key True) use ImageNet's policy. Sets in memory (key False) use CIFAR-10's policy.
PAIRS = {
    of_files: [
        [operation.split() for operation in pair.split(",")]
        for pair in re.split("[;\n]", policy.strip())
    ]
    for of_files, policy in ((True, IMAGENET), (False, CIFAR10))
}


def magnitude(name: str, level: int, size: int, policy: str) -> float:
    """Return an operation's unsigned magnitude at image width `size`.

    `level` is 0..30, or 0..9 for autoaugment.
    """
    bins = _AUTO_BINS if policy == "autoaugment" else _BINS
    wide = policy == "trivialaugment"
    if name in _SIGNED:
        kind = _SIGNED[name]
        ends = _WIDEST if wide else {**_USUAL, "Translate": 150.0 / 331.0 * size}
        return _linspace(0.0, ends[kind], bins, level)
    if name == "Posterize":
        return float(8 - round(level / ((bins - 1) / (6 if wide else 4))))
    return _linspace(255.0, 0.0, bins, level) if name == "Solarize" else 0.0


def choose(settings: Recipe, size: int, rng: np.random.Generator) -> list[tuple[str, float]]:
    """Draw the policy's operations for one image of width `size`, as pairs (name, magnitude).

    TrivialAugmentWide is from arXiv 2103.10158. RandAugment is from arXiv 1909.13719.
    `policy_noise` is from timm.
    """
    policy = settings.policy
    chosen = []
    if policy == "autoaugment":
        pairs = PAIRS[settings.of_files]
        for name, probability, *strength in pairs[rng.integers(len(pairs))]:
            drawn = rng.random()
            negative = rng.integers(2)
            if drawn < float(probability):
                chosen.append((name, int(strength[0]) if strength else 0, negative))
    for _ in range({"trivialaugment": 1, "randaugment": settings.policy_ops}.get(policy, 0)):
        name = CHOICE[rng.integers(len(CHOICE))]
        level = int(rng.integers(_BINS))
        negative = rng.integers(2)
        if policy == "randaugment":
            level = settings.policy_magnitude
            if settings.policy_noise:
                level = min(max(round(rng.normal(level, settings.policy_noise)), 0), _BINS - 1)
        chosen.append((name, level, negative))
    return [
        (name, (-1 if negative and name in _SIGNED else 1) * magnitude(name, level, size, policy))
        for name, level, negative in chosen
    ]


def _linspace(start: float, end: float, count: int, index: int) -> float:
    """Return a value of `torch.linspace` with torch's float32 rounding.

    NumPy's rounding could change an image.
    """
    first = np.float32(start)
    last = np.float32(end)
    step = float((last - first) / np.float32(count - 1))
    from_first = float(first) + step * index
    from_last = float(last) - step * (count - 1 - index)
    return float(np.float32(from_first if index < count // 2 else from_last))
