"""An array made of the reference's: cut, transposed, joined, reshaped, as NumPy does it."""

import numpy as np
import pytest

from resnet_fn.parity.matching.name_map import NameMap
from resnet_fn.parity.matching.source import Part, Source, joined, plain

FUSED = np.arange(24.0).reshape(6, 4)
ARRAYS = {"fused": FUSED, "bias": np.arange(6.0), "number": np.float64(3.0)}


@pytest.mark.parametrize(
    ("source", "expected", "words"),
    [
        (plain("fused"), FUSED, "fused"),
        (plain("number"), np.float64(3.0), "number"),
        (joined([("fused", 1, 3)]), FUSED[2:4], "fused [part 2 of 3]"),
        (joined([("fused", 0, 3), ("fused", 1, 3), ("fused", 2, 3)]), FUSED, "fused"),
        (
            joined([("fused", 1, 3), ("fused", 0, 3)]),
            FUSED[[2, 3, 0, 1]],
            "fused [part 2 of 3] + fused [part 1 of 3]",
        ),
        (Source((Part("fused", (1, 0)),)), FUSED.T, "fused transposed [1, 0]"),
        (Source((Part("fused", rows=(1, 3), axis=1),)), FUSED[:, 1:3], "fused [1:3] of axis 1"),
        (Source((Part("fused", (1, 0), rows=(1, 3)),)), FUSED.T[1:3], "fused transposed [1, 0] [1:3]"),
        (Source((Part("fused"), Part("fused")), join=1), np.hstack([FUSED, FUSED]), "fused + fused"),
        (Source((Part("fused"),), shape=(2, 3, 4)), FUSED.reshape(2, 3, 4), "fused as [2, 3, 4]"),
    ],
)
def test_a_source_is_what_numpy_says(source, expected, words):
    np.testing.assert_array_equal(source.build(ARRAYS.get), expected)
    assert str(source) == words


def test_what_does_not_fit_is_said():
    for source, message in {
        Source((Part("fused", (0, 1, 2)),)): "transpose [0, 1, 2] does not fit fused [6, 4]",
        Source((Part("fused", rows=(4, 9)),)): "rows [4, 9] do not fit fused [6, 4]",
        Source((Part("bias", rows=(0, 1), axis=1),)): "axis 1 does not fit bias [6]",
        Source((Part("fused"),), shape=(5,)): "fused [6, 4] cannot be reshaped to [5]",
    }.items():
        with pytest.raises(ValueError) as error:
            source.build(ARRAYS.get)
        assert str(error.value) == message


def test_a_map_renames_what_is_there_and_finds_shared_arrays_under_either_name():
    sources = {"q": joined([("fused", 0, 3)]), "head": plain("out"), "lost": plain("nowhere")}
    names = NameMap("names", sources, {}, (), tied=(("bias", "out"),))
    found = names.rename(ARRAYS)
    assert list(found) == ["q", "head"]
    np.testing.assert_array_equal(found["head"], ARRAYS["bias"])
    assert names.sources("head") == ("bias",)
    assert names.sources("loss") == ("loss",)


def test_seams_are_where_a_further_part_begins():
    whole = {"qkv": Source((Part("bias", rows=(0, 2)), plain("fused").parts[0])), "one": plain("bias")}
    assert NameMap("names", whole, {}, ()).seams({**ARRAYS, "bias": FUSED}) == {"qkv": [2]}
