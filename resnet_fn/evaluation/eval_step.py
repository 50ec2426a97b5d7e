"""`make_eval_step` compiles the evaluation of one batch."""

from collections.abc import Callable
from typing import NamedTuple

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

from resnet_fn.update.ascend import on_ascend
from resnet_fn.update.loss import Loss, binary_cross_entropy
from resnet_fn.update.state import FixedMemory
from resnet_fn.update.step import Compile


class EvalResult(NamedTuple):
    """The evaluation of n samples.

    Attributes:
        loss: float32 [n], the loss of each sample. For multi-label targets, the loss is a mean over
            the classes.
        prediction: int32 [n], the most likely class of each sample.
        rank: int32 [n], the number of classes that rank before the label. Of equal logits, the
            smaller index ranks first. For multi-label targets the rank is 0. If a logit is not
            finite, the rank is the number of classes.
        logits: float32 [n, classes], or None if `with_logits` was False.
    """

    loss: Tensor
    prediction: Tensor
    rank: Tensor
    logits: Tensor | None = None


EvalStep = Callable[[Tensor, Tensor], EvalResult]

# `logits.argmax`, and `ops.arange` for `_numbers`, compile to the same 0.3 s more slowly
_argmax = ops.Argmax(1)
_gather = ops.GatherD()


@ops.constexpr
def _numbers(count: int) -> Tensor:
    return Tensor(np.arange(count, dtype=np.int32))


def make_eval_step(
    net: nn.Cell,
    with_logits: bool = False,
    jit: Compile | None = mindspore.jit,
    loss: Loss | None = None,
) -> EvalStep:
    """Compile the evaluation of one batch.

    Args:
        net: maps images to logits.
        with_logits: whether the result contains the logits.
        jit: compiles a function, as `mindspore.jit` does. If `jit` is None, nothing is compiled
            (print and pdb work).
        loss: returns the mean loss of a batch from (outputs, targets). In the result, the loss of
            each sample is the mean loss of the batch. With `loss`, targets that are not int32 [n]
            give prediction 0 and rank 0. If `loss` is None, the loss is cross-entropy, or binary
            cross-entropy for multi-label targets.

    Returns:
        eval_step(images, labels) → `EvalResult`. The step sets the net to evaluation mode. Images
        are float32 [n, C, H, W]. Labels are int32 [n], or float32 [n, classes] if they are
        multi-label. On a CPU, the compiled step raises a ValueError if `set_data` has given a
        Parameter new memory since the first call of the step.
    """

    def scores(images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        outputs = net(images)
        if loss is not None and not (labels.ndim == 1 and labels.dtype == mindspore.int32):
            losses = ops.broadcast_to(loss(outputs, labels).reshape(1), labels.shape[:1])
            return losses, ops.zeros_like(losses), ops.zeros_like(losses), outputs
        logits = outputs.astype(mindspore.float32)
        prediction = _argmax(logits)
        broken = ops.logical_not(ops.isfinite(logits).all(1))
        last = logits.shape[1]
        if labels.ndim == 2:
            losses = binary_cross_entropy(logits, labels).mean(1)
            return losses, prediction, ops.where(broken, last, 0 * prediction), logits
        if loss is None:
            losses = ops.cross_entropy(logits, labels, reduction="none")
        else:
            losses = ops.broadcast_to(loss(outputs, labels).reshape(1), labels.shape[:1])
        column, classes = labels.reshape(-1, 1), _numbers(logits.shape[1])
        of_label = _gather(logits, 1, column)
        ahead = ops.logical_or(
            logits > of_label, ops.logical_and(logits == of_label, classes < column)
        )
        rank = ahead.astype(mindspore.int32).sum(1)
        return losses, prediction, ops.where(broken, last, rank), logits

    # its own function: a compiled one ignores a later `set_train`
    compiled = jit(scores) if jit else scores
    memory = FixedMemory(() if on_ascend() or jit is None else net.get_parameters())

    def eval_step(images: Tensor, labels: Tensor) -> EvalResult:
        memory.check()
        net.set_train(False)
        result = EvalResult(*compiled(images, labels))
        return result if with_logits else result._replace(logits=None)

    return eval_step
