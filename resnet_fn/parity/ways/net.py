"""What the ways need of one net, in either framework."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.tree import Tree


class OneNet(Protocol):
    """A net as it was built, and what trains it. It runs uncompiled, except in `compiled`."""

    framework: str  # "PyTorch 2.13.0"
    plan: Plan
    compiler: str  # what compiles it, in words
    compiles_always: bool  # whether it is compiled without being asked for

    def fresh(self) -> AbstractContextManager["OneNet"]:
        """Return a context with this net, which may be changed inside."""

    def evaluated(self, inputs: Tree) -> Trace:
        """Return the state, layers and outputs of an evaluation, which may move the state."""

    def with_rounding(self, inputs: Tree) -> Trace:
        """Return `evaluated`, with the rounding of outputs and layers as far as it is measured."""

    def train(self) -> None:
        """Make the plan's updates without dropout. The net keeps their result."""

    def saved(self) -> Any:
        """Return a copy of what a checkpoint has."""

    def restore(self, saved: Any) -> None:
        """Load what `saved` returned."""

    def updates(self, plan: Plan) -> Trace:
        """Return the trace of a plan's updates, after which the net is as before."""

    def compiled(self, plan: Plan) -> tuple[Trace, Trace]:
        """Return the traces of the plan's updates: compiled, and not compiled."""

    def in_half(self, inputs: Tree, half: str) -> Trace:
        """Return an evaluation in this precision, "float16" or "bfloat16"."""

    def rounded_to(self, inputs: Tree, half: str) -> Trace:
        """Return an evaluation in float32 whose weights, and the inputs and outputs of whose layers
        are rounded to as many digits as this precision has.
        """
