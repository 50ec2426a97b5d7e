"""These functions decode an image file with PIL, and preprocess the pixels as torchvision does."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import colour
from resnet_fn.data.image_file import is_files_fault, open_image
from resnet_fn.data.order import Streams

# if a resized image had more pixels than this, only its crop is computed
_MOST_RESIZED = 50_000_000


@contextlib.contextmanager
def naming(undecodable: Callable[[int], ValueError], index: int) -> Iterator[None]:
    """Replace an exception of the `with` block by the error `undecodable(index)` if it is the
    sample's own fault.
    """
    try:
        yield
    except Exception as error:
        if not is_files_fault(error):
            raise
        raise undecodable(index) from error


def open_upright(data: bytes, mode: str = "RGB") -> Any:
    """Decode a file's bytes to a PIL image of mode "RGB" or "L" (grey), and apply the EXIF
    orientation.
    """
    return upright(open_image(data), mode)


def upright(image: Any, mode: str = "RGB") -> Any:
    """Convert a PIL image to mode "RGB" or "L" (grey), and apply the EXIF orientation."""
    from PIL import Image  # imported here, because this import slows the start of commands

    if has_no_white(image):
        raise ValueError(NO_WHITE)
    image.load()  # applies a TIFF's orientation
    try:
        turn = _TURNS.get(image.getexif().get(0x0112))
    except Exception:  # damaged metadata does not make the pixels bad
        turn = None
    if image.mode.startswith("I"):  # PIL's `convert` would clip these 16-bit pixels at 255
        image = Image.fromarray(
            ((np.asarray(image).astype(np.int32) + 128) // 257).astype(np.uint8)
        )
    if turn is not None:
        image = image.transpose(turn)
    return image if image.mode == mode else image.convert(mode)  # `convert` always copies


# EXIF orientations, and the PIL `Transpose` that undoes each. torchvision's loader ignores the
# orientation.
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
NO_WHITE = "an image of 32-bit or float pixels, so white is not defined; save it with 8 or 16 bits"


def has_no_white(image: Any) -> bool:
    """Return True if a white pixel's value is not defined for a PIL image, for example because
    pixels are floats.
    """
    return image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM"))


def eval_pixels(data: bytes, resize: int, crop: int, interpolation: str = "bilinear") -> np.ndarray:
    """Decode a file, and return its `centre_pixels`."""
    return centre_pixels(open_upright(data), resize, crop, interpolation)


def centre_pixels(
    image: Any, resize: int, crop: int, interpolation: str = "bilinear"
) -> np.ndarray:
    """Resize a PIL image's shorter side to `resize` pixels, and crop the centre.

    `interpolation` is one of `config.recipe.FILTERS`. If an image shrinks, the filter covers all
    of its pixels. Returns uint8 [crop, crop, 3], or [crop, crop] for a grey image.
    """
    from PIL import Image

    resampling = Image.Resampling[interpolation.upper()]
    width, height = image.size
    short = min(width, height)
    long = max(width, height)
    longer = int(resize * long / short)  # torchvision truncates
    new_width, new_height = (resize, longer) if width <= height else (longer, resize)
    # torchvision also rounds halves to even here.
    left = round((new_width - crop) / 2)
    top = round((new_height - crop) / 2)
    if new_width * new_height > _MOST_RESIZED:
        x = width / new_width
        y = height / new_height
        box = (left * x, top * y, (left + crop) * x, (top + crop) * y)
        return np.asarray(image.resize((crop, crop), resampling, box=box))
    if (new_width, new_height) != (width, height):
        image = image.resize((new_width, new_height), resampling)
    return np.asarray(image.crop((left, top, left + crop, top + crop)))


def whole_pixels(image: Any, size: int) -> np.ndarray:
    """Resize a whole PIL image bilinearly, without rounding.

    If the image shrinks, the filter covers all of its pixels. If it does not, the pixels are those
    of `images.prepare`. Returns float32 [size, size, channels] with values up to 255.
    """
    from PIL import Image

    bands = [band.convert("F") for band in image.split()]
    if image.size != (size, size):
        bands = [band.resize((size, size), Image.Resampling.BILINEAR) for band in bands]
    return np.stack([np.asarray(band) for band in bands], -1)


def training_pixels(
    data: bytes, recipe: Recipe, epoch: int, repeat: int, number: int
) -> np.ndarray:
    """Decode a file and apply the recipe's random crop, flip and `colour`.

    Return uint8 [image_size, image_size, 3].
    """
    from PIL import Image

    image = open_upright(data)
    size = recipe.image_size
    rng = np.random.default_rng([recipe.seed, epoch, Streams.VIEW, repeat, number])
    box = draw_box(image.size[0], image.size[1], recipe.crop_scale, rng)
    mirrored = recipe.flip and rng.random() < 0.5
    # resize(box=…) would mix pixels outside of the box into its edges.
    image = image.crop(box).resize((size, size), Image.Resampling.BILINEAR)
    if not recipe.colours:
        pixels = np.asarray(image)
        return pixels[:, ::-1] if mirrored else pixels  # faster than Pillow's transpose
    if mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(colour(image, recipe, epoch, repeat, number))


def draw_box(
    width: int, height: int, smallest: float, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Draw the left, top, right and bottom of a random crop, in pixels (Szegedy et al., arXiv
    1409.4842).

    As in torchvision, the share of the image's area is from `smallest` to 1, and the aspect ratio
    from 3/4 to 4/3.
    """
    lowest = 3 / 4
    highest = 4 / 3
    for _ in range(10):
        area = width * height * rng.uniform(smallest, 1.0)
        ratio = math.exp(rng.uniform(math.log(lowest), math.log(highest)))
        wide = round(math.sqrt(area * ratio))
        tall = round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left = int(rng.integers(width - wide + 1))
            top = int(rng.integers(height - tall + 1))
            return left, top, left + wide, top + tall
    # If ten draws do not fit into the image, the crop is the largest box in the centre.
    wide = min(width, round(height * highest))
    tall = min(height, round(width / lowest))
    left = (width - wide) // 2
    top = (height - tall) // 2
    return left, top, left + wide, top + tall
