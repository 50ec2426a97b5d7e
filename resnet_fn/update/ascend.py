"""These functions let a training step detect overflow, and choose how to clip, on an Ascend card."""

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
    """Return, as a bool scalar tensor, whether no number has overflowed on the card since the last call.

    On cards that compute their largest number instead of infinity, the function reads and clears the status registers.
    On other devices, the function tests whether all `tensors` are finite.
    """
    # Such cards are the 910 training series, and later cards with MS_ASCEND_CHECK_OVERFLOW_MODE=SATURATION_MODE.
    return mindspore.amp.all_finite(tensors)


def clear_overflow(value: Tensor, small: Tensor) -> Tensor:
    """Return `value` unchanged, and clear the card's overflow status before the returned tensor is used.

    Pass the result to the computation that `no_overflow` tests later, so that earlier overflows do not count. `small`
    is any float32 tensor, because MindSpore clears the status only together with a test of tensors.
    """
    return _depend(value, no_overflow((small,)))
