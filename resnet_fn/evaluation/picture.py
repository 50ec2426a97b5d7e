"""`open_picture` makes a PIL image of what a caller gives `predict`: a path, a PIL image or an
array.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.data.image_file import NO_IMAGE, describe_unopened
from resnet_fn.data.preprocess import open_upright, upright
from resnet_fn.data.sources.files import how_to_convert, read_image

_CHANNELS = ((), (1,), (3,), (4,))  # grey, grey, RGB, RGBA
_FIX = "give a path, a PIL image, or uint8 [H, W, 3] (RGB, 0 to 255)"


def open_picture(image: Any, mode: str) -> Any:
    """Return a PIL image of mode "RGB" or "L" (grey), in the orientation that the EXIF data give.

    Args:
        image: a path, a PIL image, or an array uint8 [H, W], [H, W, 1], [H, W, 3] or [H, W, 4].
        mode: "RGB" or "L".

    Raises:
        ValueError: the image cannot be read, or `image` is something else.
    """
    from PIL import UnidentifiedImageError

    name = str(image)
    data = b""
    fix = "fix or remove the file"
    if not isinstance(image, str | Path):
        image = as_pil(image)
        name = getattr(image, "filename", "") or "the PIL image"
    try:
        if is_pil_image(image):
            return upright(image, mode)
        data = read_image(image)
        return open_upright(data, mode)
    except MemoryError:
        raise
    except UnidentifiedImageError:
        hint = how_to_convert([name])
        cause, fix = (NO_IMAGE, hint) if hint else (describe_unopened(data), fix)
    except Exception as error:  # PIL's decoders raise almost anything
        cause = getattr(error, "strerror", "") or str(error)
    raise ValueError(f"{name}: cannot be read ({cause}); {fix}")


def is_pil_image(image: Any) -> bool:
    """Return True for a PIL image. PIL is not imported for it."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


def as_pil(image: Any, name: str = "image") -> Any:
    """Return a PIL image unchanged, or the PIL image of an array.

    A ValueError calls anything else `name`.
    """
    from PIL import Image

    if is_pil_image(image):
        return image
    if not isinstance(image, np.ndarray):
        raise ValueError(f"{name}: {type(image).__name__} is not an image; {_FIX}")
    has_pixels = image.ndim in (2, 3) and image.shape[2:] in _CHANNELS and image.size > 0
    if image.dtype != np.uint8 or not has_pixels:
        raise ValueError(f"{name}: {image.dtype} {list(image.shape)} is not an image; {_FIX}")
    if image.shape[2:] == (1,):
        image = image[..., 0]
    return Image.fromarray(np.ascontiguousarray(image))
