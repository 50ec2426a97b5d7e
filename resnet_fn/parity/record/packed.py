"""Pad PyTorch's packed sequences, so that a layer's output has the shape of a port's."""

from typing import Any

import numpy as np


def is_packed(value: Any) -> bool:
    """Return whether a value is a `PackedSequence` of PyTorch."""
    return type(value).__name__ == "PackedSequence" and hasattr(value, "batch_sizes")


def padded(sequences: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return packed sequences as an array [samples, steps, …] with zeros after each sequence's end,
    and a mask [samples, steps] of the steps that a sequence has.
    """
    data, sizes = sequences.data.detach().double().numpy(), sequences.batch_sizes.tolist()
    result = np.zeros((sizes[0], len(sizes), *data.shape[1:]))
    valid = np.zeros(result.shape[:2], bool)
    ends = np.cumsum(sizes)
    for step, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        result[:size, step] = data[end - size : end]
        valid[:size, step] = True
    order = sequences.unsorted_indices
    return (result, valid) if order is None else (result[order.numpy()], valid[order.numpy()])
