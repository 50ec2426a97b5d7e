"""This module computes 3x3 convolutions of stride 1 by Winograd's minimal filtering F(4x4, 3x3).

The method is from Lavin and Gray, arXiv 1509.09308. Along one axis, the method computes four
outputs of a filter with three taps by six products instead of twelve:

    y = Aᵀ [(G w) · (B d)],    d: six inputs, w: three taps, y: four outputs

Along both axes, 36 products replace 144. In float32, the method has a relative rounding error of
9e-7, and a direct convolution has 3e-7. On a CPU, the method is faster than MindSpore's convolution
in ResNet blocks (docs/lab.md).

With stride 2, the taps 0 and 2 meet only pixels of odd rows and columns, and tap 1 only the others.
These are two convolutions of stride 1: F(4, 2) with five products and F(4, 1) with four. Along both
axes, 81 products replace 144.
"""

import contextlib
import functools
from collections.abc import Iterator

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

from resnet_fn.models.columns import Columns
from resnet_fn.runtime import instructions

TILE, TAPS = 4, 3  # outputs of one tile and taps of the filter, along one axis
# Polynomials are evaluated at these points and infinity. The usual 0, ±1, ±2 have twice the
# rounding error.
POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
LEAST_CHANNELS = 16  # fewest input channels for `convolve`; a stem with 1 to 3 is not faster

_times_transposed = ops.MatMul(transpose_b=True)
_transposed_times = ops.MatMul(transpose_a=True)
_batch_times_transposed = ops.BatchMatMul(transpose_b=True)
_batch_transposed_times = ops.BatchMatMul(transpose_a=True)


Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]


def cook_toom(taps: int = TAPS) -> Matrices:
    """Return the matrices A [p, 4], G [p, taps] and B [p, p] of Winograd's method in float64, for p
    = 3 + taps products.

    A x and G w hold the values at `POINTS` and the leading coefficients of the polynomials x
    (cubic) and w (of `taps` coefficients). x · w has the coefficients Bᵀ [(A x) · (G w)]. For fixed
    w, they are M x with a matrix M, and Mᵀ maps d to y.
    """
    points = POINTS[: TILE + taps - 2]
    # In A and G, the last row is for infinity.
    a, g = (
        np.vstack([np.vander(points, n, increasing=True), np.eye(n)[-1:]]) for n in (TILE, taps)
    )
    b = np.zeros((len(a), len(a)))
    for i, point in enumerate(points):
        others = np.delete(points, i)
        b[i, :-1] = np.poly(others)[::-1] / np.prod(point - others)
    b[-1] = np.poly(points)[::-1]
    return a, g, b


def strided(stride: int) -> Matrices:
    """Return the matrices A [p, 4], G [p, 3] and B [p, inputs of a tile] for stride 1 or 2."""
    if stride == 1:
        return cook_toom()
    a, g, b = cook_toom(taps=2)
    products, span = len(a), 2 * TILE + 1
    every_a, every_g = np.vstack([a, np.eye(TILE)]), np.zeros((products + TILE, TAPS))
    every_b = np.zeros((products + TILE, span))
    every_g[:products, ::2], every_g[products:, 1] = g, 1
    every_b[:products, ::2], every_b[products:, 1::2] = b, np.eye(TILE)
    return every_a, every_g, every_b


