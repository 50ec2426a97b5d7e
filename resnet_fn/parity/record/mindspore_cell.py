"""Call a MindSpore net, compiled or not, and explain its errors; MindSpore's version and mode."""

import contextlib
import inspect
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn

from resnet_fn.config.wording import first_line
from resnet_fn.parity.record.cells import as_before, write
from resnet_fn.parity.record.common import what_failed
from resnet_fn.parity.trace.environment import environment
from resnet_fn.parity.trace.returned import as_real, named_outputs
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree
from resnet_fn.runtime import process
from resnet_fn.update.step import Compile

FRAMEWORK = f"MindSpore {mindspore.__version__}"

_NO_KERNEL = re.compile(
    r"The kernel (\w+) unregistered|kernelmod for op (\w+) failed|Unsupported op \[(\w+)\]|Not "
    r"found op (\w+) on device"
    r"|'(\w+)' is not supported on this device|(\w+) only supports Ascend"
)

_OF_SHAPES = re.compile(
    r"shape|dim|rank|channel|broadcast|size|length|(positional|keyword) argument", re.IGNORECASE
)

_OF_GRAPHS = "The Traceback of Net Construct Code"  # in the errors of MindSpore's compiler


def check_mode(mode: str) -> None:
    """Raise ValueError if a mode is neither "graph" nor "pynative"."""
    if mode not in ("graph", "pynative"):
        raise ValueError(f"mode: {mode!r} is unknown; give graph or pynative")


@contextlib.contextmanager
def run_in(mode: str) -> Iterator[None]:
    """If the mode is "pynative", switch MindSpore's compiler off inside a `with` block, even for
    `@jit` functions.
    """
    check_mode(mode)
    before = os.environ.get("MS_JIT")  # MindSpore reads it in each call
    if mode == "pynative":
        os.environ["MS_JIT"] = "0"
    try:
        yield
    finally:
        os.environ.pop("MS_JIT", None)
        os.environ.update({} if before is None else {"MS_JIT": before})


def compiler() -> Compile | None:
    """Return `mindspore.jit`, or None if the environment variable MS_JIT=0 switches compiling
    off.
    """
    return None if os.environ.get("MS_JIT") == "0" else mindspore.jit


def environment_of_process() -> dict[str, str]:
    """Return versions, device and mode of this process."""
    mode = "graph" if compiler() else "pynative"
    deterministic = process.context("deterministic")
    return environment(deterministic=deterministic, mode=mode, **process.started)


def outputs_of(value: Any) -> Arrays:
    """Return tensors, arrays, numbers and texts in a net's outputs as arrays by name.

    Integers and booleans keep their type. A single tensor has the name "logits".
    """
    return {name: array_of(leaf) for name, leaf in named_outputs(value).items()}


def array_of(leaf: Any) -> np.ndarray:
    """Return a copy of a tensor's numbers, with an axis for the parts of complex numbers."""
    if isinstance(leaf, Tensor) and leaf.dtype == mindspore.bfloat16:  # NumPy has no such type
        leaf = leaf.astype(mindspore.float32)
    return as_real(np.array(leaf.numpy() if isinstance(leaf, Tensor) else leaf))


def with_inputs(net: nn.Cell, inputs: Tree) -> Any:
    """Return a function that takes one tuple and calls a net with the tuple's tensors as separate
    inputs.

    The function also has the methods of the net that a training step calls. If `inputs` is one
    array, return the net.
    """
    if not isinstance(inputs, dict | tuple):
        return net
    taken_ones = _given(inputs)
    count = itertools.count()
    places = tuple(-1 if value is None else next(count) for value in inputs)
    defaults: tuple[Any, ...] = (None,) * len(inputs)
    if isinstance(inputs, dict):
        # Keyword arguments in compiled code give gradients of the wrong type, so arguments are
        # passed by position.
        names, parameters = (
            list(taken_ones),
            [*inspect.signature(net.construct).parameters.values()],
        )
        taken = [parameter.name for parameter in parameters]
        if missing := [name for name in inputs if name not in taken]:
            accepted = ", ".join(taken)
            raise ValueError(
                f"net: construct takes {accepted}, but not the input {missing[0]!r}; add it to "
                "construct"
            )
        used = parameters[: 1 + max((taken.index(name) for name in inputs), default=-1)]
        places = tuple(
            names.index(parameter.name) if parameter.name in names else -1 for parameter in used
        )
        defaults = tuple(
            None if parameter.name in inputs else parameter.default for parameter in used
        )

    def forward(tensors: tuple[Tensor, ...]) -> Any:
        every: tuple[Any, ...] = ()
        for index in range(len(places)):
            every += (tensors[places[index]],) if places[index] >= 0 else (defaults[index],)
        return net(*every)

    for name in (
        "set_train",
        "trainable_params",
        "get_parameters",
        "cells_and_names",
        "parameters_and_names",
    ):
        setattr(forward, name, getattr(net, name))
    return forward


