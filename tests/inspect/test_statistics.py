"""Differences are the mathematics of the arrays. (Statistics: test_main.py.)"""

import numpy as np
import pytest

from resnet_fn.inspect.statistics import compare_arrays, comparison_table


def test_differences_are_largest_first():
    ours = {name: np.ones(4) for name in "abc"} | {"d": np.ones(2), "e": np.ones(1), "n": np.array([np.nan])}
    theirs = {**ours, "a": np.array([1, 1, 1, 1.1]), "b": np.array([1, 1, 1, 3.0]), "d": np.ones(3), "f": np.ones(1)}
    del theirs["e"]
    found = compare_arrays(ours, theirs)
    assert [item.name for item in found.differences] == ["b", "a"]
    assert found.differences[0].relative == pytest.approx(2 / 12**0.5)
    assert (found.differences[0].ours, found.differences[0].theirs, found.differences[0].place) == (1.0, 3.0, (3,))
    assert (found.same, found.missing, found.unexpected) == (2, ["f"], ["e"])
    assert found.shapes == ["d (2,) here, (3,) there"]
    assert comparison_table(found)[-1] == "2 of 4 parameters that both have are equal"
