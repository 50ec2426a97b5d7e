"""Random numbers for arrays whose numbers are all equal: 0 and 1 hide how a net uses an array."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from resnet_fn.config.wording import first_few
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
    drawn: Arrays = {}
    for name, array in arrays.items():
        if name in trained or not _can_be_drawn(name, array) or not is_constant(array):
            continue
        leaf = name.rpartition(".")[2]
        drawn[name] = _drawn(name, array, positive or "var" in leaf)
    for first, *others in tied:
        for name in others:
            if first in drawn and name in drawn:
                drawn[name] = drawn[first]
    return drawn


def _can_be_drawn(name: str, array: np.ndarray) -> bool:
    if array.dtype.kind != "f" or array.size < 2:
        return False
    return "mask" not in name.lower() and bool(np.isfinite(array.flat[0]))


def _drawn(name: str, array: np.ndarray, positive: bool) -> np.ndarray:
    """Return numbers that depend on the name, the shape and the constant only."""
    seed = list(name.encode())
    rng = np.random.default_rng(seed)
    constant = float(array.flat[0])
    shape = array.shape
    if constant == 0:
        numbers = rng.uniform(0.1, 0.3, shape)
        signs = rng.choice([-1, 1], shape)
        numbers = numbers if positive else signs * numbers
    elif abs(constant) < SMALL:
        numbers = np.sign(constant) * rng.uniform(0.2, 0.8, shape)
    else:
        numbers = constant * rng.uniform(0.5, 1.5, shape)
    return numbers.astype(array.dtype)


def left_out(arrays: Arrays, trained: Collection[str]) -> dict[str, float]:
    """Return the untrained constant arrays that `draw_constants` leaves out, with their number."""
    constants = {}
    for name, array in arrays.items():
        if name in trained or _can_be_drawn(name, array):
            continue
        if hides_its_use(array):
            constants[name] = float(array.flat[0])
    return constants


def hides_its_use(array: np.ndarray) -> bool:
    """Return whether the numbers of an array are all equal; of a single float, whether it is 0, 1
    or −1: what leaves out another number computes other results. A single integer or bool, which is
    mostly a counter or a flag, hides nothing here.
    """
    kind = array.dtype.kind
    if kind not in "fiub" or not is_constant(array):
        return False
    if array.size > 1:
        return True
    return kind == "f" and abs(float(array.flat[0])) in (0, 1)


def words_of_constants(drawn: Iterable[str]) -> str:
    """Return how a line names random numbers for these arrays."""
    return f"random numbers for constant arrays ({first_few(list(drawn))})"


def changed_arrays(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of the arrays that are other arrays in `after` than in `before`."""
    changed = []
    for name, array in after.items():
        first = before.get(name, np.zeros(0))
        if array is not first and not np.array_equal(array, first):
            changed.append(name)
    return changed
