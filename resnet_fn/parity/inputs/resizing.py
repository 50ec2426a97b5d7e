"""How a picture's pixels become those of an array: a crop and a resize, as matrices.

A row of a resize matrix has the weights of the old pixels in a new pixel. Each library's resize is
such a matrix, except for its rounding to whole levels.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

HALF, CORNERS, ORIGIN = "half pixels", "aligned corners", "pixels' origins"

SHORT, SQUASH, LETTERBOX = "the short side resized, then cropped", "squashed", "letterboxed"
CROP_FIRST, CROP, WHOLE = "cropped, then resized", "cropped only", "as it is"

Kernel = Callable[[np.ndarray], np.ndarray]
Place = tuple[int, int]  # height and width, or top and left


@dataclasses.dataclass(frozen=True)
class Geometry:
    """How the pixels of a picture are resized and cropped."""

    kind: str
    filter: str = "bilinear"
    antialias: bool = True
    coordinates: str = HALF
    # of the short side after the resize, of a crop before it (0: the picture's short side), or of
    # both sides of a squashed picture (0: the array's)
    size: int = 0
    long: str = "floor"  # how the long side is rounded
    crop: str = "round"  # how the offset of the crop is rounded


def _cubic(a: float) -> Kernel:
    def kernel(x: np.ndarray) -> np.ndarray:
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = (((x - 5) * x + 8) * x - 4) * a
        return np.where(
            x < 1,
            near,
            np.where(
                x < 2,
                far,
                0.0,
            ),
        )

    return kernel


def _linear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0.0)


def _box(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(
        np.abs(x) < 3,
        np.sinc(x) * np.sinc(x / 3),
        0.0,
    )


def _hamming(x: np.ndarray) -> np.ndarray:
    window = 0.54 + 0.46 * np.cos(math.pi * x)
    return np.where(
        np.abs(x) < 1,
        np.sinc(x) * window,
        0.0,
    )


# The kernel of each filter, and how far it reaches, in pixels.
_KERNELS: dict[str, tuple[Kernel, float]] = {
    "bilinear": (_linear, 1.0),
    "bicubic": (_cubic(-0.5), 2.0),
    "bicubic (a = -0.75)": (_cubic(-0.75), 2.0),
    "lanczos": (_lanczos, 3.0),
    "hamming": (_hamming, 1.0),
    "box": (_box, 0.5),
}
NEAREST, NEAREST_CENTRE, AREA = "nearest (top left)", "nearest (centre)", "area"

# (filter, antialias, coordinates) of the usual resizes, likely ones first.
RESIZES: tuple[tuple[str, bool, str], ...] = (
    ("bilinear", True, HALF),
    ("bicubic", True, HALF),
    ("bilinear", False, HALF),
    ("bicubic (a = -0.75)", False, HALF),
    (NEAREST, False, HALF),
    (NEAREST_CENTRE, False, HALF),
    ("lanczos", True, HALF),
    ("bilinear", False, CORNERS),
    ("bicubic (a = -0.75)", False, CORNERS),
    ("bilinear", False, ORIGIN),
    ("bicubic", False, HALF),
    (AREA, True, HALF),
    ("box", True, HALF),
    ("hamming", True, HALF),
)

_ROUND: dict[str, Callable[[float], int]] = {
    "floor": math.floor,
    "round": round,  # halves to even, as torchvision
    "ceil": math.ceil,
}
ROUNDINGS = tuple(_ROUND)


@functools.lru_cache(maxsize=4096)
def _matrix(
    old: int,
    new: int,
    resize: tuple[str, bool, str],
    rows: tuple[int, ...],
) -> np.ndarray:
    """Return the rows of a resize matrix from `old` to `new` pixels, [len(rows), old]."""
    name, antialias, coordinates = resize
    scale = old / new
    index = np.array(rows, np.float64)
    if name in (NEAREST, NEAREST_CENTRE):
        shift = 0.5 if name == NEAREST_CENTRE else 0.0
        source = np.floor((index + shift) * scale + 1e-9).clip(0, old - 1)
        return (source[:, None] == np.arange(old)).astype(np.float32)
    if name == AREA:
        edges = np.stack([index, index + 1]) * scale
        begin, end = edges[..., None]
        pixels = np.arange(old)
        covered = np.minimum(end, pixels + 1) - np.maximum(begin, pixels)
        return (covered.clip(0) / scale).astype(np.float32)
    kernel, reach = _KERNELS[name]
    stretch = max(scale, 1.0) if antialias else 1.0
    if coordinates == HALF:
        centre = (index + 0.5) * scale - 0.5
    elif coordinates == CORNERS:
        centre = index * ((old - 1) / max(new - 1, 1))
    else:
        centre = index * scale
    if antialias:  # pixels outside of the picture have no weight
        weights = kernel((np.arange(old) - centre[:, None]) / stretch)
        return (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    # without antialiasing, the picture's last pixels are repeated outside of it
    taps = np.floor(centre)[:, None] + np.arange(1 - math.ceil(reach), math.ceil(reach) + 1)
    weights = kernel(taps - centre[:, None])
    matrix = np.zeros((len(rows), old))
    columns = taps.clip(0, old - 1).astype(np.int64)
    np.add.at(
        matrix,
        (np.arange(len(rows))[:, None], columns),
        weights,
    )
    return matrix.astype(np.float32)


def layout_of(
    geometry: Geometry,
    picture: Place,
    out: Place,
) -> tuple[Place, Place, Place, Place]:
    """Return the region of the picture that is resized (top and left, then height and width), the
    size to which it is resized, and where the array begins in the result.

    A negative beginning is padding.
    """
    whole = (0, 0), picture
    if geometry.kind == SQUASH:
        square = (geometry.size, geometry.size)
        size = square if geometry.size else out
        return *whole, size, _offset(geometry, size, out)
    if geometry.kind in (CROP, WHOLE):
        return (
            *whole,
            picture,
            _offset(
                geometry,
                picture,
                out,
            ),
        )
    if geometry.kind == CROP_FIRST:
        side = geometry.size or min(picture)
        region = (min(side, picture[0]), min(side, picture[1]))
        return (
            _offset(
                geometry,
                picture,
                region,
            ),
            region,
            out,
            (0, 0),
        )
    size = _resized_size(geometry, picture, out)
    return *whole, size, _offset(geometry, size, out)


def _resized_size(geometry: Geometry, picture: Place, out: Place) -> Place:
    """Return the height and width after a resize that keeps the ratio of both."""
    rounded = _ROUND[geometry.long]
    if geometry.kind == LETTERBOX:
        factor = min(out[0] / picture[0], out[1] / picture[1])
        height = max(1, rounded(picture[0] * factor))
        width = max(1, rounded(picture[1] * factor))
        return min(out[0], height), min(out[1], width)
    short = min(picture)
    long = max(picture)
    # written as torchvision does, so that whole numbers stay whole
    other = max(1, rounded(geometry.size * long / short))
    if picture[0] <= picture[1]:
        return geometry.size, other
    return other, geometry.size


def _offset(
    geometry: Geometry,
    size: Place,
    out: Place,
) -> Place:
    if geometry.crop == "top left":
        return 0, 0
    rounded = _ROUND[geometry.crop]
    return rounded((size[0] - out[0]) / 2), rounded((size[1] - out[1]) / 2)


def predict(
    pixels: np.ndarray,
    geometry: Geometry,
    out: Place,
    grid: tuple[tuple[int, ...], tuple[int, ...]],
) -> np.ndarray:
    """Return the levels of a prepared picture at the rows and columns of `grid`, NaN in padding.

    Args:
        pixels: the decoded picture, float32 [H, W, C].
        geometry: how the picture is resized and cropped.
        out: height and width of the prepared picture.
        grid: the rows and the columns of the prepared picture that are computed.
    """
    height, width = pixels.shape[:2]
    begin, region, size, start = layout_of(
        geometry,
        (height, width),
        out,
    )
    pixels = pixels[begin[0] : begin[0] + region[0], begin[1] : begin[1] + region[1]]
    for axis in (0, 1):
        wanted = np.array(grid[axis]) + start[axis]
        inside = (wanted >= 0) & (wanted < size[axis])
        rows = tuple(int(row) for row in wanted.clip(0, size[axis] - 1))
        pixels = _resized(
            pixels,
            axis,
            size[axis],
            geometry,
            rows,
        )
        outside = [slice(None)] * 3
        outside[axis] = np.flatnonzero(~inside)  # type: ignore[call-overload]
        pixels[tuple(outside)] = np.nan
    return pixels


def _resized(
    pixels: np.ndarray, axis: int, new: int, geometry: Geometry, rows: tuple[int, ...]
) -> np.ndarray:
    old = pixels.shape[axis]
    if old == new:  # no library resamples then
        return np.take(
            pixels,
            rows,
            axis,
        )
    resize = geometry.filter, geometry.antialias, geometry.coordinates
    matrix = _matrix(
        old,
        new,
        resize,
        rows,
    )
    # NaN of padding in rows stays in its rows
    return np.moveaxis(
        np.tensordot(
            matrix,
            pixels,
            (1, axis),
        ),
        0,
        axis,
    )
