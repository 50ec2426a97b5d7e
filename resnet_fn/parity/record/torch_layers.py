"""Run a torch module and its layers, and record what each layer computes."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.record.common import parameter_roles
from resnet_fn.parity.record.layers import keeping_inputs, record_layers, recorded_layers
from resnet_fn.parity.record.probes import Caller, compute_probes
from resnet_fn.parity.record.responses import first_or_whole
from resnet_fn.parity.record.rounding import largest_error
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_decisions import Deciding, Decisions
from resnet_fn.parity.record.torch_modes import in_float64
from resnet_fn.parity.record.torch_module import (
    array_of,
    call,
    counts_of_batches,
    dtype_of,
    in_precision,
    layer_by_layer,
    map_tensors,
    outputs_of,
    tensors,
)
from resnet_fn.parity.record.torch_ties import ReluInputs
from resnet_fn.parity.trace.data import Probes
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.limits import CEILING
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.tree import Tree


def layers_of(module: torch.nn.Module, inputs: Tree, train: bool) -> list[Layer]:
    """Run a copy of a module on a batch, and record the inputs and outputs of its layers."""
    return _layers_of(copied(module), inputs, train)


def _layers_of(module: torch.nn.Module, inputs: Tree, train: bool) -> list[Layer]:
    """Return what `layers_of` returns. The module changes."""
    module, dtype = module.train(train), dtype_of(module)

    def run() -> None:
        with torch.no_grad():
            call(module, tensors(inputs, dtype))

    return record_layers(module, run)


def layers_with_rounding(
    reference: torch.nn.Module, inputs: Tree, train: bool, precision: str
) -> tuple[list[Layer], list[float]]:
    """Return all layers' executions, and the rounding of the input of each call of a ReLU.

    The executions are those in float32. The rounding of inputs and outputs is the relative error of
    a run in `precision` against float64, which decides as float32 does. It is infinite if the
    shapes differ. That of a ReLU's input is of float32 in any case, and at most the largest one below
    `CEILING`.
    """
    decisions, relus = Decisions(), ReluInputs()
    with Deciding(decisions.note), relus.keep():
        layers = layers_of(reference, inputs, train)
    decisions.restart()
    with Deciding(decisions.kept), relus.compare(), in_float64():
        wide = in_precision(copied(reference), torch.float64)
        exact = {layer.title: layer for layer in _layers_of(wide, inputs, train)}
    with torch.autocast("cpu", torch.float16, enabled=precision == "float16"):
        measured = layers_of(reference, inputs, train) if precision == "float16" else layers
    for layer, measured_layer in zip(layers, measured, strict=True):
        other = exact.get(layer.title, layer)  # a layer may be skipped at random
        for what in ("input", "output"):
            if getattr(measured_layer, what) is not None and getattr(other, what) is not None:
                setattr(
                    layer,
                    f"{what}_rounding",
                    largest_error(getattr(measured_layer, what), getattr(other, what)),
                )
    largest = max((error for error in relus.roundings if error < CEILING), default=0.0)
    return layers, [min(error, largest) for error in relus.roundings]


def inputs_of_layer(module: torch.nn.Module, name: str, inputs: Tree) -> tuple[Any, Any]:
    """Return the arguments, positional and by keyword, of a layer's first call in training mode."""
    module, calls = copied(module).train(), list[tuple[Any, Any]]()

    def keep(layer: torch.nn.Module, args: Any, kwargs: Any) -> None:
        calls.append(map_tensors(torch.Tensor.clone, (args, kwargs)))

    module.get_submodule(name).register_forward_pre_hook(keep, with_kwargs=True)
    with torch.no_grad():
        call(module, tensors(inputs, dtype_of(module)))
    return calls[0]


def running_layer(
    layer: torch.nn.Module, arguments: tuple[Any, Any], is_net: bool
) -> Callable[[], np.ndarray]:
    """Return a function that runs a layer, or the net, in training mode, and returns its output
    (`first_or_whole`).

    The layer is copied now, with its present dropout rates, and again for each run. `arguments` are
    positional and by keyword.
    """
    layer = copied(layer).train()

    def given() -> Any:
        return map_tensors(torch.Tensor.clone, arguments)

    def run() -> np.ndarray:
        args, kwargs = given()
        alone = copied(layer)
        with torch.no_grad(), layer_by_layer(), keeping_inputs(alone, given):
            outputs = outputs_of(alone(*args, **kwargs))
        return first_or_whole(outputs, is_net)

    return run


def probes_of(
    module: torch.nn.Module,
    inputs: Tree,
    executions: Sequence[Layer],
    without_dropout: Callable[[torch.nn.Module], AbstractContextManager[None]],
    asked: AskedProbes | None = None,
) -> Probes:
    """Run a module and its layers on probes (changed inputs).

    Copies run in training mode in the context `without_dropout`.
    """

    def train(tree: Tree) -> Any:
        copy = copied(module).train()
        with without_dropout(copy):
            return call(copy, convert(tree))

    convert = functools.partial(tensors, dtype=dtype_of(module))
    caller = Caller(
        array_of,
        convert,
        outputs_of,
        lambda tree: layer_by_layer(),
    )
    layers = [*recorded_layers(module.eval())]
    with torch.no_grad():
        return compute_probes(
            layers,
            lambda tree: call(module, convert(tree)),
            train,
            inputs,
            executions,
            caller,
            asked,
        )


def roles_of(module: torch.nn.Module) -> dict[str, Any]:
    """Return which parameters are shared, trained or constant, as fields of a `Trace`."""
    buffers = list(module.named_buffers(remove_duplicate=False))
    named = [*module.named_parameters(remove_duplicate=False), *buffers]
    saved = module.state_dict()
    roles = parameter_roles(named, [name for name, _ in buffers])
    # what reads them is found by trials, for all layers of a class
    left_out = counts_of_batches(module)
    listed = [name for name, _ in buffers if name not in left_out]
    return {**roles, "buffers": {name: name in saved for name in listed}}
