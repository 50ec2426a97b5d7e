"""Pack a port's padded sequences as PyTorch's PackedSequence does.

Only the steps that a sequence has are compared then, not the padding.
"""

from collections.abc import Sequence

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
    names = padded_names(port, reference)
    for data, port_name in names.items():
        base = data.removesuffix(_DATA)
        del outputs[port_name]
        outputs |= _packed(port[port_name], base, reference)
    return outputs


def padded_names(port: Arrays, reference: Arrays) -> dict[str, str]:
    """Map the data of the reference's packed sequences to the port's outputs that have them padded,
    like "logits 0 data" to "logits 0".

    They are paired by name or else in order, together with all other outputs (`paired_outputs`).
    """
    packed = []
    for name in packed_names(reference):
        if f"{name}{_DATA}" not in port:
            packed.append(name)
    if not packed:
        return {}
    known = {*reference, *packed}
    left = [name for name in port if name not in known]
    names = {}
    for name in _outputs_of(reference, packed):
        candidates = [name] if name in port else left
        fitting = (candidate for candidate in candidates if _fits(port[candidate], name, reference))
        port_name = next(fitting, None)
        if port_name in left:
            index = left.index(port_name)
            del left[: index + 1]
        if port_name is not None and name in packed:
            names[f"{name}{_DATA}"] = port_name
    return names


def packed_names(outputs: Arrays) -> list[str]:
    """Return the names of packed sequences among outputs."""
    names = []
    for name in outputs:
        base = str(name).removesuffix(_SIZES)  # a number may be named by its update
        if base != name and f"{base}{_DATA}" in outputs:
            names.append(base)
    return names


def _outputs_of(arrays: Arrays, packed: Sequence[str]) -> list[str]:
    """Return the names of outputs, in which packed sequences are one output each."""
    names = []
    for name in arrays:
        base = name.rpartition(" ")[0]
        output = base if base in packed else name
        if output not in names:
            names.append(output)
    return names


def _fits(array: np.ndarray, name: str, reference: Arrays) -> bool:
    """Return whether a port's output has the shape of the reference's, or can be packed so."""
    if name in reference:
        return array.shape == reference[name].shape
    return bool(_layouts(array, name, reference))


def _packed(padded: np.ndarray, base: str, reference: Arrays) -> Arrays:
    """Return padded sequences packed as the reference's `base`, in the layout that is nearest."""
    packed = {}
    for name, array in reference.items():
        if name.startswith(f"{base} "):
            packed[name] = array
    name = f"{base}{_DATA}"
    data = reference[name]
    layouts = _layouts(padded, base, reference)
    packed[name] = min(layouts, key=lambda layout: norm(layout - data))
    return packed


def _layouts(padded: np.ndarray, base: str, reference: Arrays) -> list[np.ndarray]:
    """Return padded sequences packed as the reference's `base`: read as [samples, steps, …], and as
    [steps, samples, …], if the shapes fit.
    """
    data = reference[f"{base}{_DATA}"]
    sizes = reference[f"{base}{_SIZES}"].tolist()
    order = reference.get(f"{base}{_ORDER}", np.arange(sizes[0]))
    if padded.ndim != data.ndim + 1 or padded.shape[2:] != data.shape[1:]:
        return []
    fitting = []
    for batch_first in (padded, padded.swapaxes(0, 1)):
        samples, steps = batch_first.shape[:2]
        if samples != sizes[0] or steps < len(sizes):
            continue
        rows = []
        for step, size in enumerate(sizes):
            rows.append(batch_first[order[:size], step])
        fitting.append(np.concatenate(rows))
    return fitting
