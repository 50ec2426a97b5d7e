"""This module computes 3x3 convolutions of stride 1 as matrix products, with a quarter of the multiplications.

This is Winograd's minimal filtering F(4x4, 3x3) (Lavin and Gray, arXiv 1509.09308). Along one axis, four outputs of a
filter of three taps take six products instead of twelve:

    y = Aᵀ [(G w) · (B d)],    d: six inputs, w: three taps, y: four outputs,

Along both axes 36 products replace 144. The equation is exact; in float32 the rounding error is 9e-7 of the output's
size (3e-7 in a direct convolution). MindSpore's own convolution on a CPU, im2col and a matrix product, is slower for
every shape of a ResNet (docs/lab.md). MindSpore differentiates the matrix products.
"""

import contextlib
import functools
from collections.abc import Iterator

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

TILE, TAPS = 4, 3  # outputs of one tile and taps of the filter, along one axis
PRODUCTS = TILE + TAPS - 1
# Points, beside infinity, at which the polynomials are evaluated. The usual 0, ±1, ±2 have twice the rounding error.
POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
LEAST_CHANNELS = 16  # fewest input channels; a stem with 1 to 3 is not faster by `convolve`

_times_transposed = ops.MatMul(transpose_b=True)
_transposed_times = ops.MatMul(transpose_a=True)
_batch_times_transposed = ops.BatchMatMul(transpose_b=True)
_batch_transposed_times = ops.BatchMatMul(transpose_a=True)


def cook_toom() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A [6, 4], G [6, 3] and B [6, 6], float64: sum_i A[i,o] G[i,k] B[i,j] is 1 for j = o + k, else 0.

    A and G evaluate polynomials of degrees 3 and 2 at five points and infinity, B interpolates their product
    (Lagrange); a correlation is that product's transpose.
    """
    points = np.array(POINTS)

    def evaluate(coefficients: int) -> np.ndarray:
        at_infinity = np.eye(coefficients)[-1:]
        return np.vstack([np.vander(points, coefficients, increasing=True), at_infinity])

    interpolate = np.zeros((PRODUCTS, PRODUCTS))
    for i, point in enumerate(points):
        others = np.delete(points, i)
        interpolate[i, :-1] = np.poly(others)[::-1] / np.prod(point - others)
    interpolate[-1] = np.poly(points)[::-1]
    return evaluate(TILE), evaluate(TAPS), interpolate


def axis_matrices(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two matrices for one axis of an image: pixels to the tiles' products, and products to outputs.

    Each is float32 [6 · tiles, size], rows ordered by product, then tile. The first includes the zero padding and the
    tiles' overlap; the second drops outputs beyond the last pixel.
    """
    a, _, b = cook_toom()
    tiles = -(-size // TILE)
    # Tile t sees the pixels 4t - 1 ... 4t + 4 of the image and gives 4t ... 4t + 3; beyond the image all is zero.
    into, out = np.zeros((2, PRODUCTS, tiles, tiles * TILE + 2), np.float32)
    for tile in range(tiles):
        into[:, tile, tile * TILE : tile * TILE + PRODUCTS] = b
        out[:, tile, tile * TILE : (tile + 1) * TILE] = a
    rows = PRODUCTS * tiles
    return into[:, :, 1 : size + 1].reshape(rows, size), out[:, :, :size].reshape(rows, size)


@functools.cache
def _axis(size: int, copies: int) -> tuple[Tensor, Tensor]:
    into, out = axis_matrices(size)
    if copies:
        into, out = (np.ascontiguousarray(np.broadcast_to(m, (copies, *m.shape))) for m in (into, out))
    return Tensor(into), Tensor(out)


@functools.cache
def _filters() -> Tensor:
    g = cook_toom()[1]
    # Rows: products along the width, then along the height; columns: the filter's rows, then columns.
    return Tensor(np.einsum("bi,aj->abij", g, g).reshape(PRODUCTS**2, TAPS**2).astype(np.float32))


@ops.constexpr
def _matrices(height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (*_axis(height, PRODUCTS), *_axis(width, 0), _filters())


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """Return the 3x3 convolution of stride 1 with zero padding 1.

    It maps float32 [N, C, H, W] and [O, C, 3, 3] to [N, O, H, W]. Products with a transposed right side move the last
    axis to the front without a copy. Below, a and b count products along width and height, s and t count tiles.
    """
    n, c, height, width = x.shape
    o = weight.shape[0]
    into_height, out_height, into_width, out_width, filters = _matrices(height, width)
    square = PRODUCTS**2
    u = _times_transposed(filters, weight.reshape(o * c, TAPS**2)).reshape(square, o, c)  # ab, O, C
    v = _times_transposed(into_width, x.reshape(n * c * height, width))  # a s, N C H
    v = _batch_times_transposed(into_height, v.reshape(PRODUCTS, -1, height))  # a, b t, s N C
    m = _batch_times_transposed(v.reshape(square, -1, c), u)  # ab, t s N, O
    rows = into_height.shape[1]
    y = _batch_transposed_times(m.reshape(PRODUCTS, rows, -1), out_height)  # a, s N O, H
    y = _transposed_times(y.reshape(out_width.shape[0], -1), out_width)  # N O H, W
    return y.reshape(n, o, height, width)


class Conv2d(nn.Conv2d):
    """`nn.Conv2d`, with the same attributes and parameters, that computes by `convolve` if `winograd` is set."""

    winograd = False

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, O, H', W']."""
        return convolve(x, self.weight) if self.winograd else super().construct(x)

    def fits(self) -> bool:
        """Return whether `convolve` can compute this convolution, and does it faster."""
        geometry = (self.kernel_size, self.stride, self.dilation, self.padding, self.group, self.has_bias)
        return geometry == ((3, 3), (1, 1), (1, 1), 1, 1, False) and self.in_channels >= LEAST_CHANNELS


def use_winograd(net: nn.Cell, wanted: bool = True) -> list[Conv2d]:
    """Switch `convolve` on (only on a CPU) or off in a float32 net's convolutions that fit; return the changed ones."""
    wanted = wanted and mindspore.get_current_device().device_target == "CPU"
    cells = [cell for _, cell in net.cells_and_names() if isinstance(cell, Conv2d) and cell.fits()]
    changed = [cell for cell in cells if cell.winograd != wanted]
    for cell in changed:
        cell.winograd = wanted
    return changed


@contextlib.contextmanager
def standard_operations(net: nn.Cell) -> Iterator[None]:
    """In this context the net computes only by MindSpore's own operations, which exported files can hold."""
    convolutions = use_winograd(net, False)
    others = [cell for _, cell in net.cells_and_names() if getattr(cell, "standard", None) is False]
    for cell in others:
        cell.standard = True
    try:
        yield
    finally:
        for cell in convolutions:
            cell.winograd = True
        for cell in others:
            cell.standard = False
