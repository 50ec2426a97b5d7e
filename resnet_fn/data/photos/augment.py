"""How a training picture from a file varies: by numbers drawn from (seed, epoch, sample), whoever computes it."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from resnet_fn.data.photos.operations import apply, enhance
from resnet_fn.data.photos.policies import choose
from resnet_fn.data.preprocess import open_upright

if TYPE_CHECKING:
    from resnet_fn.config.recipe import Recipe

# Names for streams of random numbers, never to be changed (order.py says who has which).
CROP, _JITTER, _POLICY = 8, 9, 10
_JITTERED = ("Brightness", "Contrast", "Color")
_RATIOS = (3 / 4, 4 / 3)

Box = tuple[int, int, int, int]


def training_pixels(data: bytes, recipe: "Recipe", epoch: int, repeat: int, number: int) -> np.ndarray:
    """A file's bytes to what training sees: a random resized crop, a flip, colours; torchvision's pixels.

    `RandomResizedCrop(bilinear, antialias)` → `RandomHorizontalFlip` → `ColorJitter` → a policy, on PIL images.

    Args:
        data: of any format and mode that Pillow reads.
        recipe: what varies, and the size.
        epoch, repeat, number: which of the seed's random numbers vary it; see `Plan.draw_numbers`.

    Returns:
        uint8 [image_size, image_size, 3]; may be a view with negative strides.

    Raises:
        OSError, SyntaxError, ValueError: the decoder's own; damaged or not an image.
    """
    from PIL import Image

    def stream(kind: int) -> np.random.Generator:
        return np.random.default_rng([recipe.seed, epoch, kind, repeat, number])

    image, size = open_upright(data), recipe.image_size
    box, mirrored = draw_view(recipe, image.size, stream(CROP))
    # Not resize(box=…), which would let pixels outside of the box into its edges.
    image = image.crop(box).resize((size, size), Image.Resampling.BILINEAR)
    if not (recipe.color_jitter or recipe.policy):
        pixels = np.asarray(image)
        return pixels[:, ::-1] if mirrored else pixels
    if mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if recipe.color_jitter:
        image = _jitter(image, recipe.color_jitter, stream(_JITTER))
    if recipe.policy:
        for name, magnitude in choose(recipe, size, stream(_POLICY)):
            image = apply(image, name, magnitude)
    return np.asarray(image)


def draw_view(recipe: "Recipe", size: tuple[int, int], rng: np.random.Generator) -> tuple[Box, bool]:
    """The box that training cuts from an image of this width and height, and whether it is mirrored after that."""
    return draw_box(*size, recipe.crop_scale, rng), recipe.flip and rng.random() < 0.5


def draw_box(width: int, height: int, smallest: float, rng: np.random.Generator) -> Box:
    """Inception's random crop (Szegedy et al., arXiv 1409.4842), as torchvision's `RandomResizedCrop.get_params`.

    Area smallest..1 of the image, aspect ratio 3/4..4/3 (log-uniform), whole pixels; after ten that do not fit the
    largest in the centre.

    Returns:
        left, top, right, bottom, pixels.
    """
    lowest, highest = _RATIOS
    for _ in range(10):
        area = width * height * rng.uniform(smallest, 1.0)
        ratio = math.exp(rng.uniform(math.log(lowest), math.log(highest)))
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - tall + 1))
            return left, top, left + wide, top + tall
    wide, tall = min(width, round(height * highest)), min(height, round(width / lowest))
    left, top = (width - wide) // 2, (height - tall) // 2
    return left, top, left + wide, top + tall


def _jitter(image: Any, most: float, rng: np.random.Generator) -> Any:
    """Brightness, contrast and saturation in random order, each times a factor within 1 ± most."""
    for place, factor in zip(rng.permutation(len(_JITTERED)), rng.uniform(1 - most, 1 + most, 3), strict=True):
        image = enhance(image, _JITTERED[place], factor)
    return image
