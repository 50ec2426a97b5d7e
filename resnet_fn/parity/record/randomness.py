"""Find layers that draw random numbers although dropout is 0."""

from collections.abc import Callable, Mapping, Sequence

from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.tree import Arrays

_DRAWN = 1e-6  # calls that differ by a larger relative error are random; kernels repeat

# A net is called so often again. In few calls, drop-path may drop nothing.
_CALLS = 8


def is_random(call: Callable[[], Arrays]) -> bool:
    """Return whether repeated calls give different arrays."""
    first = call()
    return any(is_apart(first, call()) for _ in range(_CALLS))


def is_apart(first: Arrays, others: Arrays) -> bool:
    """Return whether any two arrays of the same name differ by more than kernels do."""
    for name, value in others.items():
        error = relative_error(first[name], value)
        if error > _DRAWN:
            return True
    return False


def other_draws(layers: Sequence[Layer], call: Callable[[], list[Layer]]) -> list[Layer]:
    """Return the executions of layers with other random numbers, of repeated calls the first in
    which an output is another one.
    """
    for _ in range(_CALLS):
        again = call()
        others = {layer.title: layer for layer in again}
        if not all(_repeats(layer, others, "output") for layer in layers):
            break
    return again


def _repeats(layer: Layer, others: Mapping[str, Layer], what: str) -> bool:
    """Return whether the input or output of an execution is the same in `others`."""
    other = others.get(layer.title)
    if other is None:
        return False
    value = getattr(layer, what)
    if value is None:
        return True
    error = relative_error(value, getattr(other, what))
    return not error > _DRAWN


def cut_random(layers: list[Layer], again: Sequence[Layer]) -> str:
    """Delete the executions from the first random output on, or all if none is found.

    Return words for the source.
    """
    others = {layer.title: layer for layer in again}
    changed = [index for index, one in enumerate(layers) if not _repeats(one, others, "output")]
    drawing = [layers[index] for index in changed if _repeats(layers[index], others, "input")]
    del layers[min(changed, default=0) :]  # if no output is random, the source is unknown
    if not drawing:
        return "code between its layers, or the loss,"
    source = drawing[0]
    return f"{source.title} ({source.class_name})"
