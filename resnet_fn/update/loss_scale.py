"""Dynamic loss scaling keeps float16 gradients in range (Micikevicius et al., arXiv 1710.03740)."""

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

_assign = ops.Assign()


def _scalar(value: float, name: str) -> Parameter:
    return Parameter(Tensor(np.float32(value)), name=name, requires_grad=False)


@mindspore.jit_class
class DynamicLossScaler:
    """Adjusts the loss scale as `torch.amp.GradScaler` does, and keeps the scale between a floor
    and a ceiling.

    The attributes are float32 scalar Parameters, which every checkpoint contains.

    Args:
        initial: the first scale.
        growth_factor: multiplies the scale after `growth_interval` finite updates in a row; 1 for a
            static scale.
        backoff_factor: multiplies the scale after an update that overflows; 1 for a static scale.
        growth_interval: number of finite updates in a row after which the scale grows.
        floor, ceiling: the smallest and the largest scale.

    Attributes:
        scale: the loss scale of the next update.
        good_updates: number of finite updates in a row since the scale last grew.
        skipped: number of skipped updates in the whole run.
        skipped_in_row: number of updates skipped since the last applied update.

    Raises:
        ValueError: if an argument is out of range.
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
            raise ValueError(
                f"growth_factor: {growth_factor} would shrink the scale; give 1 or more"
            )
        if not 0 < backoff_factor <= 1:
            raise ValueError(f"backoff_factor: {backoff_factor} is not in (0, 1]; give 0.5")
        if growth_interval < 1:
            raise ValueError(
                f"growth_interval: {growth_interval} is not a positive number of updates; give 1 "
                "or more"
            )
        if not 0 < floor <= initial <= ceiling:
            limits = f"floor {floor} and ceiling {ceiling}"
            raise ValueError(
                f"initial: {initial} must be between {limits}, and the floor must be above 0"
            )
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        self.floor = floor
        self.ceiling = ceiling
        self.scale = _scalar(initial, "scaler.scale")
        self.good_updates = _scalar(0, "scaler.good_updates")
        self.skipped = _scalar(0, "scaler.skipped")
        self.skipped_in_row = _scalar(0, "scaler.skipped_in_row")

    @classmethod
    def off(cls) -> "DynamicLossScaler":
        """Make a scaler for float32.

        The scale is always 1, but the scaler still counts skipped updates.
        """
        return cls(initial=1.0, growth_factor=1.0, backoff_factor=1.0, ceiling=1.0)

    def state(self) -> tuple[Parameter, ...]:
        """Return the Parameters that a checkpoint must contain."""
        return (self.scale, self.good_updates, self.skipped, self.skipped_in_row)

    def adjust(self, applied: Tensor, complete: Tensor | None = None) -> Tensor:
        """Adjust the scale and the counts after an update.

        `applied` is True if the update was applied. `complete` is True (or None) if every worker
        had samples. Both are bool scalars. If `complete` is False, no state changes. Returns
        float32 [3]: the scale that this update used, and the new values of `skipped` and
        `skipped_in_row`.
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
    """Make a dynamic loss scaler if `precision` is "fp16", else a scaler with a constant scale of
    1.
    """
    if precision != "fp16":
        return DynamicLossScaler.off()
    return DynamicLossScaler(initial, growth_interval=growth_interval)
