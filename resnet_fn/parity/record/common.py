"""What both sides share: roles of parameters, notes, and the checks of losses and outputs."""

import sysconfig
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.wording import first_few, first_line, words_of
from resnet_fn.parity.trace.data import STATISTICS_NAMES
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.returned import is_array, named_outputs, plain, returned
from resnet_fn.parity.trace.tree import Tree, named_leaves


def parameter_roles(
    parameters: Sequence[tuple[str, Any]], untrained: Iterable[str]
) -> dict[str, Any]:
    """Return the fields `tied`, `trainable` and `constants` of a `Trace`, for either framework.

    `parameters` has pairs (name, parameter), with a shared parameter under each of its names.
    `untrained` has the names of arrays that no optimizer updates.
    """
    names: dict[int, list[str]] = {}
    trainable = []
    for name, parameter in parameters:
        of_parameter = names.setdefault(id(parameter), [])
        of_parameter.append(name)
        if parameter.requires_grad:
            trainable.append(name)
    groups = names.values()
    return {
        "tied": [tuple(group) for group in groups if len(group) > 1],
        "trainable": trainable,
        "constants": [
            name for name in untrained if name.rpartition(".")[2] not in STATISTICS_NAMES
        ],
    }


def dropout_notes(
    of_reference: bool, dropped: Sequence[tuple[str, str, float]], plan: Plan
) -> list[str]:
    """Return a line for the dropouts of one side that are switched off, and one for the recipe's.

    `dropped` has tuples (layer, attribute, probability).
    """
    side = "the reference" if of_reference else "the net"
    rates = []
    for name, attribute, share in dropped:
        rates.append(f"{name}: {attribute}={share:g}")
    asked = []
    for name, share in plan.dropout.items():
        asked.append(f"{name}={share:g}")
    notes = []
    if rates:
        notes.append(f"dropout is 0 in {side}: {first_few(rates)}")
    if asked:
        notes.append(f"dropout is 0 on both sides; the recipe has {first_few(asked)}")
    return notes


# where no code of the user's is
_INSTALLED = (str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"))


def is_of_user(file: str) -> bool:
    """Return whether a file of source is the user's: not of this package, Python or another
    package.
    """
    return not file.startswith((*_INSTALLED, "<")) and "-packages" not in Path(file).as_posix()


def place_of(error: BaseException) -> str:
    """Return " at net.py:12" for the last line of the user's code in an error's traceback, or
    "".
    """
    lines = [
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if is_of_user(frame.filename)
    ]
    return f" at {lines[-1]}" if lines else ""


def words_with_place(error: BaseException) -> str:
    """Return an error's class, the user's line that raised it, and the first line of its text."""
    return f"{type(error).__name__}{place_of(error)}: {first_line(error)}"


def what_failed(
    side: str, inputs: Tree, error: Exception, fix: str, train: bool = False
) -> ValueError:
    """Return a ValueError for a net that fails on its inputs with `error`.

    The message lists the inputs, and has the line of the user's code that fails.
    """
    named = named_leaves(inputs, "inputs").items()
    arrays = ", ".join(f"{name} {x.dtype} {list(x.shape)}" for name, x in named)
    fault = words_of(error)
    it = "in training mode it" if train else "it"
    return ValueError(f"{side}: {it} fails on {arrays}{place_of(error)} ({fault}); {fix}")


def loss_of_logits(
    side: str, like: Any, loss: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """Return the recipe's loss as a function of a net's whole outputs and labels. `like` is an
    example of the outputs.

    The loss is computed from the output "logits", the only output, or the first output of a
    MindSpore net's tuple.
    """
    paths = [path for path, leaf in returned(like) if is_array(leaf)]
    named = [path for path in paths if len(path) == 1 and path[0][0] == "logits"]
    is_unclear = len(paths) != 1 and not named
    takes_first = side == "the net" and isinstance(like, tuple | list)
    if is_unclear and not (paths and takes_first):
        output_names = [name.strip() for name in named_outputs(like, "")]
        names = ", ".join(output_names) or "no tensors"
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


def mean_size(like: Any) -> Callable[[Any, Any], Any]:
    """Return the loss of a task that trains nothing: the sum of the mean sizes of all outputs.

    `like` is an example of the outputs. The labels are not used.
    """
    paths = tuple(
        plain(path)
        for path, leaf in returned(like)
        if is_array(leaf) and hasattr(leaf, "float") and "complex" not in str(leaf.dtype).lower()
    )

    # compiled by MindSpore
    def of_outputs(outputs: Any, labels: Any) -> Any:
        total = 0.0
        for index in range(len(paths)):
            value = outputs
            for key, is_attribute in paths[index]:
                value = getattr(value, key) if is_attribute else value[key]
            total = total + value.float().abs().mean()
        return total

    return of_outputs


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
