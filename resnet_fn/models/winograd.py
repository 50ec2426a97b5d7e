"""This module computes 3x3 convolutions of stride 1 by Winograd's minimal filtering F(4x4, 3x3).

The method is from Lavin and Gray, arXiv 1509.09308. Along one axis, the method computes four
outputs of a filter with three taps by six products instead of twelve:

    y = Aᵀ [(G w) · (B d)],    d: six inputs, w: three taps, y: four outputs

Along both axes, 36 products replace 144. In float32, the method has a relative rounding error of
9e-7, and a direct convolution has 3e-7. On a CPU, the method is faster than MindSpore's convolution
in ResNet blocks (docs/benchmarks.md).
"""

import contextlib
import functools
from collections.abc import Iterator

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

TILE, TAPS = 4, 3  # outputs of one tile and taps of the filter, along one axis
PRODUCTS = TILE + TAPS - 1
# Polynomials are evaluated at these points and infinity. The usual 0, ±1, ±2 have twice the
# rounding error.
POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
LEAST_CHANNELS = 16  # fewest input channels for `convolve`; a stem with 1 to 3 is not faster

_times_transposed = ops.MatMul(transpose_b=True)
_transposed_times = ops.MatMul(transpose_a=True)
_batch_times_transposed = ops.BatchMatMul(transpose_b=True)
_batch_transposed_times = ops.BatchMatMul(transpose_a=True)


def cook_toom() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices A [6, 4], G [6, 3] and B [6, 6] of Winograd's method in float64.

    A x and G w hold the values at `POINTS` and the leading coefficients of the polynomials x
    (cubic) and w (quadratic). x · w has the coefficients Bᵀ [(A x) · (G w)]. For fixed w, they are
    M x with a matrix M, and Mᵀ maps d to y.
    """
    # In A and G, the last row is for infinity.
    a, g = (
        np.vstack([np.vander(POINTS, n, increasing=True), np.eye(n)[-1:]]) for n in (TILE, TAPS)
    )
    b = np.zeros((PRODUCTS, PRODUCTS))
    for i, point in enumerate(POINTS):
        others = np.delete(POINTS, i)
        b[i, :-1] = np.poly(others)[::-1] / np.prod(point - others)
    b[-1] = np.poly(POINTS)[::-1]
    return a, g, b


@functools.cache
def _axis(size: int, copies: int) -> tuple[Tensor, Tensor]:
    """Return two matrices that apply Winograd's method to an axis of `size` pixels, both float32 [6
    · tiles, size].

    A tile has four output pixels, computed from six products. The first matrix maps input pixels to
    factors of the products. The transpose of the second matrix maps products to output pixels. The
    rows of both matrices are sorted by product, then by tile. If `copies` is not 0, each matrix is
    repeated `copies` times along a new first axis.
    """
    a, _, b = cook_toom()
    tiles = -(-size // TILE)
    # Tile t maps the pixels 4t - 1 ... 4t + 4 to outputs 4t ... 4t + 3. Pixels beyond the image are
    # zero.
    into, out = np.zeros((2, PRODUCTS, tiles, tiles * TILE + 2), np.float32)
    for tile in range(tiles):
        into[:, tile, tile * TILE : tile * TILE + PRODUCTS] = b
        out[:, tile, tile * TILE : (tile + 1) * TILE] = a
    rows = PRODUCTS * tiles
    into, out = into[:, :, 1 : size + 1].reshape(rows, size), out[:, :, :size].reshape(rows, size)
    if copies:
        into, out = (
            np.ascontiguousarray(np.broadcast_to(m, (copies, *m.shape))) for m in (into, out)
        )
    return Tensor(into), Tensor(out)


@functools.cache
def _filters() -> Tensor:
    g = cook_toom()[1]
    # Rows are ordered by product along the width, then the height. Columns are the filter's rows,
    # then columns.
    return Tensor(np.einsum("bi,aj->abij", g, g).reshape(PRODUCTS**2, TAPS**2).astype(np.float32))


@ops.constexpr
def _matrices(height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (*_axis(height, PRODUCTS), *_axis(width, 0), _filters())


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """Compute a 3x3 convolution of stride 1 and padding 1, from float32 [N, C, H, W] to [N, O, H,
    W].
    """
    # Below, a and b count products along width and height, and s and t count tiles. Products with a
    # transposed right side move the last axis to the front without a copy.
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
    """Computes `nn.Conv2d` by the function `convolve` if `winograd` is true."""

    winograd = False

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, O, H', W']."""
        return convolve(x, self.weight) if self.winograd else super().construct(x)

    def fits(self) -> bool:
        """Return whether `convolve` can compute this convolution and is faster than MindSpore's
        operation on a CPU.
        """
        geometry = (
            self.kernel_size,
            self.stride,
            self.dilation,
            self.padding,
            self.group,
            self.has_bias,
        )
        return (
            geometry == ((3, 3), (1, 1), (1, 1), 1, 1, False) and self.in_channels >= LEAST_CHANNELS
        )


def use_winograd(net: nn.Cell, wanted: bool = True) -> list[Conv2d]:
    """Switch `convolve` on or off (on a card, always off) in a net, and return the convolutions
    that changed.
    """
    wanted = wanted and mindspore.get_current_device().device_target == "CPU"
    cells = [cell for _, cell in net.cells_and_names() if isinstance(cell, Conv2d) and cell.fits()]
    changed = [cell for cell in cells if cell.winograd != wanted]
    for cell in changed:
        cell.winograd = wanted
    return changed


@contextlib.contextmanager
def standard_operations(net: nn.Cell) -> Iterator[None]:
    """Use only MindSpore's own operations inside a `with` block, so that the net can be
    exported.
    """
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
