"""What values of 0 and 1, equal lengths and square pictures hide is varied: numbers without a
framework.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.compare.clones import compare_clones
from resnet_fn.parity.compare.constants import unsaved, without_counterpart
from resnet_fn.parity.compare.coverage import coverage_of
from resnet_fn.parity.compare.initial import initial_stage
from resnet_fn.parity.compare.probes import Probed
from resnet_fn.parity.compare.sides import sides_of
from resnet_fn.parity.pair.name_map import NameMap, whole_array
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.variations import variations
from resnet_fn.parity.trace.constants import draw_constants, left_out
from resnet_fn.parity.trace.data import Run, Trace


@pytest.mark.parametrize(
    ("constant", "low", "high"),
    [(2.0, 1, 3), (-2.0, -3, -1), (1e-6, 0.2, 0.8), (-1e-3, -0.8, -0.2), (0.02, 0.01, 0.03)],
)
def test_a_constant_is_drawn_around_itself(constant, low, high):
    (drawn,) = draw_constants({"a": np.full(999, constant, np.float32)}, ()).values()
    assert drawn.dtype == np.float32
    assert low <= drawn.min() < drawn.max() <= high
    assert np.ptp(drawn) > 0.9 * (high - low)


def test_zeros_get_both_signs_but_variances_one():
    arrays = {name: np.zeros(999, np.float32) for name in ("norm.mean", "norm.running_var")}
    mean, variance = draw_constants(arrays, ()).values()
    (positive, _) = draw_constants(arrays, (), positive=True).values()
    assert 0.4 < (mean > 0).mean() < 0.6
    for size in (np.abs(mean), variance, positive):
        assert 0.1 <= size.min() < size.max() <= 0.3


def test_masks_numbers_and_trained_arrays_are_not_drawn():
    ones = np.ones(4, np.float32)
    arrays = {
        "trained": ones,
        "table": np.arange(4, dtype=np.float32),
        "attention_mask": ones,
        "scale": ones[:1],
        "temperature": 0.07 * ones[:1],
        "steps": np.ones(1, np.int64),
        "is_ready": np.ones((), bool),
        "count": np.ones(4, np.int64),
        "hidden": np.ones(4, bool),
        "floor": -np.inf * ones,
    }
    assert draw_constants(arrays, ["trained"]) == {}
    named = {"attention_mask": 1, "scale": 1, "count": 1, "hidden": 1, "floor": -np.inf}
    assert left_out(arrays, ["trained"]) == named


def test_names_of_one_array_get_one_draw():
    arrays = {name: np.ones(4, np.float32) for name in "ab"}
    drawn = draw_constants(arrays, (), tied=[("a", "b")])
    np.testing.assert_array_equal(drawn["a"], drawn["b"])
    part = NameMap("names", {"c": whole_array("b")}, {}, (), tied=(("a", "b"),))
    assert without_counterpart(["a", "b", "x"], part) == ["x"]


def lines_of(inputs: list[Any], probes: tuple[str, ...] = ()) -> list[str]:
    """What is not exercised by two nets without arrays and layers on these inputs."""
    batches = [(given, np.arange(2, dtype=np.int32)) for given in inputs]
    run = Run({}, {}, [0.1, 0.1])
    one = Trace("PyTorch", plan_of(Recipe(), batches), {}, {"eval": []}, run)
    names = NameMap("names", {}, {}, ())
    probed = Probed(agreed={"": probes})
    return list(coverage_of(sides_of(one, one, names, {}, ()), (), probed).not_exercised)


def test_inputs_that_never_change_have_a_line():
    x = np.random.default_rng(0).normal(size=(2, 2, 8)).astype(np.float32)
    others = np.full(2, 8), np.float32([0.5, 0.5]), np.tile(np.arange(8), (2, 1))
    batches = [(one, *others) for one in x]
    constant = ["inputs 1: always 8", "inputs 2: always 0.5", "inputs 3: the same in all samples"]
    for inputs, probes, lines in (
        (batches, (), constant),
        (batches, ("descending lengths (inputs 1)", "every id once (inputs 3)"), constant[1:2]),
        ([*x], (), []),
    ):
        shown = [line for line in lines_of(inputs, probes) if line.startswith("inputs")]
        assert shown == lines


def test_full_lengths_descend_to_half_of_them():
    x, full = np.zeros((4, 8, 3), np.float32), np.full(4, 8, np.int32)
    ((title, variation),) = variations({"x": x, "n": full}).items()
    assert title == "descending lengths (inputs n)"
    lengths = variation.inputs["n"]
    assert lengths.dtype == np.int32
    assert (lengths[0], lengths[-1]) == (8, 4)
    assert (np.diff(lengths) < 0).all()
    kept = variation.of_outputs(np.ones((4, 8, 5)))
    np.testing.assert_array_equal(kept.sum((1, 2)), 5 * lengths)  # padding is not compared
    np.testing.assert_array_equal(variation.of_outputs(np.ones((4, 5))), np.ones((4, 5)))
    assert not variations({"x": x, "classes": np.array([8, 8, 8, 2])})
    assert not variations({"x": x, "classes": np.full(4, 7)})


def test_saved_buffers_kept_elsewhere_are_named():
    buffers = {"norm.mean": True, "mask": False, "table": True}
    run = Run({}, dict.fromkeys(["w", *buffers], np.ones(2)), [0.1])
    reference = Trace("PyTorch", plan_of(Recipe(), [((), ())]), {}, {}, run, buffers=buffers)
    port = dataclasses.replace(reference, attributes={"norm.mean": np.ones(2)})
    named, unnamed = (
        unsaved(
            port, reference, NameMap("names", {one: whole_array(one) for one in paired}, {}, ())
        )
        for paired in (["w"], ["w", "norm.mean", "table"])
    )
    assert unnamed == []
    (line,) = named
    assert line.endswith("norm.mean, which the port has as constant attributes; table")


@pytest.mark.parametrize(
    ("shape", "wide"),
    [
        ((2, 3, 8, 8), (2, 3, 8, 16)),
        ((2, 8, 8, 3), (2, 8, 16, 3)),
        ((2, 3, 4, 8, 8), (2, 3, 4, 8, 16)),
    ],
)
def test_pictures_get_twice_their_width(shape, wide):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    mask = np.ones((2, 8, 8), bool)
    ((title, variation),) = variations((x, mask, np.arange(8))).items()
    assert title == "height ≠ width"
    assert [array.shape for array in variation.inputs] == [wide, (2, 8, 16), (8,)]
    half = np.take(variation.inputs[0], range(8), wide.index(16))
    np.testing.assert_array_equal(half, x)
    assert not variations(np.zeros((2, 3, 8, 6), np.float32))
    assert not variations(np.zeros((2, 8, 8), np.float32))


Law = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
LAWS: dict[str, Law] = {
    "sparse": lambda rng, shape: rng.normal(0, 0.5, shape) * (rng.random(shape) < 0.1),
    "Laplace": lambda rng, shape: rng.laplace(size=shape),
    "Student's t": lambda rng, shape: rng.standard_t(3, shape),
    "Cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "log-normal": lambda rng, shape: rng.lognormal(0, 1.5, shape),
    "outliers": lambda rng, shape: rng.normal(size=shape) * (1 + 99 * (rng.random(shape) < 1e-4)),
}


def compared(one: Law, other: Law, shape: tuple[int, ...], seed: int) -> str:
    sides = []
    for side, law in enumerate((one, other)):
        rng = np.random.default_rng([seed, side])
        sides.append([{"weight": law(rng, shape).astype(np.float32)} for _ in range(5)])
    return initial_stage(*sides).verdict


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_draws_of_a_heavy_tailed_law_agree(law):
    for shape in ((16, 12), (64, 64)):
        assert {compared(law, law, shape, seed) for seed in range(12)} == {"ok"}, shape


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_another_law_than_one_with_heavy_tails_differs(law):
    def doubled(rng, shape):
        return 2 * law(rng, shape)

    def normal(rng, shape):
        return rng.normal(0, law(rng, shape).std(), shape)

    for laws in ((doubled, law), (normal, law), (law, normal)):
        assert compared(*laws, (64, 64), 0) == "DIFFERS"


def test_layers_cloned_on_one_side_are_named():
    rng = np.random.default_rng(0)
    drawn = {f"layers.{index}.weight": rng.normal(size=(4, 4)) for index in range(3)}
    cloned = dict.fromkeys(drawn, drawn["layers.0.weight"])
    for port, reference, words in (
        (drawn, cloned, "in the reference only"),
        (cloned, drawn, "in the port and not in the reference"),
    ):
        differences, (hint,) = compare_clones(port, reference, ())
        assert [(item.name, item.verdict) for item in differences] == [
            ("layers.1.weight", "DIFFERS"),
            ("layers.2.weight", "DIFFERS"),
        ]
        assert words in hint
    both, _ = compare_clones(cloned, dict(cloned), ())
    assert {item.verdict for item in both} == {"ok"}
    zeros = dict.fromkeys(drawn, np.zeros(4))
    for port, reference, tied in (
        (drawn, drawn, ()),
        (drawn, cloned, [list(drawn)]),  # one array, not copies
        (zeros, drawn, ()),
    ):
        assert compare_clones(port, reference, tied) == ([], [])
