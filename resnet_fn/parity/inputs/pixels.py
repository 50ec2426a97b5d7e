"""The difference of two prepared pictures, and which differences are only rounding."""

import dataclasses
import math

import numpy as np

from resnet_fn.parity.inputs.layout import Planes
from resnet_fn.parity.trace.difference import DIFFERS, OK, ROUNDING, UNDECIDED, same_numbers

TOLERANCE = 1e-5
"""The largest error that counts as equal, as a fraction of the reference's range of values: float32
arithmetic in another order."""

_MOST_LEVELS, _RMS_LEVELS, _MEAN_LEVELS = 2.0, 0.6, 0.25
"""A resize in 8 bits rounds to whole levels, some twice. So two right ones may be two of 256 levels
apart in a pixel, 0.6 in the root mean square, and 0.25 in the mean and along the values: rounding
has no direction, except where halves are rounded up or fractions are cut on the way."""

_FEW = 100  # pixels below which a mean shows nothing


@dataclasses.dataclass(frozen=True)
class PixelDifference:
    """The difference of one picture's arrays."""

    max_abs: float
    relative: float  # ‖port − reference‖ / ‖reference‖
    place: tuple[int, ...]  # where the difference is largest: row, column, channel
    port: float
    reference: float
    levels: float  # the largest difference in levels; NaN if a level's size is unknown
    verdict: str

    def values(self) -> str:
        """Return both values at the largest difference."""
        where = f" at row {self.place[0]}, column {self.place[1]}, channel {self.place[2]}"
        return f"{self.port:.6g} in the port, {self.reference:.6g} in the reference{where}"


def difference_of(
    port: Planes, reference: Planes, span: float, level: np.ndarray | None
) -> PixelDifference:
    """Compare two prepared pictures of one size.

    Args:
        port, reference: the pictures.
        span: the range of the reference's values, over all pictures.
        level: what one of 256 levels is in each channel, or None if it is unknown.
    """
    a, b = port.pixels, reference.pixels
    both = np.isfinite(a) & np.isfinite(b)
    apart = np.where(both, np.abs(a - b), np.where(same_numbers(a, b), 0.0, np.inf))
    position = np.unravel_index(int(np.argmax(apart)), apart.shape)
    largest = float(apart[position])
    size = float(np.linalg.norm(b[both]))
    relative = float(np.linalg.norm((a - b)[both])) / size if size else largest
    steps = (a - b) / level if level is not None else None
    if not both.any():
        verdict = UNDECIDED
    elif largest <= TOLERANCE * span:
        verdict = OK
    elif steps is not None and math.isfinite(largest) and _is_rounding(steps, b):
        verdict = ROUNDING
    else:
        verdict = DIFFERS
    return PixelDifference(
        max_abs=largest,
        relative=relative if math.isfinite(largest) else math.inf,
        place=tuple(int(index) for index in position),
        port=float(a[position]),
        reference=float(b[position]),
        levels=math.nan if steps is None else float(np.abs(steps).max()),
        verdict=verdict,
    )


def exceeds_rounding(levels: np.ndarray) -> bool:
    """Return whether differences in levels are larger than rounding to whole levels makes them."""
    largest = np.abs(levels).max()
    return bool(largest > _MOST_LEVELS or np.sqrt(np.mean(np.square(levels))) > _RMS_LEVELS)


def _is_rounding(steps: np.ndarray, values: np.ndarray) -> bool:
    """Return whether a difference in levels, [H, W, C], is only rounding to whole levels."""
    if exceeds_rounding(steps):
        return False
    if steps[..., 0].size < _FEW:
        return True
    for channel in range(steps.shape[2]):
        errors, of = steps[..., channel].ravel(), values[..., channel].ravel()
        spread = float(of.std())
        along = float(np.mean((of - of.mean()) * errors)) / spread if spread else 0.0
        if max(abs(float(errors.mean())), abs(along)) > _MEAN_LEVELS:
            return False
    return True
