"""Differences between two arrays, and their verdicts: the definitions."""

import math

import numpy as np
import pytest

from resnet_fn.layers.difference import difference, relative_error
from resnet_fn.parity.stages import Stage


def test_difference_is_the_definition():
    a, b = np.array([[3.0, 4.0], [0.0, 1.0]]), np.array([[3.0, 0.0], [0.0, 0.0]])
    found = difference("x", a, b, exact=b * 1.01, tolerance=0.1)
    assert (found.max_abs, found.ours, found.theirs, found.place) == (4.0, 4.0, 0.0, (0, 1))
    assert math.isclose(found.relative, math.sqrt(17) / 3)
    assert math.isclose(found.cosine, 9 / (math.sqrt(26) * 3))
    assert math.isclose(found.rounding, 0.01 / 1.01)
    assert found.verdict == "DIFFERS"


@pytest.mark.parametrize(("apart", "verdict"), [(1e-6, "ok"), (3e-3, "rounding"), (5e-3, "DIFFERS")])
def test_verdict_knows_what_float32_costs(apart, verdict):
    b = np.ones(4)
    assert difference("x", b * (1 + apart), b, b * (1 + 1e-3), tolerance=1e-5).verdict == verdict


def test_nan_on_one_side_is_a_divergence_and_on_both_is_none():
    assert relative_error([1.0, math.nan], [1.0, 2.0]) == math.inf
    assert relative_error([1.0, math.nan], [1.0, math.nan]) == 0.0
    assert difference("x", [1.0, math.nan], [1.0, 2.0]).verdict == "DIFFERS"


def test_two_shapes_are_refused():
    with pytest.raises(ValueError, match=r"^x: shape \(2,\) here, \(3,\) in the reference; make them equal$"):
        difference("x", np.ones(2), np.ones(3))


def test_a_stage_is_as_bad_as_its_worst_array():
    ok = difference("ok", [1.0], [1.0])
    rounding = difference("rounding", [1 + 3e-3], [1.0], [1 + 1e-3], tolerance=1e-4)
    slightly, far = (difference(name, [value], [1.0], tolerance=1e-4) for name, value in (("a", 1.01), ("b", 3.0)))
    assert [Stage("s", found).verdict for found in ([], [ok], [ok, rounding])] == ["skipped", "ok", "rounding"]
    stage = Stage("s", [ok, slightly, rounding, far])
    assert (stage.verdict, stage.first.name, stage.worst.name) == ("DIFFERS", "a", "b")
    assert far.excess == pytest.approx(2 / 1e-4)
    assert rounding.excess == pytest.approx(3e-3 / (4 * 1e-3 / (1 + 1e-3)))
    assert Stage("s", [ok], failed="a name has no counterpart").verdict == "DIFFERS"
    assert far.values() == "3 here, 1 in the reference at [0]"
