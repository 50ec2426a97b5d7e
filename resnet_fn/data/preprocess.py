"""One image file as evaluation sees it: what torchvision's evaluation transform computes, pixel for pixel.

`Resize(shorter side, bilinear, antialias)` → `CenterCrop`, on PIL images. MindSpore's C++ resize has no antialiasing,
and a net that was trained in PyTorch loses accuracy with it; its C++ decoder gives PIL's bytes (a test compares them).
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_MOST_RESIZED = 50_000_000  # pixels of a resized image beyond which only the crop is computed


@contextlib.contextmanager
def naming(undecodable: Callable[[int], ValueError], index: int) -> Iterator[None]:
    """As a context in which a sample is decoded: whatever a decoder raises says which sample it was.

    Args:
        undecodable: what to raise of a sample that no decoder takes.
        index: the sample.
    """
    try:
        yield
    except MemoryError:  # of which the sample is not to blame
        raise
    except Exception as error:
        raise undecodable(index) from error


def open_upright(data: bytes, mode: str = "RGB") -> Any:
    """Decode a file's bytes to a PIL image that stands as EXIF says (torchvision's loader leaves it as it was stored).

    Args:
        data: a file's bytes, of any format and mode that PIL reads.
        mode: "RGB", or "L" for grey.

    Raises:
        OSError, SyntaxError, ValueError: the decoder's own; damaged or not an image.
    """
    from PIL import Image  # a dependency of MindSpore; imported late, it costs start-up time

    image = Image.open(io.BytesIO(data))
    image.load()  # which turns a TIFF by itself
    turn = _TURNS.get(orientation_of(image))
    if turn is not None:
        image = image.transpose(turn)
    return image if image.mode == mode else image.convert(mode)  # which would copy


# EXIF orientation → PIL's Transpose that undoes it: mirrored, upside down, …
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


def orientation_of(image: Any) -> int:
    """The EXIF orientation of a PIL image, 1..8; 1 (upright) where it has none, or none that can be."""
    try:
        value = image.getexif().get(0x0112)
    except Exception:  # odd metadata are no fault of the pixels
        return 1
    return value if value in _TURNS else 1


def reads_alike(image: Any) -> bool:
    """Whether MindSpore's decoder gives an opened PIL image's pixels as PIL does, standing as EXIF says."""
    native = image.format == "JPEG" or (image.format in ("PNG", "BMP") and image.mode in ("RGB", "L"))
    return native and orientation_of(image) == 1


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

    image = open_upright(data)
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


def as_decodable(data: bytes, kind: str = "BMP") -> bytes:
    """The same picture, upright, in 8-bit RGB: for what MindSpore's C++ decoder lacks or reads otherwise.

    Args:
        data: a file's bytes.
        kind: "BMP", which takes a twentieth of the time (38 ms for 12 million pixels), or "PNG", half of the bytes.
    """
    buffer = io.BytesIO()
    open_upright(data).save(buffer, kind, **({"compress_level": 1} if kind == "PNG" else {}))
    return buffer.getvalue()
