"""Pad PyTorch's packed sequences, so that a layer's output has the shape of a port's."""

from typing import Any

import numpy as np


def is_packed(value: Any) -> bool:
    """Return whether a value is a `PackedSequence` of PyTorch."""
    name = type(value).__name__
    return name == "PackedSequence"


def padded(sequences: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return packed sequences as an array [samples, steps, …] with zeros after each sequence's end,
    and a mask [samples, steps] of the steps that a sequence has.
    """
    data = sequences.data.detach().double().numpy()
    sizes = sequences.batch_sizes.tolist()
    samples = sizes[0]
    steps = len(sizes)
    shape = (samples, steps, *data.shape[1:])
    result = np.zeros(shape)
    valid = np.zeros((samples, steps), bool)
    start = 0
    for step, size in enumerate(sizes):
        end = start + size
        result[:size, step] = data[start:end]
        valid[:size, step] = True
        start = end
    order = sequences.unsorted_indices
    if order is None:
        return result, valid
    places = order.numpy()
    return result[places], valid[places]
