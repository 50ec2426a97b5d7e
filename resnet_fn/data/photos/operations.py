"""torchvision's operations on PIL images, by the names that its policies have for them; the same pixels.

https://github.com/pytorch/vision/blob/v0.28.0/torchvision/transforms/autoaugment.py, `_apply_op`, with its defaults:
the nearest pixel, black beyond the edge.
"""

import math
from collections.abc import Callable
from typing import Any

_BLACK = (0, 0, 0)


def apply(image: Any, name: str, magnitude: float) -> Any:
    """One operation on a PIL image in RGB: another image of the same size, or the same where nothing is to be done.

    Args:
        image: it.
        name: one of `OPERATIONS`.
        magnitude: in the operation's own unit: a shear's tangent, pixels, degrees, 1 less than an enhancement's
            factor, bits that are kept, the level from which on pixels are inverted; nothing for the others.
    """
    return OPERATIONS[name](image, magnitude)


def enhance(image: Any, name: str, factor: float) -> Any:
    """Mix an image with its grey, black, … version: Pillow's `ImageEnhance`; factor 1 changes nothing."""
    from PIL import ImageEnhance

    return getattr(ImageEnhance, name)(image).enhance(factor)


def _affine(image: Any, *matrix: float) -> Any:
    from PIL import Image

    nearest = Image.Resampling.NEAREST
    return image.transform(image.size, Image.Transform.AFFINE, matrix, nearest, fillcolor=_BLACK)


def _tangent(magnitude: float) -> float:
    return math.tan(math.radians(math.degrees(math.atan(magnitude))))  # to the last bit as torchvision comes to it


def _rotate(image: Any, degrees: float) -> Any:
    from PIL import Image

    return image.rotate(degrees, Image.Resampling.NEAREST, fillcolor=_BLACK)


def _image_ops(name: str, image: Any, *values: float) -> Any:
    from PIL import ImageOps

    return getattr(ImageOps, name)(image, *values)


OPERATIONS: dict[str, Callable[[Any, float], Any]] = {
    "Identity": lambda image, _: image,
    "ShearX": lambda image, m: _affine(image, 1, _tangent(m), 0, 0, 1, 0),
    "ShearY": lambda image, m: _affine(image, 1, 0, 0, _tangent(m), 1, 0),
    "TranslateX": lambda image, m: _affine(image, 1, 0, -int(m), 0, 1, 0),
    "TranslateY": lambda image, m: _affine(image, 1, 0, 0, 0, 1, -int(m)),
    "Rotate": _rotate,
    "Brightness": lambda image, m: enhance(image, "Brightness", 1 + m),
    "Color": lambda image, m: enhance(image, "Color", 1 + m),
    "Contrast": lambda image, m: enhance(image, "Contrast", 1 + m),
    "Sharpness": lambda image, m: enhance(image, "Sharpness", 1 + m),
    "Posterize": lambda image, m: _image_ops("posterize", image, int(m)),
    "Solarize": lambda image, m: _image_ops("solarize", image, m),
    "AutoContrast": lambda image, _: _image_ops("autocontrast", image),
    "Equalize": lambda image, _: _image_ops("equalize", image),
    "Invert": lambda image, _: _image_ops("invert", image),
}
