"""ReLU ties: inputs of a ReLU within rounding of 0. On which side of 0 they lie, float32 cannot decide.

The ReLU's gradient jumps there, and with it every gradient below. Two faultless float32 nets may take different
sides, while PyTorch's own float32 happens to take those of its float64. How far apart the gradients may then be is
computed, not guessed: the reference runs once more, with every tie flipped to its other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from resnet_fn.parity.layers import LayerDifference
from resnet_fn.parity.traces.layer import Layer

if TYPE_CHECKING:
    from resnet_fn.parity.stages import Rounding

_SIGMAS = 4.0
_LEVELS = (2.0, 8.0, 32.0)  # a tie's width, in the reference's own: enough for ours to be that much less exact


def tie_width(layers: Sequence[LayerDifference]) -> float:
    """How far from 0 a tie may lie, relative to the root mean square of the ReLU's input.

    Values are off by up to several times the root mean square of the errors, of either net.
    """
    return _SIGMAS * max(
        (max(layer.output.relative, layer.output.rounding) for layer in layers if layer.mode == "train"), default=0.0
    )


class Flipped:
    """How far the reference is from itself with its ties flipped, for a few widths of a tie.

    A trace must say it before anyone knows the other side's rounding: so there are a few widths to choose from.

    Args:
        layers: the reference's, in training mode.
        flip: width → (rounding, ties); None where `known` has them all.
        known: what was computed before.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        flip: Callable[[float], tuple[Rounding, int]] | None,
        known: dict[float, tuple[Rounding, int]] | None = None,
    ) -> None:
        own = _SIGMAS * max((layer.output_rounding for layer in layers), default=0.0)
        self.widths = tuple(known) if known else tuple(level * own for level in _LEVELS)
        self.known = dict(known or {})
        self.flip = flip

    def __call__(self, width: float) -> tuple[Rounding, int]:
        """Rounding and ties for the least width that is enough; else for the largest."""
        enough = next((own for own in self.widths if own >= width), self.widths[-1])
        if enough not in self.known:
            assert self.flip is not None
            self.known[enough] = self.flip(enough)
        return self.known[enough]

    def all_widths(self) -> dict[float, tuple[Rounding, int]]:
        """What a trace keeps."""
        return {width: self(width) for width in self.widths}
