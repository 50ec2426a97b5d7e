"""One image file as evaluation sees it: what torchvision's evaluation transform computes, pixel for pixel.

`Resize(shorter side, bilinear, antialias)` → `CenterCrop`, on PIL images. MindSpore's C++ resize has no antialiasing,
and a net that was trained in PyTorch loses accuracy with it; its C++ decoder gives PIL's bytes (a test compares them).
"""

import io
from typing import Any

import numpy as np

_MOST_RESIZED = 50_000_000  # pixels of a resized image beyond which only the crop is computed


def open_rgb(data: bytes) -> Any:
    """Decode a file's bytes to a PIL image, RGB. EXIF rotation is not applied, as torchvision's loader doesn't.

    Raises:
        OSError, SyntaxError, ValueError: the decoder's own; damaged or not an image.
    """
    from PIL import Image  # a dependency of MindSpore; imported late, it costs start-up time

    return Image.open(io.BytesIO(data)).convert("RGB")


def eval_pixels(data: bytes, resize: int, crop: int) -> np.ndarray:
    """Decode, resize the shorter side to `resize`, cut the centre.

    Args:
        data: a file's bytes.
        resize: shorter side, pixels, at least `crop`.
        crop: height and width of the result.

    Returns:
        uint8 [crop, crop, 3].
    """
    from PIL import Image

    image = open_rgb(data)
    width, height = image.size
    short, long = min(width, height), max(width, height)
    other = int(resize * long / short)  # torchvision truncates
    new_width, new_height = (resize, other) if width <= height else (other, resize)
    # torchvision rounds halves to even here, as Python does.
    left, top = round((new_width - crop) / 2), round((new_height - crop) / 2)
    if new_width * new_height > _MOST_RESIZED:
        x, y = width / new_width, height / new_height
        box = (left * x, top * y, (left + crop) * x, (top + crop) * y)
        return np.asarray(image.resize((crop, crop), Image.Resampling.BILINEAR, box=box))
    if (new_width, new_height) != (width, height):
        image = image.resize((new_width, new_height), Image.Resampling.BILINEAR)
    return np.asarray(image.crop((left, top, left + crop, top + crop)))


def as_decodable(data: bytes) -> bytes:
    """The same picture as an 8-bit RGB PNG: for formats that MindSpore's C++ decoder lacks or reads otherwise."""
    buffer = io.BytesIO()
    open_rgb(data).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
