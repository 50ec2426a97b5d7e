"""Pack a port's padded sequences as PyTorch's PackedSequence does.

Only the steps that a sequence has are compared then, not the padding.
"""

from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.trace.difference import norm
from resnet_fn.parity.trace.tree import Arrays

_DATA, _SIZES, _ORDER = " data", " batch_sizes", " sorted_indices"


def packed_outputs(port: Arrays, reference: Arrays) -> Arrays:
    """Return the port's outputs, with padded sequences packed where the reference's are.

    The numbers that only a PackedSequence has, such as the order of its samples, are the
    reference's: a port that pads needs none.
    """
    outputs = dict(port)
    for name, sizes in reference.items():
        base = str(name).removesuffix(_SIZES)  # a number's name may be that of an update
        data = reference.get(f"{base}{_DATA}")
        if base == name or data is None or name in port:
            continue
        order = reference.get(f"{base}{_ORDER}", np.arange(sizes[0]))
        for own in sorted(outputs, key=lambda one: one != base):
            packed = _packed(outputs[own], data, sizes.tolist(), order)
            if packed is not None:
                del outputs[own]
                of_reference = (one for one in reference if one.startswith(f"{base} "))
                outputs |= {one: reference[one] for one in of_reference if one not in port}
                outputs[f"{base}{_DATA}"] = packed
                break
    return outputs


def _packed(
    padded: np.ndarray, data: np.ndarray, sizes: Sequence[int], order: np.ndarray
) -> np.ndarray | None:
    """Return padded sequences [samples, steps, …] or [steps, samples, …] packed like `data`, or None
    if the shapes do not fit.
    """
    if padded.ndim != data.ndim + 1 or padded.shape[2:] != data.shape[1:]:
        return None
    fitting = []
    for batch_first in (padded, padded.swapaxes(0, 1)):
        samples, steps = batch_first.shape[:2]
        if samples == sizes[0] and steps >= len(sizes):
            rows = [batch_first[order[:size], step] for step, size in enumerate(sizes)]
            fitting.append(np.concatenate(rows))
    return min(fitting, key=lambda one: norm(one - data), default=None)
