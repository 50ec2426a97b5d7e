"""Find layers that draw random numbers although dropout is 0."""

from collections.abc import Callable, Mapping

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


def before_random(layers: list[Layer], call: Callable[[], list[Layer]]) -> tuple[list[Layer], str]:
    """Return the executions before the first random output, and words for what draws.

    `call` runs the layers again, with other random numbers. If all outputs repeat, what draws is
    unknown, and no execution is returned.
    """
    for _ in range(_CALLS):
        others = {layer.title: layer for layer in call()}
        changed = [
            index for index, layer in enumerate(layers) if not _repeats(layer, others, "output")
        ]
        if changed:
            break
    kept = layers[: min(changed, default=0)]
    for index in changed:
        drawing = layers[index]
        if _repeats(drawing, others, "input"):
            return kept, f"{drawing.title} ({drawing.class_name})"
    return kept, "code between its layers, or the loss,"


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
