"""File names in one bytes object, which acts as a sequence of texts."""

import numpy as np

from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.names import Names

NAMES = ("a.jpg", "", "caf\udce9/é.png", "象/1.jpg", "a.jpg")


def test_names_are_a_sequence():
    names = Names(NAMES)
    assert (names, len(names), list(names)) == (NAMES, 5, list(NAMES))
    assert [names[place] for place in range(-5, 5)] == [*NAMES, *NAMES]
    assert (names[1:4], names[::-1]) == (NAMES[1:4], NAMES[::-1])
    assert (names.index("象/1.jpg"), "b" in names) == (3, False)
    assert Names(NAMES[:4]) != names
    assert Names(["a", "b"]) != Names(["ab"])
    assert not Names()


def test_a_splits_listing_joins_its_names_by_zeros():
    split = FileSplit("root", NAMES, np.arange(5))
    assert split.listing == "\0".join(NAMES).encode("utf-8", "surrogateescape")
    kept = split.keep(np.array([True, False, True, False, True]))
    assert (kept.names, kept.labels.tolist()) == (NAMES[::2], [0, 2, 4])
    assert FileSplit("root", (), np.arange(0)).listing == b""
