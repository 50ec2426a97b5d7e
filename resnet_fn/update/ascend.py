"""On an Ascend card, these functions help a training step to detect overflow."""

from collections.abc import Sequence

import mindspore
from mindspore import Tensor, ops

_depend = ops.Depend()


def on_ascend() -> bool:
    """Return whether this process computes on an Ascend card."""
    return bool(mindspore.get_current_device().device_target == "Ascend")


def no_overflow(tensors: Sequence[Tensor]) -> Tensor:
    """Return, as a bool scalar tensor, whether no number has overflowed on the card since the last
    call.

    On overflow, some cards return their largest number instead of infinity, and set a status
    register, which `no_overflow` reads and clears. On any other device, `no_overflow` tests whether
    all `tensors` are finite.
    """
    # Such cards are the 910 training series, and later cards with
    # MS_ASCEND_CHECK_OVERFLOW_MODE=SATURATION_MODE.
    return mindspore.amp.all_finite(tensors)


def clear_overflow(value: Tensor, small: Tensor) -> Tensor:
    """Clear the card's overflow status, and then return `value` unchanged.

    Compute with the returned `value`, so that a later `no_overflow` ignores overflows before
    `clear_overflow`. MindSpore clears the status only when it tests tensors, so `clear_overflow`
    tests `small`, any float32 tensor.
    """
    return _depend(value, no_overflow((small,)))
