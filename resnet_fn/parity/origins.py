"""What only one side adds to a layer's input or output; and how a search for a cause may fail."""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.parity.layers.difference import relative_error
from resnet_fn.parity.layers.layer import Layer

Arrays = Mapping[str, np.ndarray]

FITS = 1e-3  # relative error up to which a candidate explains a difference
_SOME = 4096  # how many numbers of an array are compared
_LEAST = 8  # fewer fit anything
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


def added_causes(before: Sequence[Layer], ours: Layer, theirs: Layer, weights: Arrays, inputs: Arrays) -> list[str]:
    """What one side alone adds to the input of the first layer that differs; to its output if its input agrees.

    Args:
        before: our layers that ran before it, in execution order.
        ours, theirs: the layer, both sides' arrays in our axes.
        weights: our weights that belong to it or to no layer, by name.
        inputs: the net's.
    """
    if {ours.kind, theirs.kind} == {"attention", "dense"}:  # a whole and its last part have other inputs
        return []
    for what, a, b in (("input", ours.input, theirs.input), ("output", ours.output, theirs.output)):
        if a is not None and b is not None and (a.shape != b.shape or relative_error(a, b) > FITS):
            if a.shape != b.shape or a.size < _LEAST:
                return []
            given = {} if what == "input" or ours.input is None else {"its input": ours.input}
            cause = _added(a, b, {**given, **sources_of(before), **inputs, **weights})
            return [f"its {what} {cause}"] if cause else []
    return []


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


def _places(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    size = math.prod(shape)
    return np.unravel_index(np.linspace(0, size - 1, min(size, _SOME)).astype(np.int64), shape)


def sources_of(layers: Sequence[Layer]) -> dict[str, np.ndarray]:
    """Arrays that later layers may have been given: recurrent layers' states, all outputs, all inputs."""
    arrays = {f"{layer.title}'s {'hc'[i]}": state for layer in layers for i, state in enumerate(layer.states)}
    arrays |= {f"{layer.title}'s output": layer.output for layer in layers if layer.output is not None}
    return arrays | {f"{layer.title}'s input": layer.input for layer in layers if layer.input is not None}
