"""Stand-ins for the inputs and outputs of layers, which show only how data flows between layers.

A small trace has them in place of the arrays, so that nets of other names can be paired. Equal
arrays have equal stand-ins, and an array's ReLU has the ReLU of its stand-in.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.layer import Layer, fingerprint


class Flow(NamedTuple):
    """How a stand-in is made again."""

    shape: tuple[int, ...]
    number: int
    positive: bool  # whether it is a ReLU

    def stand_in(self) -> np.ndarray:
        """Return an array of ± `number`, or of `number` and 0."""
        array = np.full(math.prod(self.shape), float(self.number))
        array[1::2] = 0 if self.positive else -self.number
        return array.reshape(self.shape)


class StandIns:
    """Makes the stand-ins of one forward pass."""

    def __init__(self) -> None:
        self._numbers: dict[str, tuple[int, bool]] = {}
        self.made: dict[Flow, np.ndarray] = {}

    def layers(self, layers: Sequence[Layer]) -> list[Layer]:
        """Return layers with stand-ins, and with few digits of their rounding."""
        return [
            dataclasses.replace(
                layer,
                input=self._of(layer.input),
                output=self._of(layer.output),
                input_rounding=few_digits(layer.input_rounding),
                output_rounding=few_digits(layer.output_rounding),
                further=(),
            )
            for layer in layers
        ]

    def _of(self, array: np.ndarray | None) -> np.ndarray | None:
        if array is None:
            return None
        key = fingerprint(array)
        if key not in self._numbers:
            number = len(self._numbers) + 1
            self._numbers[key] = number, False
            positive = fingerprint(np.maximum(array, 0))
            self._numbers.setdefault(positive, (number, True))
        flow = Flow(tuple(array.shape), *self._numbers[key])
        if flow not in self.made:
            self.made[flow] = flow.stand_in()
        return self.made[flow]


def few_digits(number: float, digits: int = 2) -> float:
    """Return a rounding with few digits, which take less space in a file."""
    return float(f"{number:.{digits}g}")
