"""How the port's pixels follow from the reference's, where a side prepares pictures in a way that
the search does not have.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from resnet_fn.parity.inputs.causes import Cause
from resnet_fn.parity.inputs.fitting import affine_map
from resnet_fn.parity.inputs.layout import Planes

_CLOSE = 1e-3  # of the port's spread: the error of a relation that fits
_SHIFTS = 2  # pixels that are tried in each direction
_PICTURES = 3  # so many pictures decide
_PIXELS = 2000  # about so many pixels of a picture decide

Pair = tuple[np.ndarray, np.ndarray]  # the port's pixels and the reference's, [H, W, C]

_TURNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda pixels: pixels,
    "mirrored": lambda pixels: pixels[:, ::-1],
    "upside down": lambda pixels: pixels[::-1],
    "with height and width exchanged": lambda pixels: pixels.transpose(
        1,
        0,
        2,
    ),
}


def relation_of(pairs: Sequence[tuple[Planes, Planes]]) -> list[Cause]:
    """Return what turns the reference's pictures into the port's, or an empty list."""
    alike = [
        (port.pixels, reference.pixels)
        for port, reference in pairs
        if port.pixels.shape == reference.pixels.shape and reference.has_texture
    ]
    for name, turned in _TURNS.items() if alike else ():
        moved = [(port, turned(reference)) for port, reference in alike[:_PICTURES]]
        if any(port.shape != reference.shape for port, reference in moved):
            continue
        for down, right in _shifts():
            change = _affine_words(
                [
                    _cut(
                        port,
                        reference,
                        down,
                        right,
                    )
                    for port, reference in moved
                ]
            )
            if change is None:
                continue
            shift = f"shifted by {down} rows and {right} columns" if down or right else ""
            parts = [part for part in (name, shift, change) if part]
            return [Cause(f"the reference's pixels, {', '.join(parts)}", "values")]
    return []


def _shifts() -> Iterator[tuple[int, int]]:
    """Yield rows and columns of a shift, none first."""
    yield 0, 0
    for down in range(-_SHIFTS, _SHIFTS + 1):
        for right in range(-_SHIFTS, _SHIFTS + 1):
            if down or right:
                yield down, right


def _cut(
    port: np.ndarray,
    reference: np.ndarray,
    down: int,
    right: int,
) -> Pair:
    """Return some pixels of the parts that lie on each other after a shift of the second."""
    height, width = port.shape[:2]
    step = max(1, round((height * width / _PIXELS) ** 0.5))
    rows = np.arange(
        _SHIFTS,
        height - _SHIFTS,
        step,
    )
    columns = np.arange(
        _SHIFTS,
        width - _SHIFTS,
        step,
    )
    return port[np.ix_(rows, columns)], reference[np.ix_(rows - down, columns - right)]


def _affine_words(pairs: Sequence[Pair]) -> str | None:
    """Return the affine map of channels from the second pictures to the first, or None."""
    channels = pairs[0][0].shape[2]
    port = np.concatenate([pixels.reshape(-1, channels) for pixels, _ in pairs])
    reference = np.concatenate([pixels.reshape(-1, channels) for _, pixels in pairs])
    spread = float(port.std()) if port.size else 0.0
    if not spread or not np.isfinite(port).all() or not np.isfinite(reference).all():
        return None
    solution, errors = affine_map(reference, port)
    if np.sqrt(np.mean(errors**2)) > _CLOSE * spread:
        return None
    matrix = solution[:-1].T
    offset = solution[-1]
    changes = []
    places = np.abs(matrix).argmax(1)
    gains = matrix[np.arange(len(matrix)), places]
    if places.tolist() != [*range(len(matrix))]:
        changes.append(f"channels in the order {', '.join(map(str, places))}")
    is_same = (
        np.allclose(
            gains,
            1,
            rtol=_CLOSE,
        )
        and np.abs(offset).max() <= _CLOSE * spread
    )
    if not is_same:
        factors = ", ".join(f"{gain:.4g}" for gain in gains)
        added = ", ".join(f"{number:.4g}" for number in offset)
        changes.append(f"times {factors}, plus {added}")
    return ", ".join(changes)
