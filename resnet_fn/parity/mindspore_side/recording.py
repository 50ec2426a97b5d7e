"""MindSpore's side of the ladder, whole."""

import dataclasses
from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn

from resnet_fn.config.hints import few
from resnet_fn.parity.compare import is_random
from resnet_fn.parity.mindspore_side.adapt import first_call
from resnet_fn.parity.mindspore_side.dropout import without_dropout
from resnet_fn.parity.mindspore_side.optimizer import of_mindspore
from resnet_fn.parity.mindspore_side.parameters import assign, state
from resnet_fn.parity.mindspore_side.record import constants, record_cell, tied, trainable
from resnet_fn.parity.mindspore_side.run import Loss, MakeStep, run_mindspore
from resnet_fn.parity.traces.batches import map_tree, named_leaves, split
from resnet_fn.parity.traces.trace import Recording, Task
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import Optimizer, make_optimizer
from resnet_fn.update.step import make_train_step


def record_net(
    net: nn.Cell,
    task: Task,
    *,
    initial: Any = None,
    loss: Loss | None = None,
    optimizer: Optimizer | nn.Optimizer | None = None,
    schedule: Callable[[int], float] | None = None,
    make_step: MakeStep = make_train_step,
) -> Recording:
    """Train a net for a few updates through the compiled step; record what the ladder compares.

    Args:
        net: it is left with the weights that it has now. While it runs nothing is dropped.
        task: what to do.
        initial: parameters and statistics as the net came; None: as they are.
        loss: (outputs, labels) → scalar; None: the recipe's.
        optimizer: made for the net's trainable parameters, ours or MindSpore's own; None: the recipe's.
        schedule: the learning rate as a function of the update number; None: the task's.
        make_step: a function with the signature of `make_train_step`.

    Raises:
        ValueError: inputs that do not fit the net, or a loss that is no scalar.
    """
    recipe = task.recipe
    start = state(net)
    inputs = split(task.batches[0][0], task.accumulate)[0]
    random_eval = _gives_another_output(net, task)
    with without_dropout(net) as dropped:
        like = first_call(net, task.batches[0][0])
        layers = {mode: record_cell(net, inputs, mode == "train") for mode in ("eval", "train")}
        if isinstance(optimizer, nn.Optimizer):
            optimizer = of_mindspore(optimizer, net)
        loss = loss or make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over)
        _check_loss(loss, like, task)
        trace = run_mindspore(
            net,
            task,
            [schedule(update) for update in range(len(task.batches))] if schedule else task.rates,
            loss,
            optimizer or make_optimizer(recipe, net),
            make_step,
            like,
        )
    assign(net, start)
    return Recording(
        framework=f"MindSpore {mindspore.__version__}",
        task=dataclasses.replace(task, batches=[map_tree(_seen, tuple(batch)) for batch in task.batches]),
        initial=start if initial is None else initial,
        layers=layers,
        trace=trace,
        tied=tied(net),
        trainable=trainable(net),
        constants=constants(net),
        notes=[
            *([f"dropout is 0 in the net: {few(dropped)}"] if dropped else ()),
            *([f"dropout is 0 on both sides; the recipe has {few(task.dropped)}"] if task.dropped else ()),
        ],
        random_eval=random_eval,
    )


def _gives_another_output(net: nn.Cell, task: Task) -> bool:
    """Whether the net, as it came, gives another output each time that it is called in evaluation mode."""
    first, second = (
        {name: value.asnumpy() for name, value in named_leaves(outputs, "logits").items() if isinstance(value, Tensor)}
        for outputs in (first_call(net, task.batches[0][0]) for _ in range(2))
    )
    return is_random(first, second)


def _seen(array: np.ndarray) -> np.ndarray:
    """The array as the net gets it."""
    return np.array(Tensor(array).asnumpy())


def _check_loss(loss: Loss, like: Any, task: Task) -> None:
    value = loss(like, map_tree(Tensor, task.batches[0][1]))
    if not isinstance(value, Tensor) or value.size != 1:
        what = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"loss of the net: it returns {what}, not one number; return the mean over the batch")