def arguments(inputs: Tree) -> Any:
    """Return inputs as a tensor or a tuple of tensors, in the order that `with_inputs` takes."""
    if not isinstance(inputs, dict | tuple):
        return map_tree(Tensor, inputs)
    return map_tree(Tensor, tuple(_given(inputs).values()))


def _given(inputs: Tree) -> dict[Any, Tree]:
    """Return a tuple's or dict's inputs by index or name, sorted, without None.

    Compiled code takes no None among tensors.
    """
    named = inputs if isinstance(inputs, dict) else dict(enumerate(inputs))
    return {name: named[name] for name in sorted(named) if named[name] is not None}


@process.ending_mixed_precision()
def call(net: nn.Cell, inputs: Tree) -> Any:
    """Return the net's outputs.

    A tuple is passed as positional arguments, a dict as keyword arguments.
    """
    tensors = map_tree(Tensor, inputs)
    if isinstance(tensors, dict):
        return net(**tensors)
    return net(*tensors) if isinstance(tensors, tuple) else net(tensors)


def first_call(net: nn.Cell, inputs: Tree, train: bool = False) -> Any:
    """Return a net's outputs on a batch, and restore the net's mode and state."""
    with explained(inputs, train=train), as_before(net):
        net.set_train(train)
        outputs = call(net, inputs)
        outputs_of(outputs)  # operations may fail after the call
        return outputs


class MissingKernelError(ValueError):
    """Raised if an operation has no kernel on this device."""


def missing_kernel(text: str) -> str:
    """Return which operation has no kernel on this device, by the text of an error, or ""."""
    error = _NO_KERNEL.search(text)
    return error[error.lastindex or 0] if error else ""


@contextlib.contextmanager
def explained(inputs: Tree, compiled: bool = False, train: bool = False) -> Iterator[None]:
    """Turn an error inside a `with` block into a ValueError that lists the inputs and suggests a
    fix.

    `train` is whether the net runs in training mode.
    """
    try:
        with process.ending_mixed_precision():
            yield
    except Exception as error:
        text, fix = str(error), "add --debug to see where it fails"
        shapes = _OF_SHAPES.search(first_line(error)) and not compiled
        if kernel := missing_kernel(text):
            device = process.started.get("device", "CPU")
            fix = f"no {device} kernel: {kernel}; run `parity record` on a device that has one"
        elif "StridedSliceGrad" in text:
            fix = (
                "MindSpore's gradient of a slice with a step, x[:, ::2], or without elements fails on "
                "a CPU; write it otherwise, for example as a reshape and an index"
            )
        elif shapes:
            fix = "give the net the inputs that the reference takes"
        elif compiled or _OF_GRAPHS in text:
            fix = (
                "correct what does not compile, or compare the net uncompiled with --mode pynative"
            )
        failed = what_failed("net", inputs, error, fix, train)
        raise (MissingKernelError(str(failed)) if kernel else failed) from error


def parameters_by_path(net: nn.Cell) -> dict[str, Parameter]:
    """Return all parameters and statistics by path. A path may differ from the parameter's name."""
    return dict(net.parameters_and_names())


def trained_integers(net: nn.Cell) -> dict[str, Parameter]:
    """Return the trained parameters that are integers or booleans, by path."""
    return {
        path: parameter
        for path, parameter in parameters_by_path(net).items()
        if parameter.requires_grad
        and not parameter.dtype.is_floating_point
        and not parameter.dtype.is_complex
    }


def state(net: nn.Cell) -> Arrays:
    """Return copies of all parameters and statistics of a net as arrays by path."""
    return {name: array_of(parameter) for name, parameter in parameters_by_path(net).items()}


def assign(net: nn.Cell, values: Mapping[str, np.ndarray]) -> None:
    """Set a net's parameters in place, so that compiled functions use the new values."""
    parameters = parameters_by_path(net)
    for name, value in values.items():
        write(parameters[name], value)
