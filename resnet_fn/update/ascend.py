"""On an Ascend card, these functions help a training step to detect overflow."""

from collections.abc import Sequence

import mindspore
from mindspore import Tensor, ops

_depend = ops.Depend()


def on_ascend() -> bool:
    """Return whether this process computes on an Ascend card."""
    return bool(mindspore.get_current_device().device_target == "Ascend")


def no_overflow(tensors: Sequence[Tensor]) -> Tensor:
    """Return, as a bool scalar tensor, whether no number has overflowed on the card since the last call.

    Some cards return their largest number instead of infinity, and set a status register. On these cards, the
    function reads and clears this register. On other devices, the function tests whether all `tensors` are finite.
    """
    # Such cards are the 910 training series, and later cards with MS_ASCEND_CHECK_OVERFLOW_MODE=SATURATION_MODE.
    return mindspore.amp.all_finite(tensors)


def clear_overflow(value: Tensor, small: Tensor) -> Tensor:
    """Clear the card's overflow status, and then return `value` unchanged.

    Pass the result to the computation that `no_overflow` tests later, so that earlier overflows do not count. MindSpore
    clears the status only when it tests tensors for overflow. `small` is any float32 tensor for this test.
    """
    return _depend(value, no_overflow((small,)))
