"""How each side made an array from earlier ones: each simple way is computed, and named only if it fits.

A hint names the way that gives our array and the one that gives the reference's, or an addend that only one side has.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.parity.layers.difference import relative_error
from resnet_fn.parity.layers.layer import Layer

Way = TypeVar("Way")
Arrays = Mapping[str, np.ndarray]

FITS = 1e-3  # relative error up to which a candidate explains a difference
_SOME = 4096  # how many numbers of an array are compared
_LEAST = 8  # fewer fit anything
_LARGE = 2**22  # products of so many numbers take too long
_FAILED = "the search for a cause failed"


def attempt(search: Callable[..., list[str]], *arguments: Any) -> list[str]:
    """What a search for a cause finds, in words. If it fails, that costs the hint, not the verdict."""
    try:
        return search(*arguments)
    except Exception as error:
        return [f"{_FAILED} ({type(error).__name__}: {first_line(error)}); the verdict does not depend on it"]


def first_hints(searches: Iterable[Callable[[Any], list[str]]], case: Any) -> list[str]:
    """What the first search finds that finds anything; else the errors of those that failed."""
    errors: list[str] = []
    for search in searches:
        hints = attempt(search, case)
        if hints and not hints[0].startswith(_FAILED):
            return hints
        errors += hints
    return errors


def here_and_there(
    ways: Iterable[tuple[Way, np.ndarray]],
    ours: np.ndarray,
    theirs: np.ndarray,
    fits: float = FITS,
    turned: bool = False,
) -> tuple[Way, Way] | None:
    """The first way that gives our array and the first that gives the reference's; None if one is missing or both
    are the same.

    With `turned` an array's axes may have another order than a way gives them.
    """
    here = there = None
    for way, value in ways:
        here = way if here is None and _is(ours, value, fits, turned) else here
        there = way if there is None and _is(theirs, value, fits, turned) else there
        if here is not None and there is not None:
            return None if here == there else (here, there)
    return None


def _is(array: np.ndarray, value: np.ndarray, fits: float, turned: bool) -> bool:
    if array.size != value.size:
        return False
    orders = [array.reshape(value.shape)]
    if turned:
        moved = (array.transpose(order) for order in itertools.permutations(range(array.ndim)))
        orders += [one for one in moved if one.shape == value.shape]
    places = _places(value.shape)
    return any(relative_error(one[places], value[places]) < fits for one in orders)


def _places(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    size = math.prod(shape)
    return np.unravel_index(np.linspace(0, size - 1, min(size, _SOME)).astype(np.int64), shape)


def sources_of(layers: Sequence[Layer]) -> dict[str, np.ndarray]:
    """Arrays that later layers may have been given: recurrent layers' states, all outputs, all inputs."""
    arrays = {f"{layer.title}'s {'hc'[i]}": state for layer in layers for i, state in enumerate(layer.states)}
    arrays |= {f"{layer.title}'s output": layer.output for layer in layers if layer.output is not None}
    return arrays | {f"{layer.title}'s input": layer.input for layer in layers if layer.input is not None}


def origin_causes(ours: np.ndarray, theirs: np.ndarray, sources: Arrays, weights: Arrays) -> list[str]:
    """Why an array that is made between layers differs: by a choice, an order of axes, a sum, a product.

    `sources` are the arrays that both sides may have made it of, `weights` the matrices that may be factors, by name.
    """
    if ours.size < _LEAST:
        return []
    if pair := here_and_there(_picks(sources, ours.size), ours, theirs):
        return [f"is {pair[0]} here, {pair[1]} in the reference"]
    if ours.shape == theirs.shape and (cause := _added(ours, theirs, sources)):
        return [cause]
    pair = here_and_there(_products(sources, weights), ours, theirs)
    return [f"is {pair[0]} here, {pair[1]} in the reference"] if pair else []


def _picks(sources: Arrays, size: int) -> Iterator[tuple[str, np.ndarray]]:
    """Each source in each order of its axes, and its first, last and mean along one; those of `size` numbers."""
    for name, source in sources.items():
        if source.size == size:
            for order in itertools.permutations(range(1, source.ndim)):
                turned = "" if list(order) == sorted(order) else f".transpose(0, {', '.join(map(str, order))})"
                yield name + turned, source.transpose(0, *order) if source.ndim else source
        for axis, length in enumerate(source.shape):
            if length > 1 and source.size == size * length:
                yield f"{name}[{':, ' * axis}0]", source.take(0, axis)
                yield f"{name}[{':, ' * axis}-1]", source.take(-1, axis)
                yield f"{name}.mean({axis})", source.mean(axis)


def _added(ours: np.ndarray, theirs: np.ndarray, sources: Arrays) -> str:
    """Is the difference a multiple of one source, or is one source added instead of another?"""
    places = _places(ours.shape)
    columns_by_name = {"it": ours[places]}
    for name, source in sources.items():
        for array in (source[:, None, None], source) if source.ndim == 1 else (source,):  # a bias, of channels too
            with contextlib.suppress(ValueError):
                columns_by_name[name] = np.broadcast_to(array, ours.shape)[places].astype(np.float64)
    names, columns, gap = list(columns_by_name), np.stack(list(columns_by_name.values())), (theirs - ours)[places]
    square, along, common = float(gap @ gap), columns @ gap, columns @ columns.T
    squares = np.diagonal(common)
    times = along / np.where(squares > 0, squares, 1.0)
    singles = square - times * along <= FITS**2 * square
    if singles.any():
        name, share = names[singles.argmax()], float(times[singles.argmax()])
        if name == "it":
            return f"is {1 + share:.4g} times this in the reference"
        amount = "" if math.isclose(abs(share), 1, rel_tol=FITS) else f"{abs(share):.4g} times "
        has, lacks = ("in the reference", "here") if share > 0 else ("here", "in the reference")
        return f"has {amount}{name} added {has} and not {lacks}"
    # |gap − a + b|² for each pair of sources: a is added in the reference, b here.
    left = square + squares[:, None] + squares - 2 * (common + along[:, None] - along)
    pairs = [(a, b) for a, b in np.argwhere(left <= FITS**2 * square) if a and b]
    return f"has {names[pairs[0][1]]} added here, {names[pairs[0][0]]} in the reference" if pairs else ""


def _products(sources: Arrays, weights: Arrays) -> Iterator[tuple[str, np.ndarray]]:
    """Sources times a weight, plus its bias: the weight as it is, transposed, or reshaped instead of transposed."""
    for name, weight in weights.items():
        bias = sources.get(name.removesuffix("weight") + "bias", np.zeros(()))
        reshaped = weight.reshape(weight.shape[::-1])
        words = f"{name} reshaped to {list(reshaped.shape)}"
        ways = {name: weight, f"{name} transposed": weight.T, words: reshaped, f"{words} and transposed": reshaped.T}
        for way, matrix in ways.items():
            for source, x in sources.items():
                if x.shape[-1:] == matrix.shape[:1] and x.size * matrix.shape[1] < _LARGE:
                    yield f"{source} times {way}", x @ matrix + (bias if bias.shape == matrix.shape[1:] else 0.0)
