"""This module computes 3x3 convolutions of stride 1 by Winograd's minimal filtering F(4x4, 3x3).

The method is from Lavin and Gray, arXiv 1509.09308. Along one axis, the method computes four
outputs of a filter with three taps by six products instead of twelve:

    y = Aᵀ [(G w) · (B d)],    d: six inputs, w: three taps, y: four outputs

Along both axes, 36 products replace 144. In float32, the method has a relative rounding error of
9e-7, and a direct convolution has 3e-7. On a CPU, the method is faster than MindSpore's convolution
in ResNet blocks (docs/benchmarks.md).

With stride 2, the taps 0 and 2 meet only pixels of odd rows and columns, and tap 1 only the others.
These are two convolutions of stride 1: F(4, 2) with five products and F(4, 1) with four. Along both
axes, 81 products replace 144.
"""

import functools
from collections.abc import Callable

import numpy as np
from mindspore import Tensor, ops

TILE, TAPS = 4, 3  # outputs of one tile and taps of the filter, along one axis
# Polynomials are evaluated at these points and infinity. The usual 0, ±1, ±2 have twice the
# rounding error.
POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)

_times_transposed = ops.MatMul(transpose_b=True)
_transposed_times = ops.MatMul(transpose_a=True)
_batch_times_transposed = ops.BatchMatMul(transpose_b=True)
_batch_times = ops.BatchMatMul()
_batch_transposed_times = ops.BatchMatMul(transpose_a=True)

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]


def cook_toom(taps: int = TAPS) -> Matrices:
    """Return the matrices A [p, 4], G [p, taps] and B [p, p] of Winograd's method in float64, for p
    = 3 + taps products.

    A x and G w hold the values at `POINTS` and the leading coefficients of the polynomials x
    (cubic) and w (of `taps` coefficients). x · w has the coefficients Bᵀ [(A x) · (G w)]. For fixed
    w, they are M x with a matrix M, and Mᵀ maps d to y.
    """
    products = TILE + taps - 1
    points = POINTS[: products - 1]
    # In A and G, the last row is for infinity.
    a, g = (
        np.vstack([np.vander(points, n, increasing=True), np.eye(n)[-1:]]) for n in (TILE, taps)
    )
    b = np.zeros((products, products))
    for i, point in enumerate(points):
        others = np.delete(points, i)
        coefficients = np.poly(others)[::-1]
        b[i, :-1] = coefficients / np.prod(point - others)
    b[-1] = np.poly(points)[::-1]
    return a, g, b


def matrices_of(stride: int) -> Matrices:
    """Return the matrices A [p, 4], G [p, 3] and B [p, inputs of a tile] for stride 1 or 2."""
    if stride == 1:
        return cook_toom()
    a_of_two, g_of_two, b_of_two = cook_toom(taps=2)
    products = len(a_of_two)
    a = np.vstack([a_of_two, np.eye(TILE)])
    g = np.zeros((products + TILE, TAPS))
    g[:products, ::2] = g_of_two
    g[products:, 1] = 1
    b = np.zeros((products + TILE, 2 * TILE + 1))
    b[:products, ::2] = b_of_two
    b[products:, 1::2] = np.eye(TILE)
    return a, g, b


