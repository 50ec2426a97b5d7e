"""Differences between two arrays, and their verdicts: the definitions."""

import math

import numpy as np
import pytest

from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace.difference import difference, relative_error
from resnet_fn.parity.trace.stages import LOSS


def test_difference_is_the_definition():
    a, b = np.array([[3.0, 4.0], [0.0, 1.0]]), np.array([[3.0, 0.0], [0.0, 0.0]])
    found = difference("x", a, b, tolerance=0.1, rounding=relative_error(b, b * 1.01))
    assert (found.max_abs, found.port, found.reference, found.place) == (4.0, 4.0, 0.0, (0, 1))
    assert math.isclose(found.relative, math.sqrt(17) / 3)
    assert math.isclose(found.cosine, 9 / (math.sqrt(26) * 3))
    assert math.isclose(found.rounding, 0.01 / 1.01)
    assert found.verdict == "DIFFERS"


@pytest.mark.parametrize(
    ("ours", "exact", "verdict"),
    [(0.0, 1.4, "undecided"), (-1.0, 3.0, "undecided"), (1.2, 1.1, "undecided"), (1.1, 1.05, "rounding"),
     (3.0, 1.1, "DIFFERS"), (1.0, 3.0, "ok")],
)  # fmt: skip
def test_a_reference_that_is_too_uncertain_decides_nothing(ours, exact, verdict):
    rounding = relative_error(np.ones(4), np.full(4, exact))
    found = difference("x", np.full(4, ours), np.ones(4), tolerance=1e-4, rounding=rounding)
    assert found.verdict == verdict
    assert "in the reference is too large to compare" in found.doubt


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("ours", "exact", "relative", "verdict"),
    [
        ([4.0, -INF, NAN], None, 0.0, "ok"),
        ([5.0, -INF, NAN], None, 0.25, "DIFFERS"),
        ([4.0, INF, NAN], None, INF, "DIFFERS"),
        ([4.0, -INF, 1.0], None, INF, "DIFFERS"),
        ([NAN, -INF, NAN], None, INF, "DIFFERS"),
        ([5.0, -INF, NAN], [4.0, 1.0, 1.0], 0.25, "undecided"),  # it overflows in float32
    ],
)
def test_infinity_and_nan_must_be_at_equal_places(ours, exact, relative, verdict):
    rounding = 0.0 if exact is None else relative_error([4.0, -INF, NAN], exact)
    found = difference("x", ours, [4.0, -INF, NAN], tolerance=1e-5, rounding=rounding)
    assert (found.relative, found.verdict) == (relative, verdict)
    assert relative_error(ours, [4.0, -INF, NAN]) == relative
    assert found.max_abs == (relative * 4)


def test_two_arrays_without_a_finite_number_say_nothing():
    assert difference("weight", [NAN], [NAN]).verdict == "ok"  # bit for bit, as of what was copied
    found = difference("loss", [NAN], [NAN], tolerance=1e-5)
    assert (found.verdict, found.doubt) == ("undecided", "no number is finite on either side")


def test_two_shapes_are_refused():
    with pytest.raises(
        ValueError, match=r"^x: the shape is \(2,\), but \(3,\) in the reference; make the shapes"
    ):
        difference("x", np.ones(2), np.ones(3))


def test_a_stage_has_its_worst_arrays_verdict():
    ok, slightly, far = (
        difference(name, [value], [1.0], tolerance=1e-4)
        for name, value in (("ok", 1.0), ("a", 1.01), ("b", 3.0))
    )
    rounding = difference("rounding", [1 + 3e-3], [1.0], tolerance=1e-4, rounding=1e-3 / (1 + 1e-3))
    for items, verdict in (
        ([], "undecided"),  # nothing was read or run
        ([ok], "ok"),
        ([ok, rounding], "rounding"),
    ):
        assert Stage(LOSS, items).verdict == verdict
    stage = Stage(LOSS, [ok, slightly, rounding, far])
    assert (stage.verdict, stage.first.name, stage.worst.name) == ("DIFFERS", "a", "b")
    assert far.excess == pytest.approx(2 / 1e-4)
    assert rounding.excess == pytest.approx(3e-3 / (4 * 1e-3 / (1 + 1e-3)))
    assert Stage(LOSS, [ok], failed="a name has no counterpart").verdict == "DIFFERS"
    assert far.values() == "3 in the port, 1 in the reference at [0]"


def test_huge_numbers_hide_no_error_in_small_ones():
    """As −1e9 where a mask hides; most numbers are zero."""
    numbers = np.array([3.0, 4.0, 0, 0, 0, 0, 0])
    assert relative_error([*numbers, 1e8], [*numbers, 0]) == pytest.approx(2e7)
    ours = np.array([-1e9, 3.3, 4.0, 0.0])
    assert relative_error(ours, [-1e9, 3.0, 4.0, 0.0]) == pytest.approx(0.3 / 5)


@pytest.mark.parametrize(("usual", "zeros"), [(8, 0), (8, 30), (30, 0)])
@pytest.mark.parametrize(
    ("constants", "count"),
    [
        *(((mask,), 40) for mask in (-1e4, -65504.0, -3.4e38)),  # few words are allowed
        # masks that are added up, or a net with several constants
        *(
            (masks, 20)
            for masks in ((-1e4, -2e4), (-1e4, -2e4, -3e4), (-1e9, -1e4), (-1e9, -65504))
        ),
        ((-2e4, -1e4), [20, 3]),  # few places are hidden by only one of two masks
    ],
)
def test_masks_hide_no_error_in_usual_numbers(constants, count, usual, zeros):
    masks = np.repeat(constants, count)
    masks += np.linspace(-1, 1, masks.size)
    numbers = np.linspace(-3, 3, usual)
    ours, theirs = (
        np.concatenate([masks, factor * numbers, np.zeros(zeros)]) for factor in (1.04, 1)
    )
    assert relative_error(ours, theirs) == pytest.approx(0.04)


