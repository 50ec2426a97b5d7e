"""Random numbers for arrays whose numbers are all equal: 0 and 1 hide how a net uses an array."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.parity.trace.tree import Arrays

SMALL = 0.01
"""A constant of this size or less hides what it multiplies, as the 1e-6 of a LayerScale does. Its
numbers are drawn from 0.2 to 0.8. docs/parity.md#constants
"""


def is_constant(array: np.ndarray) -> bool:
    """Return whether an array has numbers, which are all equal."""
    return bool(array.size) and bool((array == array.flat[0]).all())


def draw_constants(
    arrays: Arrays,
    trained: Collection[str],
    tied: Iterable[Sequence[str]] = (),
    positive: bool = False,
) -> Arrays:
    """Return random numbers for each untrained array of at least two equal, finite floats.

    Arrays with "mask" in the name are left out. `tied` groups names of one array. If `positive` is
    True, zeros become positive numbers, as a variance needs.
    """
    drawn = {}
    for name, array in arrays.items():
        if name not in trained and _can_be_drawn(name, array) and is_constant(array):
            drawn[name] = _drawn(name, array, positive or "var" in name.rpartition(".")[2])
    for first, *others in tied:
        if first in drawn:
            drawn |= dict.fromkeys((one for one in others if one in drawn), drawn[first])
    return drawn


def _can_be_drawn(name: str, array: np.ndarray) -> bool:
    several = array.dtype.kind == "f" and array.size > 1 and "mask" not in name.lower()
    return several and bool(np.isfinite(array.flat[0]))


def _drawn(name: str, array: np.ndarray, positive: bool) -> np.ndarray:
    """Return numbers that depend on the name, the shape and the constant only."""
    rng = np.random.default_rng([*name.encode()])
    constant = float(array.flat[0])
    if constant == 0:
        signs = 1 if positive else rng.choice([-1, 1], array.shape)
        numbers = signs * rng.uniform(0.1, 0.3, array.shape)
    elif abs(constant) < SMALL:
        numbers = np.sign(constant) * rng.uniform(0.2, 0.8, array.shape)
    else:
        numbers = constant * rng.uniform(0.5, 1.5, array.shape)
    return numbers.astype(array.dtype)


def left_out(arrays: Arrays, trained: Collection[str]) -> dict[str, float]:
    """Return the untrained constant arrays that `draw_constants` leaves out, with their number."""
    return {
        name: float(array.flat[0])
        for name, array in arrays.items()
        if name not in trained and not _can_be_drawn(name, array) and hides_its_use(array)
    }


def hides_its_use(array: np.ndarray) -> bool:
    """Return whether the numbers of an array are all equal; of a single float, whether it is 0, 1
    or −1: other numbers have a meaning of their own.
    """
    if array.dtype.kind not in "fiub" or not is_constant(array):
        return False
    return array.size > 1 or (array.dtype.kind == "f" and abs(float(array.flat[0])) in (0, 1))


def words_of_constants(drawn: Iterable[str]) -> str:
    """Return how a line names random numbers for these arrays."""
    return f"random numbers for constant arrays ({few(list(drawn))})"


def changed_arrays(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of the arrays that are other arrays in `after` than in `before`."""
    return [
        name
        for name, array in after.items()
        if array is not before.get(name) and not np.array_equal(array, before.get(name, ()))
    ]