@functools.cache
def _axis(size: int, stride: int, copies: bool) -> tuple[Tensor, Tensor]:
    """Return two matrices that apply Winograd's method to an axis of `size` pixels: float32 [p ·
    tiles, size] and [p · tiles, outputs], for p products.

    A tile has four output pixels, computed from p products. The first matrix maps input pixels to
    factors of the products. The transpose of the second matrix maps products to output pixels. The
    rows of both matrices are sorted by product, then by tile. With `copies`, each matrix is
    repeated p times along a new first axis.
    """
    a, _, b = matrices_of(stride)
    products, inputs = b.shape
    outputs = -(-size // stride)
    tiles = -(-outputs // TILE)
    step = TILE * stride
    # For stride 1, tile t maps the pixels 4t - 1 ... 4t + 4 to outputs 4t ... 4t + 3. Pixels beyond
    # the image are zero.
    into = np.zeros(
        (products, tiles, tiles * step + inputs),
        np.float32,
    )
    out = np.zeros(
        (products, tiles, tiles * TILE),
        np.float32,
    )
    for tile in range(tiles):
        first = tile * step
        into[:, tile, first : first + inputs] = b
        first = tile * TILE
        out[:, tile, first : first + TILE] = a
    rows = products * tiles
    into = into[:, :, 1 : size + 1].reshape(rows, size)
    out = out[:, :, :outputs].reshape(rows, outputs)
    if copies:
        into, out = (np.stack([matrix] * products) for matrix in (into, out))
    return Tensor(into), Tensor(out)


@ops.constexpr
@functools.cache
def _filters(stride: int) -> Tensor:
    g = matrices_of(stride)[1]
    # Rows are ordered by product along the width, then the height. Columns are the filter's rows,
    # then columns.
    pairs = np.einsum("bi,aj->abij", g, g)
    matrix = pairs.reshape(len(g) ** 2, TAPS**2)
    return Tensor(matrix.astype(np.float32))


@ops.constexpr
def _matrices(
    height: int,
    width: int,
    stride: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        *_axis(height, stride, True),
        *_axis(width, stride, False),
    )


def _filtered(weight: Tensor, filters: Tensor) -> Tensor:
    """Return a weight [O, C, 3, 3] as factors of the products, [products, O, C]."""
    o, c = weight.shape[:2]
    taps = weight.reshape(o * c, TAPS**2)
    return _times_transposed(filters, taps).reshape(-1, o, c)


def times_filtered(v: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Multiply factors [products, M, C] by those of a weight [O, C, 3, 3], to [products, M, O]."""
    return _batch_times_transposed(v, _filtered(weight, _filters(stride)))


def gradients_of_product(given: Tensor, v: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of `times_filtered` with stride 1 for the output's gradient `given`."""
    filters = _filters(1)
    # Without `depend`, MindSpore would keep the forward pass's factors, which are large.
    u = _filtered(ops.depend(weight, given), filters)
    of_u = _batch_transposed_times(given, v)
    of_taps = _transposed_times(of_u.reshape(of_u.shape[0], -1), filters)
    return _batch_times(given, u), of_taps.reshape(weight.shape)


def convolve(
    x: Tensor,
    weight: Tensor,
    stride: int = 1,
    multiply: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Compute a 3x3 convolution of stride 1 or 2 and padding 1, from float32 [N, C, H, W] to [N, O,
    H', W'].

    `multiply` replaces `times_filtered`.
    """
    # Below, a and b count products along width and height, and s and t count tiles. Products with a
    # transposed right side move the last axis to the front without a copy.
    n, c, height, width = x.shape
    into_height, out_height, into_width, out_width = _matrices(height, width, stride)
    products, rows, new_height = out_height.shape
    x = x.reshape(n * c * height, width)
    v = _times_transposed(into_width, x)  # a s, N C H
    v = v.reshape(products, -1, height)
    v = _batch_times_transposed(into_height, v)  # a, b t, s N C
    v = v.reshape(products**2, -1, c)
    # ab, t s N, O
    m = times_filtered(v, weight, stride) if multiply is None else multiply(v, weight)
    m = m.reshape(products, rows, -1)
    y = _batch_transposed_times(m, out_height)  # a, s N O, H'
    y = y.reshape(out_width.shape[0], -1)
    y = _transposed_times(y, out_width)  # N O H', W'
    return y.reshape(n, -1, new_height, out_width.shape[1])


def gradient_of_input(given: Tensor, weight: Tensor, shape: tuple[int, ...], stride: int) -> Tensor:
    """Return the gradient of the `convolve` input of this shape, for the output's gradient
    `given`.
    """
    # These are the steps of `convolve`, each transposed, in reverse order.
    n, o, new_height, new_width = given.shape
    height, width = shape[2:]
    into_height, out_height, into_width, out_width = _matrices(height, width, stride)
    products, rows, _ = out_height.shape
    # Without `depend`, MindSpore would keep the forward pass's factors, which are large.
    u = _filtered(ops.depend(weight, given), _filters(stride))
    y = given.reshape(n * o * new_height, new_width)
    y = _times_transposed(out_width, y)
    y = y.reshape(products, -1, new_height)
    m = _batch_times_transposed(out_height, y)
    m = m.reshape(products**2, -1, o)
    v = _batch_times(m, u)
    v = v.reshape(products, rows, -1)
    v = _batch_transposed_times(v, into_height)
    v = v.reshape(out_width.shape[0], -1)
    x = _transposed_times(v, into_width)
    return x.reshape(shape)
