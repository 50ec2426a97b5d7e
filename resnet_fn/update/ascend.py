"""On an Ascend card, a step tests for overflow by status registers, and clips by MindSpore's own operation."""

from collections.abc import Sequence

import mindspore
from mindspore import Tensor, ops

_depend = ops.Depend()


def on_ascend() -> bool:
    """Return whether this process computes on an Ascend card."""
    return bool(mindspore.get_current_device().device_target == "Ascend")


def has_clip() -> bool:
    """Return whether this MindSpore has `ops.clip_by_global_norm` (2.10 announces its removal)."""
    return hasattr(ops, "clip_by_global_norm")


def no_overflow(tensors: Sequence[Tensor]) -> Tensor:
    """Return whether nothing has overflowed on the card since the last call: bool scalar, inside jit.

    Cards of the 910 training series, and later ones with MS_ASCEND_CHECK_OVERFLOW_MODE=SATURATION_MODE, compute the
    largest number instead of infinity and 0 instead of NaN, so no norm shows an overflow. Their status registers do;
    `amp.all_finite` reads and clears them (mindspore/amp.py, `_all_finite`). On other devices it tests the tensors.
    """
    return mindspore.amp.all_finite(tensors)


def clear_overflow(value: Tensor, small: Tensor) -> Tensor:
    """Return `value` after clearing the overflow status, so that an earlier overflow, of an evaluation, is not counted.

    `nn.TrainOneStepWithLossScaleCell.start_overflow_check` also clears the status before it differentiates. `value` is
    the input of the computation to check; `small` is any float32 tensor that exists already. This works inside jit.
    """
    return _depend(value, no_overflow((small,)))
