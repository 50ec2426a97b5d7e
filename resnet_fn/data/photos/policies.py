"""Which operations a policy picks for an image, and how strong: torchvision's spaces and policies, our random numbers.

https://github.com/pytorch/vision/blob/v0.28.0/torchvision/transforms/autoaugment.py
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from resnet_fn.config.data import DataSettings

_BINS = 31  # strengths of TrivialAugment and RandAugment
_AUTO_BINS = 10
_WIDEST = {"Shear": 0.99, "Translate": 32.0, "Rotate": 135.0, "Enhance": 0.99}  # TrivialAugmentWide
_USUAL = {"Shear": 0.3, "Rotate": 30.0, "Enhance": 0.9}  # translation: 150 of 331 pixels
_SIGNED = {
    **{"ShearX": "Shear", "ShearY": "Shear", "TranslateX": "Translate", "TranslateY": "Translate", "Rotate": "Rotate"},
    **dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), "Enhance"),
}
# What TrivialAugmentWide and RandAugment choose from, each as likely.
CHOICE = ("Identity", *_SIGNED, "Posterize", "Solarize", "AutoContrast", "Equalize")

# AutoAugment's policy for ImageNet (Cubuk et al., arXiv 1805.09501, table 9): operation, probability, strength of 0..9.
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
PAIRS = [
    [operation.split() for operation in pair.split(",")]
    for line in IMAGENET.strip().split("\n")
    for pair in line.split(";")
]

Chosen = list[tuple[str, float]]


def magnitude(name: str, level: int, size: int, policy: str) -> float:
    """How strong an operation is at a level, in the unit that `operations.apply` takes; positive where it has a sign.

    Args:
        name: the operation.
        level: 0..30, autoaugment's 0..9.
        size: height and width of the image, pixels.
        policy: as in `Recipe`.
    """
    bins, wide = _AUTO_BINS if policy == "autoaugment" else _BINS, policy == "trivialaugment"
    if name in _SIGNED:
        kind = _SIGNED[name]
        ends = _WIDEST if wide else {**_USUAL, "Translate": 150.0 / 331.0 * size}
        return float(_linspace(0.0, ends[kind], bins)[level])
    if name == "Posterize":
        return float(8 - round(level / ((bins - 1) / (6 if wide else 4))))
    return float(_linspace(255.0, 0.0, bins)[level]) if name == "Solarize" else 0.0


def choose(settings: "DataSettings", size: int, rng: np.random.Generator) -> Chosen:
    """A policy's operations for one image, in order, with their magnitudes; none without a policy.

    TrivialAugmentWide: arXiv 2103.10158; RandAugment: arXiv 1909.13719; its `policy_noise` is timm's mstd: normal
    around the strength, drawn for each operation.
    """
    if settings.policy == "autoaugment":
        return _choose_pair(size, rng)
    chosen = []
    for _ in range({"": 0, "trivialaugment": 1, "randaugment": settings.policy_ops}[settings.policy]):
        name, level, sign = CHOICE[rng.integers(len(CHOICE))], int(rng.integers(_BINS)), _sign(rng)
        if settings.policy == "randaugment":
            level = settings.policy_magnitude
            if settings.policy_noise:
                level = min(max(round(rng.normal(level, settings.policy_noise)), 0), _BINS - 1)
        chosen.append((name, (sign if name in _SIGNED else 1) * magnitude(name, level, size, settings.policy)))
    return chosen


def _choose_pair(size: int, rng: np.random.Generator) -> Chosen:
    chosen = []
    for name, probability, *level in PAIRS[rng.integers(len(PAIRS))]:
        drawn, sign = rng.random(), _sign(rng)
        if drawn < float(probability):
            strength = magnitude(name, int(level[0]), size, "autoaugment") if level else 0.0
            chosen.append((name, (sign if name in _SIGNED else 1) * strength))
    return chosen


def _sign(rng: np.random.Generator) -> int:
    return 1 - 2 * int(rng.integers(2))


def _linspace(start: float, end: float, count: int) -> np.ndarray:
    """torch.linspace's float32 with its rounding, a step in float32 and then once: a pixel's place may hang on it."""
    first, last = np.float32(start), np.float32(end)
    step, places = float((last - first) / np.float32(count - 1)), np.arange(count)
    values = np.where(places < count // 2, first + step * places, last - step * (count - 1 - places))
    return values.astype(np.float32)
