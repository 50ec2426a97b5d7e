"""These functions let a training step detect overflow on an Ascend card."""

from collections.abc import Sequence

import mindspore
from mindspore import Tensor, ops

_depend = ops.Depend()


def on_ascend() -> bool:
    """Return whether this process computes on an Ascend card."""
    return bool(mindspore.get_current_device().device_target == "Ascend")


def has_clip() -> bool:
    """Return whether this version of MindSpore has `ops.clip_by_global_norm`."""
    return hasattr(ops, "clip_by_global_norm")  # MindSpore 2.10 announces the removal


def no_overflow(tensors: Sequence[Tensor]) -> Tensor:
    """Return, as a bool scalar tensor, whether nothing has overflowed on the card since the last call.

    Some cards compute their largest number instead of infinity. For such a card, the function reads and clears the
    status registers (mindspore/amp.py, `_all_finite`). Otherwise the function tests whether `tensors` are finite.
    """
    return mindspore.amp.all_finite(tensors)


def clear_overflow(value: Tensor, small: Tensor) -> Tensor:
    """Clear the card's overflow status, and return `value`, the input of the next computation.

    The computation must use the returned tensor, so that the status is cleared first. `small` is any float32 tensor.
    """
    return _depend(value, no_overflow((small,)))
