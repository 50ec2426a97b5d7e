"""A port in this process, which is run again if it differs."""

import contextlib
import dataclasses
from collections.abc import Sequence

from resnet_fn.parity.record.kernel_faults import kernel_faults
from resnet_fn.parity.record.mindspore_side import MindSporeSide
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.source import KernelFault


@dataclasses.dataclass(frozen=True)
class MindSporeSource:
    """Answers what a port in this process can still be asked."""

    side: MindSporeSide
    like: Like
    trace: Trace

    def uncompiled(self) -> Trace | None:
        """Return the trace with updates that are not compiled, or None if nothing was compiled or
        the updates fail.
        """
        if self.side.worker_count > 1 or self.trace.environment.get("mode") == "pynative":
            return None
        with contextlib.suppress(Exception):  # uncompiled, an operation may have no kernel
            run = self.side.updates_again_uncompiled(self.like)
            return dataclasses.replace(self.trace, run=run, probes={})
        return None

    def kernel_faults(self) -> Sequence[KernelFault]:
        """Return the known faults of MindSpore's kernels that the port may use."""
        return kernel_faults(self.side.code_of_user())
