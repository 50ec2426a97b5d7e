"""What both sides share: roles of parameters, notes, and the checks of losses and outputs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from resnet_fn.config.hints import few, first_line
from resnet_fn.parity.trace.data import STATISTICS
from resnet_fn.parity.trace.difference import CEILING
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.limits import SIGMAS
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.returned import Path, is_array, named_outputs, returned
from resnet_fn.parity.trace.tree import Tree, named_leaves

_LEVELS = (
    2.0,
    8.0,
    32.0,
)  # widths of a tie, in units of the reference's error; the port's may be larger


def flip_widths(layers: Sequence[Layer]) -> list[float]:
    """Return widths of ties for `flip_ties`.

    A tie is a ReLU input so near to 0 that rounding may change its sign.
    """
    roundings = [one.output_rounding for one in layers]
    sure = [rounding for rounding in roundings if rounding < CEILING]
    own = SIGMAS * max(sure, default=0.0)
    return [level * own for level in _LEVELS]


def parameter_roles(
    parameters: Sequence[tuple[str, Any]], untrained: Iterable[str]
) -> dict[str, Any]:
    """Return the fields `tied`, `trainable` and `constants` of a `Trace`, for either framework.

    `parameters` has pairs (name, parameter), with a shared parameter under each of its names.
    `untrained` has the names of arrays that no optimizer updates.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in parameters:
        of_parameter = names.setdefault(id(parameter), [])
        of_parameter.append(name)
    groups = names.values()
    return {
        "tied": [tuple(group) for group in groups if len(group) > 1],
        "trainable": [name for name, parameter in parameters if parameter.requires_grad],
        "constants": [name for name in untrained if name.rpartition(".")[2] not in STATISTICS],
    }


def dropout_notes(
    of_reference: bool, dropped: Sequence[tuple[str, str, float]], plan: Plan
) -> list[str]:
    """Return a line for the dropouts of one side that are switched off, and one for the recipe's.

    `dropped` has tuples (layer, attribute, probability).
    """
    side = "the reference" if of_reference else "the net"
    words = [f"{name}: {attribute}={share:g}" for name, attribute, share in dropped]
    asked = [f"{name}={share:g}" for name, share in plan.dropout.items()]
    notes = []
    if words:
        notes.append(f"dropout is 0 in {side}: {few(words)}")
    if asked:
        notes.append(f"dropout is 0 on both sides; the recipe has {few(asked)}")
    return notes


def what_failed(side: str, inputs: Tree, error: Exception, fix: str) -> ValueError:
    """Return a ValueError for a net that fails on its inputs with `error`.

    The message lists the inputs.
    """
    given = named_leaves(inputs, "inputs").items()
    arrays = ", ".join(f"{name} {x.dtype} {list(x.shape)}" for name, x in given)
    fault = f"{type(error).__name__}: {first_line(error)}"
    return ValueError(f"{side}: it fails on {arrays} ({fault}); {fix}")


def loss_of_logits(
    side: str, like: Any, loss: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """Return the recipe's loss as a function of a net's whole outputs and labels. `like` is an
    example of the outputs.

    The loss is computed from the output "logits", the only output, or the first output of a
    MindSpore net's tuple.
    """
    paths = [path for path, leaf in returned(like) if is_array(leaf)]
    named = [*filter(_is_logits, paths)]
    is_unclear = len(paths) != 1 and not named
    in_order = side == "the net" and isinstance(like, tuple | list)
    if is_unclear and not (paths and in_order):
        names = ", ".join(map(str.strip, named_outputs(like, ""))) or "no tensors"
        raise ValueError(
            f"loss of {side}: the outputs are {names}; give --loss FILE:FUNCTION, or return logits "
            "alone"
        )
    path = [*named, *paths][0]

    def of_logits(outputs: Any, labels: Any) -> Any:
        for key, is_attribute in path:
            outputs = getattr(outputs, key) if is_attribute else outputs[key]
        return loss(outputs, labels)

    return of_logits


def _is_logits(path: Path) -> bool:
    return len(path) == 1 and path[0][0] == "logits"


def check_scalar(side: str, value: Any, tensor: Any) -> None:
    """Raise ValueError if a loss is not one number in a tensor.

    `tensor` is the framework's tensor class.
    """
    if not isinstance(value, tensor) or np.prod(value.shape) != 1:
        got = f"shape {list(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise ValueError(
            f"loss of {side}: it must return one number, but it returns {got}; return the batch's "
            "mean"
        )
