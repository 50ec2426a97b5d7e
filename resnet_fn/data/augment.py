"""How training images vary: by numbers drawn from (seed, epoch, sample), whoever computes the sample.

To add a variation: its settings in config/data.py; here a row of `STREAMS`, the function, and its call in `vary_pixels`
or `vary_images`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from resnet_fn.data.colour import colour_each
from resnet_fn.data.input_spec import InputSpec

if TYPE_CHECKING:
    from resnet_fn.config.recipe import Recipe


class Stream(NamedTuple):
    """Random numbers of an epoch, for each repeat and sample.

    Attributes:
        number: names the stream; never to be changed (order.py has 1, 5 and 7).
        draw: (generator, (repeats, samples)) → an array with these leading axes.
        wanted: whether a recipe uses it.
    """

    number: int
    draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
    wanted: Callable[["Recipe"], Any]


STREAMS = {
    "affine": Stream(
        2, lambda rng, shape: rng.uniform(-1, 1, (*shape, 4)), lambda r: r.max_shift or r.max_rotation or r.max_zoom
    ),
    "crop": Stream(3, lambda rng, shape: rng.random((*shape, 3)), lambda r: r.crop_padding or r.flip),
    "erasing": Stream(4, lambda rng, shape: rng.random((*shape, 5)), lambda r: r.erasing),
    "colour": Stream(6, lambda rng, shape: rng.integers(0, 2**31, shape), lambda r: r.policy or r.color_jitter),
}


def draw_epoch(recipe: "Recipe", epoch: int, samples: int) -> dict[str, np.ndarray]:
    """The random numbers of an epoch, [repeats, samples, …], for the streams that the recipe uses."""
    shape = (recipe.repeats, samples)
    streams = {name: stream for name, stream in STREAMS.items() if stream.wanted(recipe)}
    return {
        name: stream.draw(np.random.default_rng([recipe.seed, epoch, stream.number]), shape)
        for name, stream in streams.items()
    }


def draw_samples(
    recipe: "Recipe", epoch: int, samples: int, name: str, places: Iterable[tuple[int, int]]
) -> np.ndarray:
    """What `draw_epoch` holds at these (repeat, sample), bit for bit, without drawing the others: float64 [n, k].

    For streams of float64, each of which is one step of NumPy's PCG64: the generator is moved to where a sample's
    begin. Sets in memory draw whole epochs, which is faster and takes less memory than their pixels; of ImageNet's
    1.28 million samples that would be 51 MB for each repeat.
    """
    stream = STREAMS[name]
    engine = np.random.PCG64([recipe.seed, epoch, stream.number])  # as default_rng makes it
    rng, stands = np.random.Generator(engine), 0
    width = stream.draw(np.random.default_rng(0), (1, 1)).size
    rows = []
    for repeat, sample in places:
        begin = (int(repeat) * samples + int(sample)) * width
        engine.advance(begin - stands)
        rows.append(stream.draw(rng, (1, 1))[0, 0])
        stands = begin + width
    return np.stack(rows)


def vary_pixels(pixels: np.ndarray, draws: Mapping[str, np.ndarray], recipe: "Recipe") -> np.ndarray:
    """Crop, flip and colour uint8 [N, H, W, C], before they are normalised; `draws` are these samples' numbers."""
    if "crop" in draws:
        pixels = crop_and_flip(pixels, draws["crop"], recipe.crop_padding, recipe.flip)
    return colour_each(pixels, recipe, draws["colour"]) if "colour" in draws else pixels


def vary_images(images: np.ndarray, draws: Mapping[str, np.ndarray], recipe: "Recipe", spec: InputSpec) -> np.ndarray:
    """Shift, rotate and zoom normalised images, float32 [N, C, H, W]."""
    if "affine" not in draws:
        return images
    mean, std = spec.moments
    black = -mean / std
    return random_affine(images, draws["affine"], recipe.max_shift, recipe.max_rotation, recipe.max_zoom, black)


def crop_and_flip(images: np.ndarray, draws: np.ndarray, padding: int, flip: bool) -> np.ndarray:
    """Pad with black, cut a random window of the old size, mirror half of the images.

    He et al., arXiv 1512.03385, section 4.2: 4 pixels for CIFAR.

    Args:
        images: uint8 [N, H, W, C].
        draws: [N, 3] in [0, 1): vertical place, horizontal place, mirrored if below 1/2.
        padding: pixels on each side.
        flip: whether to mirror at all.

    Returns:
        uint8 [N, H, W, C].
    """
    if not padding and not flip:
        return images
    height, width = images.shape[1:3]
    top, left = ((draws[:, :2] * (2 * padding + 1)).astype(int) - padding).T.tolist()
    mirrored = (draws[:, 2] < 0.5).tolist() if flip else [False] * len(images)
    result = np.zeros_like(images)
    # A slice per image is four times as fast as one gather over all pixels.
    for image, target, y, x, mirror in zip(images, result, top, left, mirrored, strict=True):
        window = target[:, ::-1] if mirror else target
        rows, columns = slice(max(-y, 0), min(height - y, height)), slice(max(-x, 0), min(width - x, width))
        window[rows, columns] = image[rows.start + y : rows.stop + y, columns.start + x : columns.stop + x]
    return result


def random_affine(
    images: np.ndarray, draws: np.ndarray, max_shift: float, max_rotation: float, max_zoom: float, fill: np.ndarray
) -> np.ndarray:
    """Shift, rotate and zoom each image about its centre, with bilinear interpolation.

    Args:
        images: float32 [N, C, H, W].
        draws: [N, 4] in [−1, 1): vertical shift, horizontal shift, rotation and zoom as shares of their maxima.
            Shifts are whole pixels.
        max_shift: pixels.  max_rotation: degrees.  max_zoom: fraction of 1.
        fill: [C], the value outside the image (a black pixel after normalisation).

    Returns:
        float32 [N, C, H, W].
    """
    if not (max_shift or max_rotation or max_zoom):
        return images
    count, channels, height, width = images.shape
    shift = np.round(draws[:, :2] * (max_shift + 0.5)).clip(-max_shift, max_shift)
    angle = np.deg2rad(draws[:, 2] * max_rotation)
    zoom = 1.0 / (1.0 + draws[:, 3] * max_zoom)
    y, x = np.meshgrid(np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij")
    cos, sin = (np.cos(angle) * zoom)[:, None, None], (np.sin(angle) * zoom)[:, None, None]
    # Where each target pixel comes from, in a source image padded by one pixel of `fill` on every side.
    source_y = cos * y - sin * x + (height - 1) / 2 + shift[:, 0, None, None] + 1
    source_x = sin * y + cos * x + (width - 1) / 2 + shift[:, 1, None, None] + 1
    source_y, source_x = source_y.clip(0, height + 1), source_x.clip(0, width + 1)
    padded = np.empty((count, channels, height + 2, width + 2), np.float32)
    padded[:] = fill[:, None, None]
    padded[:, :, 1:-1, 1:-1] = images
    top, left = np.minimum(source_y.astype(int), height), np.minimum(source_x.astype(int), width)
    down, right = (source_y - top).astype(np.float32)[:, None], (source_x - left).astype(np.float32)[:, None]
    sample, channel = np.arange(count)[:, None, None, None], np.arange(channels)[None, :, None, None]

    def corner(dy: int, dx: int) -> np.ndarray:
        return padded[sample, channel, top[:, None] + dy, left[:, None] + dx]

    upper = corner(0, 0) * (1 - right) + corner(0, 1) * right
    lower = corner(1, 0) * (1 - right) + corner(1, 1) * right
    return upper * (1 - down) + lower * down
