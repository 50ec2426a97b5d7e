"""What happens to gradients between differentiation and the optimizer: unscale, all-reduce, norm, clip.

Everything that is done to each of many tensors inside jit goes through `each` (HyperMap): compiling a comprehension
or a loop takes time that grows with the square of the number of tensors.
"""

from collections.abc import Callable, Sequence

import mindspore
from mindspore import Tensor, ops

from resnet_fn.runtime.versions import row_products_are_exact

Gradients = Sequence[Tensor]
Reduce = Callable[[Gradients], Gradients]

LARGE, HUGE = 2**16, 2**22  # elements
_ROWS = row_products_are_exact()

each = ops.HyperMap()  # each(function, tensors) → a tuple; a function with a fixed first argument: ops.partial

_cast, _multiply, _square, _stack = ops.Cast(), ops.Mul(), ops.Square(), ops.Stack()
_sum, _depend = ops.ReduceSum(), ops.Depend()
_row_times_transposed = ops.MatMul(transpose_b=True)


def unscale(gradients: Gradients, factor: Tensor) -> Gradients:
    """Multiply every gradient by `factor` (1 / (loss scale · micro-batches · workers)), in float32.

    With the division by the workers done here, the SUM of the all-reduce that follows is the mean.
    """
    return each(ops.partial(_unscaled, factor), gradients)


def _unscaled(factor: Tensor, gradient: Tensor) -> Tensor:
    return _multiply(_cast(gradient, mindspore.float32), factor)


def squared_norms(gradients: Gradients, card: bool = False) -> Tensor:
    """The squared 2-norm of each gradient: float32 [gradients].

    Not by `ops.L2Loss`, whose CPU kernel adds in float32 one by one. On a CPU large ones as a product of a row with
    itself, which reads them once; huge ones not, for that product's rounding grows with them (docs/design.md). On a
    card none, for its matrix products may round their inputs (HF32), nor where MindSpore's row product is inexact.
    """
    return _stack(each(_sum_of_squares if card else _squared_norm, gradients))


def _sum_of_squares(gradient: Tensor) -> Tensor:
    return _sum(_square(gradient))


def _squared_norm(gradient: Tensor) -> Tensor:
    if not (_ROWS and LARGE <= gradient.size < HUGE):
        return _sum_of_squares(gradient)
    row = gradient.reshape(1, -1)
    return _row_times_transposed(row, row).reshape(())


def global_norm(gradients: Gradients) -> Tensor:
    """The 2-norm of all gradients as one vector: float32 scalar. NaN or infinity in any element shows in it."""
    return _norm_of(squared_norms(gradients))


def _norm_of(squares: Tensor) -> Tensor:
    return ops.sqrt(_sum(squares))


def clip_by_global_norm(gradients: Gradients, norm: Tensor, limit: float, by_operation: bool = False) -> Gradients:
    """Scale all gradients by limit / max(norm, limit): Pascanu et al., arXiv 1211.5063.

    On a card by `ops.clip_by_global_norm`; a MindSpore that has dropped it ("deprecated and will be removed after
    version 2.9.0", says 2.10's) and a CPU take the norm that the metrics and the finite test need anyway. The
    operation computes it again: 7 % of ResNet-20's step on a CPU, 15 % of ResNet-18's. A test holds the two equal.

    Args:
        gradients: float32 tensors.
        norm: their `global_norm`, finite. (`ops.clip_by_global_norm([inf, 1])` gives `[nan, 0]`: test it first.)
        limit: the largest norm that passes unchanged; 0 turns clipping off.
        by_operation: call MindSpore's.
    """
    if limit == 0:
        return gradients
    if by_operation:
        return ops.clip_by_global_norm(gradients, limit)
    return each(ops.partial(_multiply, limit / ops.maximum(norm, limit)), gradients)


def make_all_reduce(workers: int) -> Reduce | None:
    """Return the sum over all ranks as a function of a sequence of tensors, or None for one worker.

    One call per tensor, which on CPU is as fast as buckets. There a collective blocks: called when its own gradient is
    there, in the middle of backward, each would wait for the slower rank. So the first layer's gradient, the last to
    be there, is waited for. Elsewhere they overlap with backward.
    """
    if workers == 1:
        return None
    reduce_sum = ops.AllReduce(ops.ReduceOp.SUM)
    blocks = mindspore.get_context("device_target") == "CPU"

    def all_reduce(tensors: Gradients) -> Gradients:
        if blocks:
            tensors = each(ops.partial(_after, tensors[0]), tensors)
        return each(reduce_sum, tensors)

    return all_reduce


