"""The reference's side of the ladder, whole. Needs PyTorch only."""

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from resnet_fn.config.hints import few
from resnet_fn.parity import stages
from resnet_fn.parity.compare import is_random, relative_error
from resnet_fn.parity.ties import Flipped
from resnet_fn.parity.torch_side.call import first_call
from resnet_fn.parity.torch_side.dropout import without_dropout
from resnet_fn.parity.torch_side.prepare import prepare_reference
from resnet_fn.parity.torch_side.record import constants, record_torch, tied, trainable
from resnet_fn.parity.torch_side.relu_ties import flip_ties
from resnet_fn.parity.torch_side.run import Loss, MakeOptimizer, outputs_of, run_torch, state
from resnet_fn.parity.traces.batches import Tree, map_tree, split
from resnet_fn.parity.traces.layer import Layer
from resnet_fn.parity.traces.trace import Recording, Task


def record_reference(
    module: torch.nn.Module, task: Task, loss: Loss | None = None, make_optimizer: MakeOptimizer | None = None
) -> Recording:
    """Train a copy of a torch module for a few updates; record what the ladder compares and how exact it is.

    Args:
        module: it is not changed. In the copy fresh BatchNorm statistics are drawn at random (`prepare_reference`), and
            nothing is dropped.
        task: what to do. With its recipe's precision "fp16" the verdict allows for the error of PyTorch's own
            automatic mixed precision.
        loss, make_optimizer: see `run_torch`.

    Raises:
        ValueError: inputs that do not fit, or a loss that is no scalar.
    """
    initial = state(module)
    random_eval = _gives_another_output(module, task)
    with without_dropout(module) as dropped:
        reference = copy.deepcopy(module).float()
    inputs = task.batches[0][0]
    prepare_reference(reference, inputs, task.seed)
    rounded = "float16" if task.recipe.precision == "fp16" else "float32"

    def run(precision: str) -> stages.Trace:
        return run_torch(reference, task, loss, make_optimizer, precision)

    trace, exact = run("float32"), run("float64")
    rounding = stages.rounding(trace if rounded == "float32" else run(rounded), exact)
    layers = {mode: _layers(reference, split(inputs, task.accumulate)[0], mode, rounded) for mode in ("eval", "train")}

    def flip(width: float) -> tuple[stages.Rounding, int]:
        with flip_ties(width) as count:
            flipped = run("float32")  # half of float64's time; what float32 costs counts as rounding anyway
        return stages.rounding(flipped, exact), count()

    return Recording(
        framework=f"PyTorch {torch.__version__.partition('+')[0]}",
        task=dataclasses.replace(task, batches=[map_tree(_seen, tuple(batch)) for batch in task.batches]),
        initial=initial,
        layers=layers,
        trace=trace,
        rounding=rounding,
        flipped=Flipped(layers["train"], flip),
        tied=tied(module),
        trainable=trainable(module),
        constants=constants(module),
        notes=[f"dropout is 0 in the reference: {few(dropped)}"] if dropped else [],
        random_eval=random_eval,
    )


def _gives_another_output(module: torch.nn.Module, task: Task) -> bool:
    """Whether the module, as it came, gives another output each time that it is called in evaluation mode."""
    module = copy.deepcopy(module).float()
    first, second = (outputs_of(first_call(module, task.batches[0][0])) for _ in range(2))
    return is_random(first, second)


def _seen(array: np.ndarray) -> np.ndarray:
    """The array as the module gets it."""
    return np.array(torch.from_numpy(np.ascontiguousarray(array)).numpy())


def _layers(reference: torch.nn.Module, inputs: Tree, mode: str, rounded: str) -> list[Layer]:
    """Every layer's executions, with how far they are from those in float64."""
    train = mode == "train"
    found = record_torch(reference, inputs, train)
    exact = record_torch(copy.deepcopy(reference).double(), inputs, train)
    with torch.autocast("cpu", torch.float16, enabled=rounded == "float16"):
        measured: Sequence[Layer] = record_torch(reference, inputs, train) if rounded == "float16" else found
    for layer, one, other in zip(found, measured, exact, strict=True):
        if one.input is not None and other.input is not None:
            layer.input_rounding = relative_error(one.input, other.input)
        if one.output is not None and other.output is not None:
            layer.output_rounding = relative_error(one.output, other.output)
    return found
