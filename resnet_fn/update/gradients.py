"""These pure functions change gradients between differentiation and the optimizer, inside jit.

Many tensors go through `map_tensors` (HyperMap): the time to compile a loop grows with the square of their number.
"""

from collections.abc import Sequence

import mindspore
from mindspore import Parameter, Tensor, ops

from resnet_fn.runtime.versions import at_least

Gradients = Sequence[Tensor]

LARGE, HUGE = 2**16, 2**22  # numbers of elements
_ROWS = at_least(2, 9)  # before MindSpore 2.9, a matrix product of a large row with itself has an error of 7.7e-5

map_tensors = ops.HyperMap()  # (function, tensors, …) → a tuple; with a fixed first argument: ops.partial(function, it)

_assign, _cast, _multiply, _square = ops.Assign(), ops.Cast(), ops.Mul(), ops.Square()
_stack, _sum, _row_times_transposed = ops.Stack(), ops.ReduceSum(), ops.MatMul(transpose_b=True)


def assign_tensors(targets: Sequence[Parameter], values: Sequence[Tensor]) -> None:
    """Write each of `values` into the Parameter at its place in `targets`."""
    map_tensors(_assign, targets, values)


def unscale(gradients: Gradients, factor: Tensor) -> Gradients:
    """Multiply gradients, in float32, by 1 / (loss scale · micro-batches · workers), so that their sum is a mean."""
    return map_tensors(ops.partial(_unscaled, factor), gradients)


def _unscaled(factor: Tensor, gradient: Tensor) -> Tensor:
    return _multiply(_cast(gradient, mindspore.float32), factor)


def squared_norms(gradients: Gradients, ascend: bool = False) -> Tensor:
    """Compute the squared 2-norm of each gradient: float32 [gradients].

    `ops.L2Loss` is not used: its CPU kernel adds elements in float32 one by one. On a CPU a large gradient, as a row,
    is multiplied by itself, which reads memory once. Squares are summed for a huge gradient, where the product's error
    is larger; on a card, where products may round to HF32; and where MindSpore's row product is inexact.
    """
    return _stack(map_tensors(_sum_of_squares if ascend else _squared_norm, gradients))


def _sum_of_squares(gradient: Tensor) -> Tensor:
    return _sum(_square(gradient))


def _squared_norm(gradient: Tensor) -> Tensor:
    if not (_ROWS and LARGE <= gradient.size < HUGE):
        return _sum_of_squares(gradient)
    row = gradient.reshape(1, -1)
    return _row_times_transposed(row, row).reshape(())


def norm_of(squares: Tensor) -> Tensor:
    """Compute the 2-norm of all gradients together, float32 scalar, from the squared norm of each, [gradients]."""
    return ops.sqrt(_sum(squares))


def global_norm(gradients: Gradients) -> Tensor:
    """Compute the 2-norm of all gradients together, float32 scalar; it is not finite if any element is not finite."""
    return norm_of(squared_norms(gradients))


def clip_by_global_norm(gradients: Gradients, norm: Tensor, clip_norm: float, by_operation: bool = False) -> Gradients:
    """Scale all gradients by clip_norm / max(norm, clip_norm): Pascanu et al., arXiv 1211.5063.

    `norm` is the gradients' `global_norm`, and must be finite (`ops.clip_by_global_norm([inf, 1])` gives `[nan, 0]`). A
    `clip_norm` of 0 turns clipping off. `by_operation`, for cards, uses MindSpore's operation, which 2.10 deprecates.
    """
    if clip_norm == 0:
        return gradients
    if by_operation:
        return ops.clip_by_global_norm(gradients, clip_norm)
    return map_tensors(ops.partial(_multiply, clip_norm / ops.maximum(norm, clip_norm)), gradients)


def is_finite(loss: Tensor, norm: Tensor, statistics: Sequence[Tensor] = ()) -> Tensor:
    """Return whether loss, gradients' norm and BatchNorm's statistics are finite: bool scalar, inside jit."""
    finite = ops.logical_and(ops.isfinite(loss), ops.isfinite(norm))
    if statistics:
        finite = ops.logical_and(finite, ops.isfinite(ops.concat(statistics)).all())
    return finite