def _after(event: Tensor, value: Tensor) -> Tensor:
    return _depend(value, event)


def is_finite(means: Tensor, norm: Tensor) -> Tensor:
    """Whether the loss (means[0]) and the gradients (their norm) are finite: bool scalar."""
    return ops.logical_and(ops.isfinite(means[0]), ops.isfinite(norm))


def on_card() -> bool:
    """Whether this process computes on an Ascend card."""
    return bool(mindspore.get_context("device_target") == "Ascend")


def no_overflow(tensors: Gradients) -> Tensor:
    """Whether nothing has overflowed on the card since this was last asked: bool scalar, inside jit.

    Cards of the 910 training series, and later ones with MS_ASCEND_CHECK_OVERFLOW_MODE=SATURATION_MODE, give
    the largest number instead of infinity, and 0 instead of NaN: no norm shows it. They note it in status registers,
    which `amp.all_finite` reads and clears there (mindspore/amp.py, `_all_finite`); elsewhere it looks at the tensors.

    Args:
        tensors: what must have been computed before it is asked.
    """
    return mindspore.amp.all_finite(tensors)


def forget_overflow(value: Tensor, small: Tensor) -> Tensor:
    """`value`, for what must not answer for the overflows of what ran before it (an evaluation); inside jit.

    As `nn.TrainOneStepWithLossScaleCell.start_overflow_check` clears the registers before it differentiates.

    Args:
        value: what the computation begins with.
        small: any float32 tensor that is there already.
    """
    return _depend(value, no_overflow((small,)))


def own_part(
    gradients: Gradients,
    means: Tensor,
    rank_values: Tensor,
    rank_one_hot: Tensor,
    statistics: Gradients,
    several: bool,
    card: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a rank knows by itself; inside jit. Arguments: see `reduce_gradients`.

    Returns:
        Squared norms and norm of its gradients, of several ranks of the first alone; whether all is finite; and the
        vector that the ranks add up: means, rank values, 1 at this rank's place if something is not finite.
    """
    # Backward ends in the first layer: whatever was not finite on the way shows there. (The norm of all of a rank's
    # own gradients would cost 8 % of a ResNet-18 step on 2 workers.)
    squares = squared_norms(gradients[:1] if several else gradients, card)
    norm = _norm_of(squares)
    finite = is_finite(means, norm)
    if card:
        finite = ops.logical_and(finite, no_overflow(gradients))
    if statistics:
        finite = ops.logical_and(finite, ops.isfinite(ops.concat(statistics)).all())
    broken = rank_one_hot * (1.0 - finite.astype(mindspore.float32))
    return squares, norm, finite, ops.concat((means, rank_values, broken))


def judge(gradients: Gradients, sums: Tensor, ranks: int, card: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms and norm of gradients that are summed over the ranks, and whether all is finite; inside jit.

    NaN and infinity survive the sum, and the last `ranks` of `sums` tell who had them: every rank answers alike
    without asking.
    """
    squares = squared_norms(gradients, card)
    norm = _norm_of(squares)
    return squares, norm, ops.logical_and(is_finite(sums, norm), _sum(sums[-ranks:]) == 0)


def reduce_gradients(
    gradients: Gradients,
    means: Tensor,
    rank_values: Tensor,
    rank_one_hot: Tensor,
    statistics: Gradients,
    all_reduce: Reduce | None,
    card: bool = False,
) -> tuple[Gradients, Tensor, Tensor, Tensor, Tensor]:
    """Sum over the ranks what they must share; inside jit.

    Args:
        gradients, means: this rank's, already divided by the number of workers; means[0] is the loss.
        rank_values: float32 [k], what else is to be summed.
        rank_one_hot: float32 [workers], 1 at this rank.
        statistics: BatchNorm's, this rank's own.
        all_reduce: the sum over the ranks; None: alone.
        card: ask MindSpore, too, whether anything has overflowed (`no_overflow`).

    Returns:
        The summed gradients; the squared norm of each; the global norm; float32 [2 + k + workers]: the summed means
        and values, then 1 for each rank whose own loss, gradients or statistics were not finite; bool scalar: whether
        all is finite, the same on every rank.
    """
    squares, norm, finite, sums = own_part(
        gradients, means, rank_values, rank_one_hot, statistics, all_reduce is not None, card
    )
    if all_reduce is not None:
        gradients = all_reduce(gradients)
        sums = all_reduce((sums,))[0]
        squares, norm, finite = judge(gradients, sums, rank_one_hot.shape[0], card)
    return gradients, squares, norm, sums, finite
