"""Run a MindSpore net and its layers, and record what each layer computes."""

from collections.abc import Iterator, Sequence
from typing import Any

from mindspore import Parameter, Tensor, nn

from resnet_fn.parity.record.attributes import attributes_of
from resnet_fn.parity.record.cells import record_cell, unchanged
from resnet_fn.parity.record.common import parameter_roles
from resnet_fn.parity.record.layers import recorded_layers
from resnet_fn.parity.record.mindspore_cell import (
    MissingKernelError,
    array_of,
    call,
    explained,
    first_call,
    outputs_of,
    run_in,
)
from resnet_fn.parity.record.probes import Caller, compute_probes, same_attributes
from resnet_fn.parity.trace.data import Probes
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.tree import Tree


def layers_of(net: nn.Cell, inputs: Tree, train: bool) -> list[Layer]:
    """Run a net on a batch, and record the inputs and outputs of its layers."""
    return record_cell(net, lambda: call(net, inputs), train)


def probes_of(net: nn.Cell, inputs: Tree, executions: Sequence[Layer]) -> Probes:
    """Run the net and its layers on probes (changed inputs), uncompiled."""
    caller = Caller(
        array_of,
        Tensor,
        outputs_of,
        explained,
        (MissingKernelError, MemoryError),
    )
    net.set_train(False)
    cells = [cell for _, cell in net.cells_and_names()]
    with run_in("pynative"), unchanged(net.get_parameters()), same_attributes(cells):
        return compute_probes(
            [*recorded_layers(net)],
            lambda tree: call(net, tree),
            lambda tree: first_call(net, tree, True),
            inputs,
            executions,
            caller,
        )


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
