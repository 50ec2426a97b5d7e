"""Estimate how much memory a comparison takes, to say so before it starts."""

import sys
from collections.abc import Iterable

from resnet_fn.runtime.memory import machine_memory

# Copies of the weights that are in memory at the same time (docs/parity.md, "Memory"): for the
# first update, and for each further one. Measured with AdamW, which has two numbers for each
# weight.
REFERENCE, PORT = (15.5, 2.0), (13.0, 2.0)
REPLAY, BOTH = (20.0, 4.0), (27.0, 4.0)


def warn(sizes: Iterable[int], updates: int, copies: tuple[float, float]) -> None:
    """Print a line on stderr if recording a net may take more memory than this machine has.

    `sizes` are the bytes of the net's arrays. `copies` is one of this module's constants.
    """
    first, further = copies
    needed = sum(sizes) * (first + further * (updates - 1))
    present = machine_memory()
    if needed > present:
        print(
            f"memory: the ladder may need {needed / 1e9:.1f} GB, but this machine has "
            f"{present / 1e9:.1f} GB; give fewer --steps, or record each net on its own "
            "(parity record)",
            file=sys.stderr,
            flush=True,
        )
