"""Search a torch module for causes."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.explain.search import Searcher
from resnet_fn.parity.record.rates import Rates
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_module import (
    first_call,
    initialise,
    outputs_of,
    uncompiled,
)
from resnet_fn.parity.record.torch_recipe import loss_of
from resnet_fn.parity.record.torch_run import Loss, Training, load
from resnet_fn.parity.record.torch_source import Rerun
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.source import StoredSource


def make_searcher(rerun: Rerun) -> Searcher:
    """Return a `Searcher` that changes the calls of a live reference."""
    return Searcher(rerun.module, rerun.forward, rerun.backward, rerun.loss)


@dataclasses.dataclass(frozen=True)
class ModuleSource(StoredSource):
    """The source of a trace from a folder, with the module that was recorded."""

    # makes the module; its file can import files beside it until the context ends
    built: Callable[[], AbstractContextManager[torch.nn.Module]]

    @property
    def can_run(self) -> bool:
        """Whether there is a module."""
        return True

    def run(self, edits: Callable[[Rerun], Any]) -> Any:
        """Return what `edits` returns for a module that is built for it.

        Raises ValueError if the module does not compute the recorded outputs.
        """
        with self.built() as module:
            return edits(_rerun_of(self.trace, uncompiled(module)))


def _rerun_of(recording: Trace, module: torch.nn.Module) -> Rerun:
    plan, run = recording.plan, recording.run
    initialise(module, plan.batches[0][0])
    reference = load(copied(module).float(), run.start)
    rates = Rates(dict(reference.named_modules()))
    rates.switch_off(dict(reference.named_modules()))

    def evaluating(net: torch.nn.Module) -> AbstractContextManager[None]:
        if recording.random_eval:
            return nullcontext()
        return rates.as_built(dict(net.named_modules()))

    with evaluating(reference):
        outputs = outputs_of(first_call(reference, plan.batches[0][0]))
    if any(
        relative_error(outputs.get(name, np.nan), output) > 1e-3
        for name, output in run.eval_outputs.items()
    ):
        raise ValueError(
            f"{recording.file_name}: the module does not compute the recorded outputs; give the "
            "recorded module's file"
        )
    loss: Loss = _no_loss
    if not plan.loss.custom:
        loss = loss_of(plan.loss, first_call(reference, plan.first[0], True))
    return Rerun(reference, Training(plan, loss, None, evaluating))


def _no_loss(outputs: Any, labels: Any) -> torch.Tensor:
    raise ValueError(
        "loss: the trace lacks the reference's own loss function; compare both nets in one process"
    )
