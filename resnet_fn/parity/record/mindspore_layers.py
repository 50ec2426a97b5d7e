"""Run a MindSpore net and its layers, and record what each layer computes."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn

from resnet_fn.parity.record.attributes import attributes_of
from resnet_fn.parity.record.cells import as_before
from resnet_fn.parity.record.common import parameter_roles
from resnet_fn.parity.record.layers import keeping_inputs, record_layers, recorded_layers
from resnet_fn.parity.record.mindspore_cell import (
    MissingKernelError,
    array_of,
    call,
    compiler,
    explained,
    first_call,
    outputs_of,
    run_in,
)
from resnet_fn.parity.record.probes import Caller, compute_probes
from resnet_fn.parity.record.responses import first_or_whole
from resnet_fn.parity.trace.data import Probes
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.tree import Tree
from resnet_fn.runtime import process


def layers_of(net: nn.Cell, inputs: Tree, train: bool) -> list[Layer]:
    """Run a net on a batch, and record the inputs and outputs of its layers."""

    def run() -> None:
        net.set_train(train)
        call(net, inputs)

    with as_before(net):
        return record_layers(net, run)


def probes_of(
    net: nn.Cell,
    inputs: Tree,
    executions: Sequence[Layer],
    without_dropout: Callable[[], AbstractContextManager[None]],
) -> Probes:
    """Run the net and its layers on probes (changed inputs), uncompiled.

    Runs in training mode are made in the context `without_dropout`.
    """

    def train(tree: Tree) -> Any:
        with without_dropout():
            return first_call(net, tree, True)

    caller = Caller(
        array_of,
        Tensor,
        outputs_of,
        explained,
        (MissingKernelError, MemoryError),
    )
    with run_in("pynative"), as_before(net):
        net.set_train(False)
        return compute_probes(
            [*recorded_layers(net)],
            lambda tree: call(net, tree),
            train,
            inputs,
            executions,
            caller,
        )


def inputs_of_layer(net: nn.Cell, name: str, inputs: Tree) -> tuple[Any, Any]:
    """Return the arguments, positional and by keyword, of a cell's first call in training mode."""
    calls: list[tuple[Any, Any]] = []

    def keep(cell: nn.Cell, args: Any, kwargs: Any) -> None:
        calls.append((args, kwargs))

    handle = dict(net.cells_and_names())[name].register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with as_before(net):
            net.set_train(True)
            call(net, inputs)
    finally:
        handle.remove()
    return calls[0]


def running_layer(
    cell: nn.Cell,
    arguments: tuple[Any, Any],
    off: Callable[[], AbstractContextManager[None]],
    as_built: Callable[[], AbstractContextManager[None]],
    compiled: bool,
    is_net: bool,
) -> Callable[[], np.ndarray]:
    """Return a function that runs a cell in training mode, and returns its output
    (`first_or_whole`).

    `arguments` are positional and by keyword. Each run is made in a context in which all dropout of
    the net is off and, inside of it, in one in which dropout is as built. With `compiled`, the cell
    is compiled if it can be.
    """
    args, kwargs = arguments
    construct = cell
    keeping: Callable[..., AbstractContextManager[None]] = keeping_inputs
    if (jit := compiler()) and compiled and _is_compilable(kwargs):
        construct, keeping = jit(_Alone(cell).construct), _calling_pre_hooks

    def run() -> np.ndarray:
        with (
            off(),
            as_built(),
            as_before(cell),
            process.ending_mixed_precision(),
        ):
            cell.set_train(True)  # pre-hooks may read the mode
            with keeping(cell, lambda: arguments):
                outputs = outputs_of(construct(*args, **kwargs))
            return first_or_whole(outputs, is_net)

    return run


def _is_compilable(kwargs: dict[str, Any]) -> bool:
    """Return whether a compiled function takes these keyword arguments. In a compiled net, others
    such as objects are constants.
    """
    plain = (bool, int, float, str, Tensor, type(None))
    return all(
        isinstance(item, plain)
        for value in kwargs.values()
        for item in (value if isinstance(value, tuple | list) else [value])
    )


@contextlib.contextmanager
def _calling_pre_hooks(cell: nn.Cell, given: Callable[[], tuple[Any, Any]]) -> Iterator[None]:
    """Call a cell's pre-hooks with arguments that `given` makes, and let the cell have none inside
    a `with` block, because compiled code would apply them to inputs that are from after them.

    The hooks may set what the cell reads.
    """
    hooks = cell._forward_pre_hook
    own = dict(hooks)
    with keeping_inputs(cell, given):
        for key, hook in hooks.items():
            has_kwargs = key in cell._forward_pre_hook_with_kwargs
            hook(cell, *given()[: 1 + has_kwargs])
    hooks.clear()
    try:
        yield
    finally:
        hooks.update(own)


class _Alone(nn.Cell):
    """Calls a layer, so that it can be compiled without its net."""

    def __init__(self, layer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # parameters keep their names
        self.layer = layer

    def construct(self, *inputs: Any, **named: Any) -> Any:
        """Return the layer's outputs."""
        return self.layer(*inputs, **named)


def roles_of(net: nn.Cell) -> dict[str, Any]:
    """Return which parameters are shared, trained or constant, and the constants in attributes, as
    fields of a `Trace`.
    """
    named = list(_all_names(net, ""))
    untrained = [name for name, parameter in named if not parameter.requires_grad]
    return {
        **parameter_roles(named, untrained),
        "attributes": attributes_of(net.cells_and_names()),
    }


def _all_names(cell: nn.Cell, path: str) -> Iterator[tuple[str, Parameter]]:
    """Yield every path to a parameter below a cell, with the parameter.

    `path` is the path of the cell itself.
    """
    for leaf, parameter in cell.parameters_and_names(expand=False):
        yield f"{path}.{leaf}" if path else leaf, parameter
    for part, inner in cell._cells.items():
        if inner is not None:
            yield from _all_names(inner, f"{path}.{part}" if path else part)
