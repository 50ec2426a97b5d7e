"""These functions process gradients before the optimizer uses them, inside compiled functions."""

from collections.abc import Sequence

import mindspore
from mindspore import Parameter, Tensor, ops

from resnet_fn.runtime.versions import at_least

Gradients = Sequence[Tensor]
Parameters = Sequence[Parameter]

LARGE, HUGE = 2**16, 2**22  # numbers of elements
# before MindSpore 2.9, a matrix product of a large row with itself has an error of 7.7e-5
_ROWS = at_least(2, 9)

# Applies a function to each tensor, and returns a tuple: map_tensors(function, tensors, …). The
# time to compile a loop over tensors would grow with the square of their number. `ops.partial`
# gives the function a fixed first argument.
map_tensors = ops.HyperMap()

_assign, _cast, _multiply, _square = ops.Assign(), ops.Cast(), ops.Mul(), ops.Square()
_stack = ops.Stack()
_sum = ops.ReduceSum()
_row_times_transposed = ops.MatMul(transpose_b=True)


def assign_tensors(targets: Parameters, values: Sequence[Tensor]) -> None:
    """Write each tensor of `values` into the Parameter at the same position of `targets`."""
    map_tensors(_assign, targets, values)


def unscale(gradients: Gradients, factor: Tensor) -> Gradients:
    """Multiply each gradient, in float32, by `factor`, which is 1 / (loss scale · micro-batches ·
    workers).
    """
    return map_tensors(ops.partial(_unscaled, factor), gradients)


def _unscaled(factor: Tensor, gradient: Tensor) -> Tensor:
    return _multiply(_cast(gradient, mindspore.float32), factor)


def squared_norms(gradients: Gradients, ascend: bool = False) -> Tensor:
    """Compute the squared 2-norm of each gradient, as one tensor, float32 [gradients]."""
    # `ops.L2Loss` is inexact, because its CPU kernel adds elements in float32 one by one. On a
    # card, matrix products may round to HF32, so squares are summed.
    return _stack(map_tensors(_sum_of_squares if ascend else _squared_norm, gradients))


def _sum_of_squares(gradient: Tensor) -> Tensor:
    return _sum(_square(gradient))


def _squared_norm(gradient: Tensor) -> Tensor:
    # The product of a row with itself reads memory only once. For a huge gradient, the product's
    # error is too large.
    if not (_ROWS and LARGE <= gradient.size < HUGE):
        return _sum_of_squares(gradient)
    row = gradient.reshape(1, -1)
    return _row_times_transposed(row, row).reshape(())


def norm_of(squares: Tensor) -> Tensor:
    """Compute the 2-norm of all gradients together, a float32 scalar, from the squared norm of each
    gradient.
    """
    return ops.sqrt(_sum(squares))


def global_norm(gradients: Gradients) -> Tensor:
    """Compute the 2-norm of all gradients, a float32 scalar.

    The norm is not finite if a gradient is not finite.
    """
    return norm_of(squared_norms(gradients))


def clip_by_global_norm(
    gradients: Gradients, norm: Tensor, clip_norm: float, by_operation: bool = False
) -> Gradients:
    """Multiply all gradients by clip_norm / max(norm, clip_norm), as in Pascanu et al. (arXiv
    1211.5063).

    `norm` is the gradients' `global_norm`, which must be finite. If `clip_norm` is 0, the gradients
    stay unchanged. If `by_operation` is True, `ops.clip_by_global_norm` does the computation.
    """
    if clip_norm == 0:
        return gradients
    if by_operation:
        return ops.clip_by_global_norm(gradients, clip_norm)
    return map_tensors(ops.partial(_multiply, clip_norm / ops.maximum(norm, clip_norm)), gradients)


def is_finite(loss: Tensor, norm: Tensor, statistics: Sequence[Tensor] = ()) -> Tensor:
    """Return, as a bool scalar tensor, whether the loss, the norm and BatchNorm's statistics are
    finite.
    """
    finite = ops.logical_and(ops.isfinite(loss), ops.isfinite(norm))
    if statistics:
        finite = ops.logical_and(finite, ops.isfinite(ops.concat(statistics)).all())
    return finite
