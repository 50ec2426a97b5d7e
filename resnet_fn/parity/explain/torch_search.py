"""Search a torch module for causes."""

from typing import Any

import numpy as np
import torch

from resnet_fn.parity.explain.search import Searcher
from resnet_fn.parity.record.common import loss_of_logits
from resnet_fn.parity.record.layer_settings import without_dropout
from resnet_fn.parity.record.torch_module import (
    call,
    copied,
    first_call,
    initialise,
    outputs_of,
    tensors,
)
from resnet_fn.parity.record.torch_recipe import recipe_loss
from resnet_fn.parity.record.torch_step import Loss, TorchRun, load
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.plan import Task
from resnet_fn.parity.trace.tree import Arrays


def make_searcher(module: torch.nn.Module, task: Task, loss: Loss) -> Searcher:
    """Return a `Searcher` for a copy of `module`."""
    run = TorchRun(module, task, loss, "float32")
    run.module.eval()  # some layers may be in another mode than the module

    def forward(train: bool) -> Any:
        if run.module.training != train:  # setting the mode visits all layers
            run.module.train(train)
        return call(run.module, tensors(task.first[0], torch.float32))

    def backward() -> Arrays:
        run.module.zero_grad()
        value, _, _ = run.backward(task.batches[0])
        return {**run.gradients(), stages.LOSS.name: np.asarray([value])}

    return Searcher(run.module, forward, backward)


def searcher_of(recording: Trace, module: torch.nn.Module) -> Searcher:
    """Return a `Searcher` for a copy of `module`.

    Raises ValueError if the copy does not give the recorded outputs.
    """
    task, trace = recording.task, recording.run
    initialise(module, task.batches[0][0])
    with without_dropout(module.named_modules()):
        reference = copied(module).float()
    outputs = outputs_of(first_call(load(reference, trace.start), task.batches[0][0]))
    if any(
        relative_error(outputs.get(name, np.nan), one) > 1e-3
        for name, one in trace.eval_outputs.items()
    ):
        file = recording.file.partition(",")[0]
        raise ValueError(
            f"{file}: the module does not compute the recorded outputs; give the recorded module's "
            "file"
        )
    if task.own_loss:
        return make_searcher(reference, task, _no_loss)
    outputs = first_call(reference, task.first[0], True)
    return make_searcher(
        reference, task, loss_of_logits("the reference", outputs, recipe_loss(task.recipe))
    )


def _no_loss(outputs: Any, labels: Any) -> torch.Tensor:
    raise ValueError(
        "loss: the trace lacks the reference's own loss function; compare both nets in one process"
    )
