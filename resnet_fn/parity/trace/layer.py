"""Describe one recorded execution of a layer as plain data, for either framework."""

import dataclasses
import hashlib
import math
from typing import Any

import numpy as np

LAYER_TOLERANCE = 1e-5  # relative error of a layer's output or input that passes

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclasses.dataclass
class Layer:
    """One execution of a layer."""

    name: str  # the path in the net, for example "layer1.0.relu"
    call: int  # how many times the layer had run before
    kind: str  # the same word for both frameworks, for example "conv" or "norm" (`kind_of`)
    class_name: str  # the class in its framework
    settings: dict[str, Any]  # settings under names that both frameworks share (`settings`)
    # input, output: the first input and first output, float64; None if there is no tensor
    input: np.ndarray | None
    output: np.ndarray | None
    parameters: Shapes  # (leaf name, shape) of the layer's own parameters and statistics
    leaf: bool  # whether no recorded layer runs inside the layer
    # input_rounding, output_rounding: of the reference, relative errors of input and output against
    # float64; of the port, how far inaccurate kernels move the output
    input_rounding: float = 0.0
    output_rounding: float = 0.0
    # for kinds in `WHOLE`: fingerprints of the inputs after the first, such as an attention's key
    # and value
    further: tuple[str, ...] = ()
    # if the output is a PackedSequence: which steps [samples, steps] a sequence has; else None
    valid: np.ndarray | None = None

    @property
    def is_own(self) -> bool:
        """Whether the layer's class belongs to neither framework."""
        return self.kind.startswith(f"{OWN} ")

    def owned(self) -> list[str]:
        """Return the full names of the layer's parameters."""
        return [f"{self.name}.{leaf}" for leaf, _ in self.parameters]

    @property
    def title(self) -> str:
        """The layer's name.

        From the second call on, the number of the call follows, as in "layer1.0.relu (2)".
        """
        return title_of(self.name, self.call)


def title_of(name: str, call: int) -> str:
    """Return the title of one execution of the layer `name`.

    `call` is the number of earlier executions.
    """
    return f"{name} ({call + 1})" if call else name


OWN = "own"  # the first word of the kind of a user's class


def fingerprint(array: np.ndarray) -> str:
    """Return a hash of an array's numbers, which does not depend on the shape."""
    return hashlib.blake2b(
        np.ascontiguousarray(array, np.float32).tobytes(), digest_size=16
    ).hexdigest()


# zeros added before and after, direction by direction: top, bottom, left, right
Pads = tuple[int, ...]

LayerSettings = dict[str, Any]


def same_pads(extent: int, kernel: int, stride: int, dilation: int) -> Pads:
    """Return the zeros before and after an axis of size `extent` for the pad mode `same`.

    As in TensorFlow, there are ⌈extent / stride⌉ outputs, and an odd zero comes after the input.
    """
    last = (math.ceil(extent / stride) - 1) * stride  # where the last window begins
    window = dilation * (kernel - 1) + 1
    total = max(last + window - extent, 0)
    before = total // 2
    return before, total - before
