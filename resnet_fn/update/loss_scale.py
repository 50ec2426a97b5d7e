"""Dynamic loss scaling keeps float16 gradients in range (Micikevicius et al., arXiv 1710.03740)."""

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

_assign = ops.Assign()


def _scalar(value: float, name: str) -> Parameter:
    return Parameter(Tensor(np.float32(value)), name=name, requires_grad=False)


@mindspore.jit_class
class DynamicLossScaler:
    """Adjusts the loss scale, which keeps float16 gradients between underflow and overflow.

    It works as torch.amp.GradScaler, with a floor and a ceiling: an overflowed update halves the scale and is skipped;
    `growth_interval` good updates in a row double it.

    State (float32 scalar Parameters, saved with every checkpoint): `scale`, `good_updates` (finite updates since
    the scale last changed), `skipped` (skipped updates in the whole run), `skipped_in_row`.

    Args:
        initial: the first scale.
        growth_factor: factor by which the scale grows; 1 for a static scale.
        backoff_factor: factor by which an overflow multiplies the scale; 1 for a static scale.
        growth_interval: number of finite updates in a row before the scale grows.
        floor, ceiling: bounds of the scale; without bounds small gradients would drive the scale to infinity, NaN to 0.

    Raises:
        ValueError: a factor or bound is not allowed; the message has the fix.
    """

    def __init__(
        self,
        initial: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        floor: float = 1.0,
        ceiling: float = 2.0**24,
    ) -> None:
        if growth_factor < 1:
            raise ValueError(f"growth_factor: {growth_factor} would shrink the scale; give 1 or more")
        if not 0 < backoff_factor <= 1:
            raise ValueError(f"backoff_factor: {backoff_factor} is not in (0, 1]; give 0.5")
        if growth_interval < 1:
            raise ValueError(f"growth_interval: {growth_interval} updates; give 1 or more")
        if not 0 < floor <= initial <= ceiling:
            raise ValueError(f"initial: {initial} is not between floor {floor} and ceiling {ceiling}")
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval
        self.floor, self.ceiling = floor, ceiling
        self.scale = _scalar(initial, "scaler.scale")
        self.good_updates = _scalar(0, "scaler.good_updates")
        self.skipped = _scalar(0, "scaler.skipped")
        self.skipped_in_row = _scalar(0, "scaler.skipped_in_row")

    @classmethod
    def off(cls) -> "DynamicLossScaler":
        """Make a scaler whose scale is always 1, for float32: non-finite updates are still skipped and counted."""
        return cls(initial=1.0, growth_factor=1.0, backoff_factor=1.0, ceiling=1.0)

    def state(self) -> tuple[Parameter, ...]:
        """Return the Parameters that a checkpoint must hold."""
        return (self.scale, self.good_updates, self.skipped, self.skipped_in_row)

    def adjust(self, applied: Tensor, complete: Tensor | None = None) -> Tensor:
        """Adjust the scale and the counts after an update, inside jit.

        `applied` and `complete` (None: True) are bool scalars: whether the update was applied, and whether every worker
        had its samples. If a worker had none, all state stays as it is. The result is float32 [3]: the scale that this
        update *used*, and `skipped` and `skipped_in_row` after the update.
        """
        used = self.scale * 1.0  # a copy: the Parameter is assigned below
        finite = applied.astype(mindspore.float32)
        counted = 1.0 if complete is None else complete.astype(mindspore.float32)
        good = ops.where(applied, self.good_updates + 1.0, self.good_updates * (1.0 - counted))
        skipped = self.skipped + (counted - finite)
        in_row = (self.skipped_in_row + (counted - finite)) * (1.0 - finite)
        if self.growth_factor != 1.0 or self.backoff_factor != 1.0:
            grows = good >= self.growth_interval
            grown = ops.where(grows, used * self.growth_factor, used)
            scale = ops.where(applied, grown, used * (1.0 - counted * (1.0 - self.backoff_factor)))
            _assign(self.scale, ops.clamp(scale, self.floor, self.ceiling))
            good = ops.where(grows, ops.zeros_like(good), good)
        _assign(self.good_updates, good)
        _assign(self.skipped, skipped)
        _assign(self.skipped_in_row, in_row)
        return ops.stack((used, skipped, in_row))


def make_scaler(precision: str, initial: float, growth_interval: int) -> DynamicLossScaler:
    """Make the loss scaler of a precision: dynamic for "fp16", a constant scale of 1 (`off`) for others."""
    if precision != "fp16":
        return DynamicLossScaler.off()
    return DynamicLossScaler(initial, growth_interval=growth_interval)
