"""Any net's inputs and outputs inside the compiled functions: arrays, tuples, dicts."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.hints import first_line
from resnet_fn.parity.traces.batches import Arrays, Tree, describe, leaves, map_tree, named_leaves


def with_inputs(net: nn.Cell, inputs: Tree) -> Any:
    """The net as a function of one argument, whatever it takes: an array, a tuple or a dict of them.

    A dict's entries go to the arguments of `construct` of the same names.

    Returns:
        The net itself where it takes one array; else a function with the methods that a step calls.
    """
    if not isinstance(inputs, dict | tuple):
        return net

    def forward(tensors: tuple[Tensor, ...]) -> Any:
        return net(*tensors)

    for name in ("set_train", "trainable_params", "get_parameters", "cells_and_names", "parameters_and_names"):
        setattr(forward, name, getattr(net, name))
    return forward


def arguments(net: nn.Cell, inputs: Tree) -> Any:
    """Inputs as tensors in the order of the net's arguments.

    Raises:
        ValueError: `construct` has no argument of such a name, or one more before the last that is given.
    """
    if isinstance(inputs, dict):
        known = list(inspect.signature(net.construct).parameters)
        if wrong := [key for key in inputs if key not in known]:
            raise ValueError(
                f"net: construct takes {', '.join(known)}, and there is an input {wrong[0]!r}; give both the same names"
            )
        keys = [key for key in known if key in inputs]
        if missing := [key for key in known[: len(keys)] if key not in inputs]:
            raise ValueError(f"net: construct needs {missing[0]!r} too; give all inputs before the last that is given")
        inputs = tuple(inputs[key] for key in keys)
    return map_tree(Tensor, inputs)


def positional(net: nn.Cell, inputs: Tree) -> tuple[Tensor, ...]:
    """Inputs as the net is called with them."""
    found = arguments(net, inputs)
    return found if isinstance(found, tuple) else (found,)


def first_call(net: nn.Cell, inputs: Tree) -> Any:
    """What a net returns for a batch, in evaluation mode; its mode is left as found.

    Raises:
        ValueError: it fails; says on which inputs, and why.
    """
    was_training = net.training
    given = positional(net, inputs)
    net.set_train(False)
    try:
        return net(*given)
    except Exception as error:
        why = f"{type(error).__name__}: {first_line(error)}"
        raise ValueError(
            f"net: it fails on {describe(inputs)} ({why}); give it the inputs that the reference takes"
        ) from error
    finally:
        net.set_train(was_training)


def record_parameter(shape: Sequence[int], name: str) -> Parameter:
    """A parameter that compiled code writes what it sees into."""
    return Parameter(Tensor(np.zeros(shape, np.float32)), name=f"record.{name}", requires_grad=False)


class Outputs:
    """Parameters that keep what a net returned, inside a compiled function.

    Args:
        like: the net's outputs on a batch, run before.
        rows: their first size.
    """

    def __init__(self, like: Any, name: str, rows: int) -> None:
        found = [(path, leaf) for path, leaf in leaves(like) if isinstance(leaf, Tensor)]
        self.names = [name for name, leaf in named_leaves(like, "logits").items() if isinstance(leaf, Tensor)]
        self.paths = tuple(path for path, _ in found)
        self.parameters = tuple(
            record_parameter((rows, *leaf.shape[1:]) if leaf.ndim else (), f"{name}.{index}")
            for index, (_, leaf) in enumerate(found)
        )

    def keeper(self) -> Callable[[Any], None]:
        """A function for compiled code: keep these outputs."""
        paths, parameters = self.paths, self.parameters

        def keep(outputs: Any) -> None:
            for index in range(len(paths)):
                value = outputs
                for key in paths[index]:
                    value = value[key]
                ops.assign(parameters[index], value.astype(mindspore.float32))

        return keep

    def arrays(self) -> Arrays:
        """What was kept last."""
        return {name: kept.asnumpy().copy() for name, kept in zip(self.names, self.parameters, strict=True)}
