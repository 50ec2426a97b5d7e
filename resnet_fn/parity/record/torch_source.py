"""What the live PyTorch reference can still be asked after it was recorded."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record.probes import measure
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_decisions import Deciding, Decisions
from resnet_fn.parity.record.torch_modes import Noise, in_float64
from resnet_fn.parity.record.torch_module import call, in_precision, tensors
from resnet_fn.parity.record.torch_run import TorchRun, Training, scalar
from resnet_fn.parity.record.torch_ties import LEVELS, flip_ties
from resnet_fn.parity.trace.data import Probes, Rounding
from resnet_fn.parity.trace.limits import SPREADS
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.source import Masked, ProbeAnswer
from resnet_fn.parity.trace.stages import LOSS
from resnet_fn.parity.trace.tree import Arrays

_NOISY_PROBES = 2

ComputeProbes = Callable[[torch.nn.Module, AskedProbes], Probes]


class Rerun:
    """Runs a copy of the reference in float32 again, for a search that changes its calls."""

    def __init__(self, module: torch.nn.Module, training: Training) -> None:
        self._run, self._plan = TorchRun(module, training, "float32"), training.plan
        self.module = self._run.module.eval()  # some layers may be in another mode than the module
        self._buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}

    def forward(self, train: bool) -> Any:
        """Return the outputs on the first micro-batch."""
        if self.module.training != train:  # setting the mode visits all layers
            self.module.train(train)
        within = contextlib.nullcontext() if train else self._run.evaluating(self.module)
        with within:
            return call(self.module, tensors(self._plan.first[0], torch.float32))

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore the buffers, because runs in training mode change them."""
        for name, kept in self._buffers.items():
            if (buffer := self.module.get_buffer(name)).shape == kept.shape:
                buffer.copy_(kept)

    def loss(self, outputs: Any) -> torch.Tensor:
        """Return the loss of outputs on the first micro-batch."""
        labels = tensors(self._plan.first[1], torch.float32)
        return scalar(self._run.loss(outputs, labels))

    def backward(self) -> Arrays:
        """Return the loss and the gradients of the first batch."""
        self.module.zero_grad()
        value, _, _ = self._run.backward(self._plan.batches[0])
        return {**self._run.gradients(), LOSS.name: np.asarray([value])}


@dataclasses.dataclass(eq=False, repr=False)
class TorchSource:
    """The live reference."""

    module: torch.nn.Module
    # makes what runs the module again; None in half precision, in which nothing is asked
    make_rerun: Callable[[], Rerun] | None
    # makes the updates again in float32, and returns how far they are from the recorded ones
    changes: Callable[[], Rounding]
    of_relus: Sequence[float]  # the rounding of the input of each ReLU; []: no ties are flipped
    probes: Probes | None  # as recorded, if they were
    compute: ComputeProbes  # the asked probes of a module
    # makes the update with dropout masks again (`Source`)
    with_fewer_masks: Callable[[Sequence[str]], Masked]

    @property
    def tie_widths(self) -> tuple[float, ...]:
        """The widths of ties that `flipped_ties` can flip."""
        return LEVELS if self.of_relus else ()

    def flipped_ties(self, width: float) -> tuple[Rounding, int] | None:
        """Return the rounding with every tie of a ReLU on the other side of 0, and the number of
        ties.
        """
        if width not in self.tie_widths:
            return None
        with flip_ties(width, self.of_relus) as count:
            changes = self.changes()
        return changes, count()

    def probe_rounding(self, asked: AskedProbes) -> ProbeAnswer | None:
        """Return the rounding of each output of these probes: the error against float64 or, if
        larger, a multiple of the change by noise.
        """
        if self.probes is None:
            return None
        measured: dict[str, dict[str, dict[str, float]]] = {}
        try:
            decisions = Decisions()
            with Deciding(decisions.note):
                self.compute(copied(self.module), asked)
            decisions.restart()
            with Deciding(decisions.kept), in_float64():
                exact = self.compute(in_precision(copied(self.module), torch.float64), asked)
                measure(measured, self.probes, asked, exact, 1)
            for seed in range(_NOISY_PROBES):
                module = copied(self.module)
                with Noise(seed, decisions):
                    noisy = self.compute(module, asked)
                measure(measured, self.probes, asked, noisy, SPREADS)
        except Exception as error:  # what was measured before counts
            return ProbeAnswer(measured, words_of(error))
        return ProbeAnswer(measured)

    @property
    def can_run(self) -> bool:
        """Whether the module can run again: not in half precision."""
        return self.make_rerun is not None

    @cached_property
    def _rerun(self) -> Rerun:  # with a copy of the module, which is made when it is needed
        assert self.make_rerun is not None
        return self.make_rerun()

    def run(self, edits: Callable[[Rerun], Any]) -> Any:
        """Return what `edits` returns for the module, which can run again."""
        self._rerun.put_back()  # an earlier search may have ended anywhere
        return edits(self._rerun)
