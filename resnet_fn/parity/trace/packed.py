"""Pack a port's padded sequences as PyTorch's PackedSequence does.

Only the steps that a sequence has are compared then, not the padding.
"""

import numpy as np

from resnet_fn.parity.trace.difference import norm
from resnet_fn.parity.trace.tree import Arrays

_DATA = " data"

_SIZES = " batch_sizes"

_ORDER = " sorted_indices"


def packed_outputs(port: Arrays, reference: Arrays) -> Arrays:
    """Return the port's outputs, with padded sequences packed where the reference's are.

    The numbers that only a PackedSequence has, such as the order of its samples, are the
    reference's: a port that pads needs none.
    """
    outputs = dict(port)
    for base in _packed_names(reference):
        if f"{base}{_DATA}" in port:
            continue
        names = sorted(outputs, key=lambda name: name != base)
        for name in names:
            packed = _packed(outputs[name], base, reference)
            if packed is not None:
                del outputs[name]
                outputs |= packed
                break
    return outputs


def _packed_names(reference: Arrays) -> list[str]:
    """Return the names of packed sequences among outputs."""
    names = []
    for name in reference:
        base = str(name).removesuffix(_SIZES)  # a number may be named by its update
        if base != name and f"{base}{_DATA}" in reference:
            names.append(base)
    return names


def _packed(padded: np.ndarray, base: str, reference: Arrays) -> Arrays | None:
    """Return padded sequences [samples, steps, …] or [steps, samples, …] packed as the reference's
    `base`, or None if the shapes do not fit.
    """
    data = reference[f"{base}{_DATA}"]
    sizes = reference[f"{base}{_SIZES}"].tolist()
    order = reference.get(f"{base}{_ORDER}", np.arange(sizes[0]))
    if padded.ndim != data.ndim + 1 or padded.shape[2:] != data.shape[1:]:
        return None
    fitting = []
    for batch_first in (padded, padded.swapaxes(0, 1)):
        samples, steps = batch_first.shape[:2]
        if samples != sizes[0] or steps < len(sizes):
            continue
        rows = []
        for step, size in enumerate(sizes):
            rows.append(batch_first[order[:size], step])
        fitting.append(np.concatenate(rows))
    if not fitting:
        return None
    packed = {}
    for name, array in reference.items():
        if name.startswith(f"{base} "):
            packed[name] = array
    packed[f"{base}{_DATA}"] = min(fitting, key=lambda one: norm(one - data))
    return packed
