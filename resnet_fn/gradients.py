"""What happens to gradients between differentiation and the optimizer: unscale, all-reduce, norm, clip."""

from collections.abc import Callable, Sequence

import mindspore
from mindspore import Tensor, ops

Gradients = Sequence[Tensor]
Reduce = Callable[[Gradients], Gradients]


def unscale(gradients: Gradients, factor: Tensor) -> list[Tensor]:
    """Multiply every gradient by `factor` (1 / (loss scale · micro-batches · workers)), in float32.

    With the division by the workers done here, the SUM of the all-reduce that follows is the mean.
    """
    return [gradient.astype(mindspore.float32) * factor for gradient in gradients]


def global_norm(gradients: Gradients) -> Tensor:
    """The 2-norm of all gradients as one vector: float32 scalar. NaN or infinity in any element shows in it."""
    return ops.sqrt(sum([ops.square(gradient).sum() for gradient in gradients]))


def clip_by_global_norm(gradients: Gradients, norm: Tensor, limit: float) -> Gradients:
    """Scale all gradients by limit / max(norm, limit): `ops.clip_by_global_norm` with the norm already known.

    The norm is needed for the metrics and for the finiteness test anyway; the operation would compute it a second
    time. A test holds this equal to the operation. Pascanu et al., arXiv 1211.5063.

    Args:
        gradients: float32 tensors.
        norm: their `global_norm`, finite. (`ops.clip_by_global_norm([inf, 1])` gives `[nan, 0]`: test it first.)
        limit: the largest norm that passes unchanged; 0 turns clipping off.
    """
    if limit == 0:
        return gradients
    factor = limit / ops.maximum(norm, limit)
    return [gradient * factor for gradient in gradients]


def make_all_reduce(workers: int) -> Reduce | None:
    """Return the sum over all ranks as a function of a sequence of tensors, or None for one worker.

    One call per tensor: on CPU 62 tensors (11.2 M floats) take 0.18–0.23 s on 2 workers so, 0.25–0.50 s as one
    concatenated buffer.
    """
    if workers == 1:
        return None
    reduce_sum = ops.AllReduce(ops.ReduceOp.SUM)

    def all_reduce(tensors: Gradients) -> list[Tensor]:
        return [reduce_sum(tensor) for tensor in tensors]

    return all_reduce


def is_finite(means: Tensor, norm: Tensor) -> Tensor:
    """Whether the loss (means[0]) and the gradients (their norm) are finite: bool scalar."""
    return ops.logical_and(ops.isfinite(means[0]), ops.isfinite(norm))


def exchange(
    gradients: Gradients, means: Tensor, stop: Tensor, own_place: Tensor, all_reduce: Reduce | None
) -> tuple[Gradients, Tensor, Tensor]:
    """Sum over the ranks what they must share; inside jit.

    Args:
        gradients, means: this rank's, already divided by the number of workers.
        stop: float32 [2], this rank's wish to stop.
        own_place: float32 [workers], 1 at this rank.
        all_reduce: the sum over the ranks; None: alone.

    Returns:
        The summed gradients; their global norm; float32 [4 + workers]: the summed means, the summed wishes, and 1 for
        each rank whose own loss or gradients were not finite.
    """
    # Backward ends in the first layer: whatever was not finite on the way shows there. (The norm of all of a rank's
    # own gradients would cost 8 % of a ResNet-18 step on 2 workers.)
    norm = global_norm(gradients[:1] if all_reduce is not None else gradients)
    notes = ops.concat((means, stop, own_place * (1.0 - is_finite(means, norm).astype(mindspore.float32))))
    if all_reduce is not None:
        gradients = all_reduce(gradients)
        notes = all_reduce([notes])[0]
        norm = global_norm(gradients)
    return gradients, norm, notes
