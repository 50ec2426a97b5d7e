"""Which arrays are trained and which are one: what differs between two nets before anything is computed."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from resnet_fn.parity.compare import relative_error
from resnet_fn.parity.matching.name_map import NameMap
from resnet_fn.parity.traces.layer import Layer

_FITS = 1e-3  # relative error up to which rows are the same


def sharing_notes(names: NameMap, ours: Iterable[tuple[str, ...]]) -> list[str]:
    """Arrays that the reference shares between layers and that are copies here, a line each.

    Copies start equal and part with the first update. (What is shared here and not in the reference has no counterpart
    for the reference's second array, and is told with the names.)

    Args:
        names: which is which.
        ours: names of the MindSpore net that are one array.
    """
    shared = {name: group[0] for group in ours for name in group}
    notes = []
    for group in names.tied:
        own = [name for name, source in names.parameters.items() if set(source.names) & set(group)]
        copies = list(dict.fromkeys(shared.get(name, name) for name in own))
        if len(copies) > 1:
            notes.append(
                f"{copies[0]}: a copy of {', '.join(copies[1:])} here, one array in the reference "
                f"({' = '.join(group)}); share it"
            )
    return notes


def padding_notes(
    names: NameMap, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], their_layers: Sequence[Layer]
) -> list[str]:
    """An embedding's padding row that is trained here and not in the reference, where all other rows agree.

    Args:
        names: which is which.
        ours, theirs: gradients, both by our names.
        their_layers: the reference's, whose embeddings say which row is padding.
    """
    rows = {f"{one.name}.weight": one.settings["padding_idx"] for one in their_layers if "padding_idx" in one.settings}
    notes = []
    for name, b in theirs.items():
        row, a = next((rows[one] for one in names.sources(name) if rows.get(one) is not None), None), ours.get(name)
        if row is None or a is None or a.shape != b.shape:
            continue
        rest = [np.delete(array, row, 0) for array in (a, b)]
        if relative_error(a[row], b[row]) > _FITS > relative_error(*rest):
            notes.append(
                f"{name}: its padding row {row} is trained here and not in the reference; MindSpore's nn.Embedding "
                "only starts it at zero: mask its output"
            )
    return notes


def training_notes(names: NameMap, ours: Collection[str], theirs: Collection[str]) -> list[str]:
    """Parameters that an update changes in one of the nets only, a line each.

    Args:
        names: which is which.
        ours, theirs: names of the parameters that each net trains.
    """
    notes = []
    for name in names.parameters:
        here, there = name in ours, any(source in theirs for source in names.sources(name))
        if here != there:
            words = ("frozen", "trained")
            notes.append(f"{name}: {words[here]} here, {words[there]} in the reference")
    return notes