@functools.cache
def _axis(size: int, copies: bool, stride: int) -> tuple[Tensor, Tensor]:
    """Return two matrices that apply Winograd's method to an axis of `size` pixels: float32 [p ·
    tiles, size] and [p · tiles, outputs], for p products.

    A tile has four output pixels, computed from p products. The first matrix maps input pixels to
    factors of the products. The transpose of the second matrix maps products to output pixels. The
    rows of both matrices are sorted by product, then by tile. With `copies`, each matrix is
    repeated p times along a new first axis.
    """
    a, _, b = strided(stride)
    products, span = b.shape
    outputs = -(-size // stride)
    tiles, step = -(-outputs // TILE), TILE * stride
    # For stride 1, tile t maps the pixels 4t - 1 ... 4t + 4 to outputs 4t ... 4t + 3. Pixels beyond
    # the image are zero.
    into = np.zeros((products, tiles, (tiles - 1) * step + span), np.float32)
    out = np.zeros((products, tiles, tiles * TILE), np.float32)
    for tile in range(tiles):
        into[:, tile, tile * step : tile * step + span] = b
        out[:, tile, tile * TILE : (tile + 1) * TILE] = a
    rows = products * tiles
    into = into[:, :, 1 : size + 1].reshape(rows, size)
    out = out[:, :, :outputs].reshape(rows, outputs)
    if copies:
        into, out = (
            np.ascontiguousarray(np.broadcast_to(m, (products, *m.shape))) for m in (into, out)
        )
    return Tensor(into), Tensor(out)


@functools.cache
def _filters(stride: int) -> Tensor:
    g = strided(stride)[1]
    # Rows are ordered by product along the width, then the height. Columns are the filter's rows,
    # then columns.
    matrix = np.einsum("bi,aj->abij", g, g).reshape(len(g) ** 2, TAPS**2)
    return Tensor(matrix.astype(np.float32))


@ops.constexpr
def _matrices(
    height: int, width: int, stride: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (*_axis(height, True, stride), *_axis(width, False, stride), _filters(stride))


def convolve(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Compute a 3x3 convolution of stride 1 or 2 and padding 1, from float32 [N, C, H, W] to [N, O,
    H', W'].
    """
    # Below, a and b count products along width and height, and s and t count tiles. Products with a
    # transposed right side move the last axis to the front without a copy.
    n, c, height, width = x.shape
    o = weight.shape[0]
    into_height, out_height, into_width, out_width, filters = _matrices(height, width, stride)
    products, rows, new_height = out_height.shape
    square = products**2
    u = _times_transposed(filters, weight.reshape(o * c, TAPS**2)).reshape(square, o, c)  # ab, O, C
    v = _times_transposed(into_width, x.reshape(n * c * height, width))  # a s, N C H
    v = _batch_times_transposed(into_height, v.reshape(products, -1, height))  # a, b t, s N C
    m = _batch_times_transposed(v.reshape(square, -1, c), u)  # ab, t s N, O
    y = _batch_transposed_times(m.reshape(products, rows, -1), out_height)  # a, s N O, H'
    y = _transposed_times(y.reshape(out_width.shape[0], -1), out_width)  # N O H', W'
    return y.reshape(n, o, new_height, -1)


class Conv2d(nn.Conv2d):
    """Computes `nn.Conv2d` by MindSpore's operation, or by matrix products.

    `way` is "" for the operation, "winograd" for `convolve`, "sampled" for a 1x1 convolution after
    taking every second row and column, or "columns" for `Columns`.
    """

    way = ""

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, O, H', W']."""
        if self.way == "winograd":
            return convolve(x, self.weight, self.stride[0])
        if self.way == "sampled":
            return self.pointwise(self.sample(x), self.weight)
        if self.way == "columns":
            return self.columns(x, self.weight)
        return super().construct(x)

    def fitting_way(self, all_products: bool = False) -> str:
        """Return the fastest way that fits on a CPU.

        With `all_products`, the way is "" only if MindSpore's operation is itself a product, or if
        no way fits (see `is_product`).
        """
        if (self.dilation, self.group, self.has_bias) != ((1, 1), 1, False):
            return ""
        size, stride = self.kernel_size, self.stride
        usual = size in ((1, 1), (3, 3), (7, 7)) and self.padding == size[0] // 2
        if not usual or stride not in ((1, 1), (2, 2)):
            return ""
        deep = self.in_channels >= LEAST_CHANNELS
        if size == (3, 3) and deep and (all_products or stride == (1, 1)):
            return "winograd"
        if not all_products or (size, stride) == ((1, 1), (1, 1)):
            return ""
        return "sampled" if size == (1, 1) else "columns"

    def is_product(self) -> bool:
        """Return whether the convolution runs as matrix products, in a way or by MindSpore."""
        geometry = (self.kernel_size, self.stride, self.padding, self.group)
        return bool(self.way) or geometry == ((1, 1), (1, 1), 0, 1)

    def set_way(self, way: str) -> None:
        """Compute in this way from now on."""
        if way == "sampled":
            self.sample = ops.AvgPool(1, 2, "valid")  # the mean of one pixel is exact
            self.pointwise = ops.Conv2D(self.out_channels, 1)
        if way == "columns":
            self.columns = Columns(self.kernel_size[0], self.stride[0], self.out_channels)
        self.way = way


def use_products(net: nn.Cell, wanted: bool = True) -> dict[Conv2d, str]:
    """Switch products on or off (on a card, always off) in the convolutions of a net.

    Return the convolutions that changed, each with its way before. If oneDNN may use all
    instructions (runtime/instructions.py), all convolutions that can be products become products.
    """
    wanted = wanted and mindspore.get_current_device().device_target == "CPU"
    all_products = instructions.choice().convolutions == instructions.PRODUCTS
    changed = {}
    for _, cell in net.cells_and_names():
        if isinstance(cell, Conv2d):
            way = cell.fitting_way(all_products) if wanted else ""
            if way != cell.way:
                changed[cell] = cell.way
                cell.set_way(way)
    return changed


@contextlib.contextmanager
def standard_operations(net: nn.Cell) -> Iterator[None]:
    """Use only MindSpore's own operations inside a `with` block, so that the net can be
    exported.
    """
    convolutions = use_products(net, False)
    others = [cell for _, cell in net.cells_and_names() if getattr(cell, "standard", None) is False]
    for cell in others:
        cell.standard = True
    try:
        yield
    finally:
        for cell, way in convolutions.items():
            cell.set_way(way)
        for cell in others:
            cell.standard = False