@pytest.mark.parametrize("usual", [8, 80])
@pytest.mark.parametrize("first", [-1e9, -3.4e38])
def test_levels_of_masks_hide_no_other_level(first, usual):
    """The constant of the first is 10⁵ times that of the second, or more."""
    theirs = np.concatenate([[first] * 20, [-1e4] * 20, np.linspace(-3, 3, usual)])
    ours = np.where(theirs == -1e4, -5e3, theirs)
    found = difference("scores", ours, theirs, tolerance=1e-4, rounding=1e-3)
    assert (found.verdict, found.relative) == ("DIFFERS", pytest.approx(0.5))


@pytest.mark.parametrize(("large", "verdict"), [(18, "ok"), (7, "undecided")])
@pytest.mark.parametrize("of_large", [(1e-7, ""), None])
def test_pure_rounding_beside_large_numbers_decides_nothing(large, of_large, verdict):
    """If most numbers are large, the norm of all decides."""
    theirs = np.concatenate([2000 + np.linspace(-1, 1, large), np.full(8, 1e-8)])
    ours = np.concatenate([theirs[:large], np.zeros(8)])
    rounding = {"rounding": 1e9, "large": of_large}
    assert difference("table", ours, theirs, 1e-5, **rounding).verdict == verdict
    wrong = np.concatenate([theirs[:large] * 1.01, theirs[large:]])
    if of_large:
        assert difference("table", wrong, theirs, 1e-5, **rounding).verdict == "DIFFERS"
    known = difference("table", ours, theirs, 1e-5, rounding=1e-3, large=of_large)
    assert known.verdict == "DIFFERS"


@pytest.mark.parametrize(
    ("masks", "port", "rounding"),
    [([-1e4] * 12, 2.0, 1.0), ([-1e9] * 12, 1.25, 0.07), ([-1e9] * 12, 3.0, 0.6)],
)
def test_usual_numbers_beside_a_mask_stay_undecided(masks, port, rounding):
    """Of logits, few are allowed."""
    ours, theirs = (masks + [number] * 4 for number in (port, 1.0))
    found = difference("logits", ours, theirs, 1e-5, rounding=rounding, large=(1e-7, ""))
    assert found.verdict == "undecided"


def test_a_passing_part_hides_no_undecided_one():
    ours, theirs = ([mask] * 4 + [n] * 40 for mask, n in ((-1e4 * (1 + 5e-6), 1.1), (-1e4, 1.0)))
    found = difference("logits", ours, theirs, 1e-5, rounding=0.5, large=(1e-7, ""))
    assert found.verdict == "undecided"


@pytest.mark.parametrize("usual", [7, 80])
def test_one_large_number_is_no_level(usual):
    theirs = np.concatenate([[-3.4e38] * 20, [1200.0], np.linspace(-3, 3, usual)])
    ours = np.where(theirs == 1200, 900, theirs)
    assert difference("scores", ours, theirs, tolerance=1e-4, rounding=1e-3).verdict == "DIFFERS"


@pytest.mark.parametrize(
    ("large", "error"), [([5000.0, 1200.0, 2500.0], 0.001), (np.linspace(900, 5000, 40), 0.5)]
)
def test_numbers_of_many_sizes_are_one_part(large, error):
    """As of a regression whose numbers have many sizes: no constant is there."""
    theirs = np.array([*large, 1.0])
    expected = error / np.linalg.norm(theirs)
    assert relative_error([*large, 1.0 + error], theirs) == pytest.approx(expected)


def test_zeros_make_no_usual_number_large():
    """As the gradient of a table, half of whose rows are not used: the median of all its numbers is
    half of the smallest one, whose error is large.
    """
    row = np.array([1e-7, 2e-3, -1e-3, 4e-3])
    ours = np.array([row + 1e-9, np.zeros(4)])
    theirs = np.array([row, np.zeros(4)])
    assert relative_error(ours, theirs) == pytest.approx(2e-9 / np.linalg.norm(row))
    # still apart from as many usual ones
    huge = np.array([-1e9, -1e9, 3.0, 4.0, 0.0])
    assert relative_error(np.add(huge, [0, 0, 0.3, 0, 0]), huge) == pytest.approx(0.3 / 5)


@pytest.mark.parametrize(
    ("relative", "rounding", "times"),
    [(5e-6, 1e-6, 1.25), (5e-6, 1e-7, 5.0), (3e-6, 1e-6, 0.0), (2e-5, 1e-6, 0.0)],
)
def test_errors_above_four_times_rounding_are_beyond_rounding(relative, rounding, times):
    """Four times the rounding, or a millionth, is explained."""
    item = difference("x", [1.0 + relative], [1.0], 1e-5, rounding)
    assert item.beyond == pytest.approx(times, rel=1e-3)


def test_characters_of_a_text_are_shown_as_such():
    port, reference = (np.array([*map(ord, word)], np.int32) for word in ("cat", "eat"))
    values = difference("logits 0 (text)", port, reference).values()
    assert values == "'c' in the port, 'e' in the reference at [0]"


@pytest.mark.parametrize("value", [-1.0, 2.5, 1e7, math.nan, math.inf])
def test_numbers_that_are_no_characters_are_shown(value):
    """The port's array may have the place of a text by its shape alone."""
    found = difference("logits 0 (text)", np.array([value]), np.array([ord("e")], np.int32))
    assert found.values() == f"{value:.9g} in the port, 101 in the reference at [0]"
