"""Names of probes (runs on changed inputs), and what both sides know of an input."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

NET = ""  # the name of the whole net among the names of layers

FACTORS = {
    "0.01·x": 0.01,
    "−x": -1.0,
    "10·x": 10.0,
}

# probe → (times, plus): an image size or sequence length n becomes times · n + plus
SIZES = {
    "sizes − 1": (1, -1),
    "sizes + 1": (1, 1),
    "sizes × 2": (2, 0),
}

IDS, FEWER_IDS, MASKS = "every id once", "as many ids as fit", "masks inverted"

MORE = "n + 1 samples"  # in both modes

# Variations: the net also runs in training mode on these. `LENGTHS` is followed by an input's name.
WIDE, LENGTHS = "height ≠ width", "descending lengths"

IN_TRAINING = ", in training mode"  # the end of such a probe's name


def without_repetition(titles: Sequence[str]) -> list[str]:
    """Return titles without those in training mode whose probe in evaluation mode is there, too."""
    return [title for title in titles if title.removesuffix(IN_TRAINING) not in {*titles} - {title}]


TOO_LARGE = "those of other layers fill the memory that probes may have"

# layer's name ("" for the net) → names of probes to compute
AskedProbes = Mapping[str, Collection[str]]


def is_mask(name: str, leaf: np.ndarray) -> bool:
    """Return whether an input is a mask: an array of bool, of integers 0 and 1, or with "mask" in
    the name.
    """
    if leaf.dtype == bool or "mask" in name:
        return True
    if not leaf.size or leaf.dtype.kind not in "iu":
        return False
    return bool(np.isin(leaf, (0, 1)).all())
