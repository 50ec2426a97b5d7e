"""What a side's trace can still be asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from resnet_fn.parity.trace.data import Rounding, Run, Trace
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.probes import AskedProbes

# layer's name ("" for the net) → name of a probe → output → relative error
ProbeRounding = Mapping[str, Mapping[str, Mapping[str, float]]]


class ProbeAnswer(NamedTuple):
    """The rounding of probes, as far as it could be measured."""

    rounding: ProbeRounding
    failed: str = ""  # why a measurement is missing, such as "RuntimeError: no float64"


class Masked(NamedTuple):
    """An update with dropout masks."""

    run: Run
    layers: list[Layer]
    rounding: Rounding  # of the stages with masks


class Source(Protocol):
    """What a side's trace can still be asked.

    The source of a live module computes the answer. The source of a folder answers from what was
    stored. None means "not recorded".
    """

    @property
    def tie_widths(self) -> tuple[float, ...]:
        """The widths for which `flipped_ties` has an answer, in ascending order.

        A width is in units of the rounding of each ReLU's own input.
        """

    def flipped_ties(self, width: float) -> tuple[Rounding, int] | None:
        """Return the rounding with every tie of a ReLU on the other side of 0, and the number of
        ties: inputs within `width` of 0.
        """

    def probe_rounding(self, asked: AskedProbes) -> ProbeAnswer | None:
        """Return the rounding of each output of these probes."""

    def with_fewer_masks(self, left: Sequence[str]) -> "Masked | None":
        """Return the update with dropout masks again, without those of the dropouts `left`."""

    @property
    def can_run(self) -> bool:
        """Whether there is a module that `run` can run again."""

    def run(self, edits: Callable[[Any], Any]) -> Any:
        """Return what `edits` returns for an object that runs the module again, perhaps with other
        calls.
        """


@dataclass(frozen=True)
class KernelFault:
    """A fault of MindSpore's kernels that this process has, and whose operation the port may use."""

    words: str  # for example "MindSpore 2.10.0: the gradient of ops.selu at −1 is 0.8 off"
    compiled: bool  # whether only compiled functions have the fault


class PortSource(Protocol):
    """What a port in this process can still be asked."""

    def uncompiled(self) -> Trace | None:
        """Return the port's trace with updates that are not compiled, or None if they fail.

        Only what the updates compute is measured again.
        """

    def kernel_faults(self) -> Sequence[KernelFault]:
        """Return the known faults of kernels that the port may use."""


@dataclass(frozen=True)
class StoredSource:
    """The source of a trace that was loaded from a folder."""

    trace: Trace

    @property
    def tie_widths(self) -> tuple[float, ...]:
        """The widths whose answers were stored."""
        return tuple(self.trace.flipped)

    def flipped_ties(self, width: float) -> tuple[Rounding, int] | None:
        """Return the stored answer."""
        return self.trace.flipped.get(width)

    def probe_rounding(self, asked: AskedProbes) -> ProbeAnswer | None:
        """Return the rounding that was stored beside each probe."""
        probes = self.trace.probes
        return ProbeAnswer(
            {
                layer: {title: probes[layer][title].rounding for title in titles}
                for layer, titles in asked.items()
            }
        )

    def with_fewer_masks(self, left: Sequence[str]) -> None:
        """Return None: a folder has only the update with all masks."""

    @property
    def can_run(self) -> bool:
        """Whether there is a module: a folder has none."""
        return False

    def run(self, edits: Callable[[Any], Any]) -> Any:
        """Raise an error: there is no module."""
        raise LookupError("a trace without its module cannot be run again")


class Recorded(NamedTuple):
    """A trace, and what it can still be asked."""

    trace: Trace
    source: Source
