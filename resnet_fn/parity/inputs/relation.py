"""How the port's pixels follow from the reference's, where a side prepares pictures in a way that
the search does not have.
"""

from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.inputs.causes import Cause
from resnet_fn.parity.inputs.layout import Planes

_CLOSE = 1e-3  # of the port's spread: the error of a relation that fits
_SHIFTS = 3  # pixels that are tried in each direction


def relation_of(pairs: Sequence[tuple[Planes, Planes]]) -> list[Cause]:
    """Return what turns the reference's pictures into the port's, or an empty list."""
    alike = [(here, there) for here, there in pairs if here.pixels.shape == there.pixels.shape]
    if not alike:
        return []
    for name, turned in _TURNS.items():
        moved = [(here.pixels, turned(there.pixels)) for here, there in alike]
        if any(here.shape != there.shape for here, there in moved):
            continue
        for change in _shifts():
            words = _affine_words([_cut(here, there, change) for here, there in moved])
            if words is not None:
                shift = f"shifted by {change[0]} rows and {change[1]} columns" * any(change)
                parts = [part for part in (name, shift, words) if part]
                return [Cause(f"the reference's pixels, {', '.join(parts)}", "values")]
    return []


_TURNS = {
    "": lambda pixels: pixels,
    "mirrored": lambda pixels: pixels[:, ::-1],
    "upside down": lambda pixels: pixels[::-1],
    "with height and width exchanged": lambda pixels: pixels.transpose(1, 0, 2),
}


def _shifts() -> list[tuple[int, int]]:
    places = range(-_SHIFTS, _SHIFTS + 1)
    every = [(down, right) for down in places for right in places]
    return sorted(every, key=lambda one: abs(one[0]) + abs(one[1]))


def _cut(
    here: np.ndarray, there: np.ndarray, change: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of two pictures that lie on each other after a shift of the second."""
    for axis, step in enumerate(change):
        size = here.shape[axis]
        here = np.take(here, range(max(0, step), size + min(0, step)), axis)
        there = np.take(there, range(max(0, -step), size + min(0, -step)), axis)
    return here, there


def _affine_words(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> str | None:
    """Return the affine map of channels from the second pictures to the first, or None."""
    port = np.concatenate([here.reshape(-1, here.shape[2]) for here, _ in pairs])
    reference = np.concatenate([there.reshape(-1, there.shape[2]) for _, there in pairs])
    if not (np.isfinite(port).all() and np.isfinite(reference).all()):
        return None
    inputs = np.concatenate([reference, np.ones((len(reference), 1))], 1)
    solution, *_ = np.linalg.lstsq(inputs, port, rcond=1e-9)
    spread = float(port.std())
    if not spread or np.sqrt(np.mean((inputs @ solution - port) ** 2)) > _CLOSE * spread:
        return None
    matrix, offset = solution[:-1].T, solution[-1]
    words = []
    places = np.abs(matrix).argmax(1)
    gains = matrix[np.arange(len(matrix)), places]
    if [*places] != [*range(len(matrix))]:
        words.append(f"channels in the order {', '.join(map(str, places))}")
    if not np.allclose(gains, 1, rtol=1e-3) or not np.allclose(offset / spread, 0, atol=1e-3):
        factors = ", ".join(f"{one:.4g}" for one in gains)
        words.append(f"times {factors}, plus {', '.join(f'{one:.4g}' for one in offset)}")
    return ", ".join(words)
