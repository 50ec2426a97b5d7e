"""What a search for causes takes: the arrays of the port that a changed reference should return."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.parity.trace.stages import StageId
from resnet_fn.parity.trace.tree import Arrays

Bounded = tuple[np.ndarray, float]  # an array, and the largest relative error of it


class Wanted(NamedTuple):
    """The port's arrays, which a search for causes tries to compute with the reference's module."""

    stage: StageId  # the first stage that differs: a forward stage, loss or gradients
    layers: dict[str, Bounded]  # outputs of layers, by the reference's titles
    results: dict[str, Bounded]  # the net's outputs, or loss and gradients
    convert: Callable[[Any], Arrays]  # what the reference's run returns → arrays named as `results`
    # `Trace.attributes` of the port, by the reference's paths; None: not needed
    attributes: Arrays | None = None
