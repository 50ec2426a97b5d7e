"""Changes: what updates move is compared by its change, on traces made by hand."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from pure.test_verdict import stage_of
from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.compare.comparing import compare_stages
from resnet_fn.parity.compare.parameters import Gradients
from resnet_fn.parity.compare.sides import sides_of
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.compare.verdict import verdict
from resnet_fn.parity.pair.name_map import MadeOf, NameMap, Part, whole_array
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.stages import GRADIENTS, LAST
from resnet_fn.parity.trace.tree import Arrays

ARRAYS = ("w", "b", "teacher")
NAMES = NameMap("names", {name: whole_array(name) for name in ARRAYS}, {}, ())
START = {
    "w": np.linspace(0.1, 1, 64).astype(np.float32),
    "b": np.linspace(-1, -0.1, 64).astype(np.float32),
    "teacher": np.linspace(0.5, 0.6, 64).astype(np.float32),
}
BATCHES = [(np.zeros((2, 3), np.float32), np.zeros(2, np.int32))] * 3
FIRST, LATER = "change by update 1", "weights after update 3"


def moved(change: float, after: int, **others) -> Arrays:
    """The arrays after some updates, each of which subtracts `change` from all but the teacher."""
    changes = {"w": change, "b": change, "teacher": 0.0, **others}
    return {name: START[name] - np.asarray(changes[name] * after, np.float32) for name in ARRAYS}


def three(change: float, **others) -> list[Arrays]:
    return [moved(change, update, **others) for update in (1, 2, 3)]


def of_size(b: float) -> Arrays:
    """Gradients of w, which are ones, and of b."""
    return {name: np.full(64, size, np.float32) for name, size in (("w", 1), ("b", b))}


def trace(
    after: list[Arrays],
    optimizer: str = "sgd",
    trainable=("w", "b"),
    buffers=None,
    **fields,
) -> Trace:
    """A recording of these states; `fields` are further ones of its run."""
    outputs, ones = {"logits": np.ones(2)}, [1.0] * 3
    fields = {"gradients": of_size(1), **fields}
    fields = {"clipped": fields["gradients"], **fields}
    run = Run(outputs, START, [0.1] * 3, after, [outputs] * 3, ones, ones, **fields)
    plan = plan_of(Recipe(optimizer=optimizer, nesterov=False, clip_norm=0.0), BATCHES)
    layers: dict[str, Any] = {"eval": [], "train": []}
    return Trace("", plan, START, layers, run, trainable=trainable, buffers=buffers or {})


def stages(port: Trace, reference: Trace, rounding=None) -> dict[str, Stage]:
    sides = sides_of(port, reference, NAMES, rounding or {}, ARRAYS)
    return {title_of_stage(stage): stage for stage in compare_stages(sides)}


@pytest.mark.parametrize("change", [1e-2, 1e-5])
def test_a_step_that_stops_after_update_1_differs(change):
    right = trace(three(change))
    wrong = stages(trace([moved(change, 1)] * 3), right)
    assert (wrong[FIRST].verdict, wrong[LATER].verdict) == ("ok", "DIFFERS")
    assert stages(right, right)[LATER].verdict == "ok"


@pytest.mark.parametrize("change", [2e-6, 1e-3])
def test_a_frozen_array_moved_by_one_side_differs(change):
    still, moving = trace(three(1e-3)), trace(three(1e-3, teacher=change))
    for sides in ((still, moving), (moving, still)):
        stage = stages(*sides)[LATER]
        assert (stage.verdict, stage.first and stage.first.name) == ("DIFFERS", "teacher")
    stage = stages(moving, trace(three(1e-3, teacher=2 * change)))[LATER]
    assert stage.verdict == "DIFFERS"  # another momentum
    assert stages(moving, moving)[LATER].verdict == "ok"


def test_a_change_below_float32_is_not_exercised():
    both = trace(three(1e-8))
    result = verdict(both, both, NAMES)
    assert stage_of(result, LAST).too_small == ["w", "b"]
    assert "rate too small to see the change of w, b" in result.coverage.not_exercised


@pytest.mark.parametrize("array", ["w", "teacher"])
@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.15, False)])
def test_large_changes_have_bounds_of_their_own(array, factor, agrees):
    """The last place of all weights, as a part of the usual changes alone, would be 22 % of the
    few large ones.
    """
    usual = np.full(62, 4e-7)
    port, reference = (
        trace(three(1e-3, **{array: np.concatenate([[large] * 2, usual])}))
        for large in (1e-3 * factor, 1e-3)
    )
    assert (stages(port, reference)[LATER].verdict != "DIFFERS") is agrees


@pytest.mark.parametrize(("part", "agrees"), [(0, True), (1e-7, True), (1e-5, False)])
def test_a_gradient_that_is_none_must_be_tiny(part, agrees):
    still = three(1e-3, b=0.0)
    reference = trace(still, gradients=of_size(0), no_gradient=["b"])
    stage = stages(trace(still, gradients=of_size(part)), reference)["gradients"]
    assert (stage.verdict == "ok") is agrees
    assert bool(stage.hints) is not agrees


@pytest.mark.parametrize(
    ("of_other", "in_none", "in_other", "agrees", "hinted"),
    [
        (0, 0.0, 1e-9, True, False),
        (0, 1e-7, 0.0, True, False),
        (0, 5e-5, 0.0, False, True),
        (1, 0.5, 1.0, False, True),
        (1, 0.0, 1.5, False, False),
    ],
)
def test_a_none_joined_with_others_must_be_tiny(of_other, in_none, in_other, agrees, hinted):
    """In the reference, the gradient of the first half of `b` is None, and of the second half
    `of_other`.
    """
    first, second, size = Part("first"), Part("second"), np.ones(32, np.float32)
    made_of = {"w": whole_array("w"), "b": MadeOf((first, second))}
    of_reference = {"w": np.ones(64), "first": 0 * size, "second": of_other * size}
    of_port = {"w": np.ones(64), "b": np.concatenate([in_none * size, in_other * size])}
    reference = trace([], gradients=of_reference, no_gradient=["first"])
    names = NameMap("names", made_of, {}, ())
    port = trace([], gradients=of_port)
    stage = Gradients().stage(sides_of(port, reference, names, {}, made_of))
    assert [item.name for item in stage.differences] == ["b", "w"]
    assert (stage.verdict == "ok", bool(stage.hints)) == (agrees, hinted)


@pytest.mark.parametrize(("part", "agrees"), [(1e-7, True), (1e-5, False)])
def test_a_clipped_none_must_be_tiny_beside_others(part, agrees):
    """Clipping leaves a thousandth of all gradients."""
    still = three(1e-6, b=0.0)
    port, reference = (
        {name: 1e-3 * array for name, array in of_size(b).items()} for b in (part, 0)
    )
    result = stages(
        trace(still, gradients=of_size(0), clipped=port),
        trace(still, gradients=of_size(0), clipped=reference, no_gradient=["b"]),
    )
    assert result["gradients"].verdict == "ok"
    assert (result["clipped gradients"].verdict == "ok") is agrees


@pytest.mark.parametrize("gradient", [0.0, 1e-8])  # Adam moves a weight as far for a tiny one
@pytest.mark.parametrize(("change", "decays"), [(-1e-3, True), (1e-3, False), (0.0, True)])
def test_without_gradient_only_decay_may_move_weights(change, decays, gradient):
    """`b` is negative: adding to it decays it, subtracting from it does not."""
    port = trace(three(1e-3, b=change), "adam", gradients=of_size(gradient))
    reference = trace(three(1e-3, b=0.0), "adam", gradients=of_size(0), no_gradient=["b"])
    result = stages(port, reference)
    right = decays and not (gradient and change)
    assert [result[title].verdict == "ok" for title in (FIRST, LATER)] == [right] * 2


@pytest.mark.parametrize("start", [START["b"], np.zeros(64, np.float32)])
def test_a_later_move_without_gradient_differs(start, monkeypatch):
    """Update 1 leaves `b` on both sides; the port's update 2 moves it away from 0."""
    monkeypatch.setitem(START, "b", start)
    still = three(1e-3, b=0.0)
    moving = [still[0], *three(1e-3, b=1e-3)[1:]]
    port, reference = (
        trace(after, gradients=of_size(0), no_gradient=["b"]) for after in (moving, still)
    )
    result = stages(port, reference)
    assert result[FIRST].verdict == "ok"
    assert result[LATER].first.name == "b"


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        # zeros also in float64 and under noise: no rounding excuses any move
        (0.0, ["ok", "ok", "DIFFERS", "DIFFERS", "DIFFERS"]),
        # zeros by the rounding of float32 alone: a part of the stage
        (1.0, ["ok", "ok", "ok", "ok", "DIFFERS"]),
    ],
)
def test_no_smaller_move_is_judged_harder(rounding, expected):
    """The reference keeps `b`, whose gradient is zeros, and SGD moves it in the port alone."""
    reference = trace(three(1.0, b=0.0), gradients=of_size(0))
    measured = {GRADIENTS: {"w": 1e-7, "b": rounding}}
    results = [
        stages(trace(three(1.0, b=move), gradients=of_size(move)), reference, measured)
        for move in (0.0, 1e-8, 1e-6, 3e-4, 1e-2)
    ]
    for title in (FIRST, LATER):
        assert [result[title].verdict for result in results] == expected, title


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_move_beside_nothing_that_moves_differs(rate):
    """Without any change of the reference's, there is no stage to be a part of."""
    port, reference = (trace(three(0.0, b=change), gradients=of_size(0)) for change in (1e-5, 0.0))
    port.run.rates = reference.run.rates = [rate] * 3
    result = stages(port, reference, {GRADIENTS: {"b": 1.0}})
    assert result[FIRST].verdict == "DIFFERS"


@pytest.mark.parametrize(("fault", "update", "differing"), [(0, 2, []), (0.01, 3, ["b"])])
def test_a_decided_difference_stays_in_a_chaotic_training(fault, update, differing):
    """Rounding decides about `w` after update 3, and about nothing after update 2."""
    right = three(0.1)
    port = [*right[:2], moved(0.1, 3, w=0.12, b=0.1 + fault)]
    before = dataclasses.replace(LAST, update=2)
    rounding = {LAST: {"w": 1.0, "b": 1e-6}, before: {"w": 1e-6, "b": 1e-6}}
    result = stages(trace(port), trace(right), rounding)
    stage = next(stage for stage in result.values() if stage.id.name == LAST.name)
    assert stage.id.update == update
    assert stage.verdict == ("DIFFERS" if fault else "ok")
    assert [item.name for item in stage.differences if item.verdict == "DIFFERS"] == differing


def test_nan_in_an_array_that_keeps_differs():
    stage = stages(trace(three(1e-3, teacher=np.nan)), trace(three(1e-3)))[LATER]
    assert (stage.verdict, stage.first and stage.first.name) == ("DIFFERS", "teacher")


def test_an_average_that_never_moves_differs():
    """A decay of 0.9999 moves the average by 1e-6 in three updates."""
    still, moving = (trace(three(1e-3), average=average) for average in (START, moved(1e-6, 1)))
    title = "averaged weights after the last update"
    assert stages(still, moving)[title].verdict == "DIFFERS"
    assert stages(moving, moving)[title].verdict == "ok"


def counting(name: str, by: int, **fields) -> Trace:
    """A recording in which each update adds a number to a counter."""
    counts = [{**state, name: np.array(by * k)} for k, state in enumerate(three(1e-3), 1)]
    recorded = trace(counts, **fields)
    recorded.run.start = {**START, name: np.array(0)}
    return recorded


@pytest.mark.parametrize(("count", "expected"), [(1, "ok"), (3, "DIFFERS")])
def test_a_counter_is_compared_exactly(count, expected):
    result = stages(counting("teacher", count), counting("teacher", 1))
    assert result[LATER].verdict == expected


@pytest.mark.parametrize("moved", [{}, {"teacher": "training"}])
def test_counters_that_change_no_output_are_named(moved):
    """A period of a thousand updates is not seen."""
    both = counting("teacher", 1, buffers={"teacher": True}, moved=moved)
    lines = verdict(both, both, NAMES).coverage.not_exercised
    assert any(line.startswith("teacher: counts") for line in lines) is not bool(moved)


@pytest.mark.parametrize(
    ("name", "moves", "named"), [("step", 0, 0), ("step", 1, 1), ("norm.num_batches_tracked", 1, 0)]
)
def test_state_that_the_port_alone_moves_is_named(name, moves, named):
    """A schedule may begin after a thousand updates."""
    names = NameMap("names", {name: whole_array(name) for name in ("w", "b")}, {}, ())
    result = verdict(counting(name, moves), trace(three(1e-3)), names)
    words = f"{name}: updates move it in the port"
    assert sum(words in line for line in result.coverage.not_exercised) == named


@pytest.mark.parametrize(
    ("port", "reference", "buffers", "words"),
    [
        (["w", "teacher"], ["w"], {"teacher": True}, "in the port, a buffer in"),
        (["w", "teacher"], ["w"], {"teacher": False}, "in the port, a buffer in"),
        (["w", "teacher"], ["w"], {}, "trained in the port, frozen in the reference"),
        (["w"], ["w", "teacher"], {}, "frozen in the port, trained in the reference"),
    ],
)
def test_arrays_that_only_one_side_trains_are_named(port, reference, buffers, words):
    sides = trace([], trainable=port), trace([], trainable=reference, buffers=buffers)
    stage = stages(*sides)["trained arrays"]
    assert stage.verdict == "DIFFERS"
    (line,) = stage.hints
    assert line.startswith("teacher:")
    assert words in line
    assert stages(sides[0], sides[0])["trained arrays"].verdict == "ok"


def test_usual_numbers_that_float32_hides_are_named():
    """Beside a large change, which is compared."""
    both = trace(three(1e-3, teacher=np.array([1e-3] + [2e-7] * 63)))
    result = verdict(both, both, NAMES)
    assert stage_of(result, LAST).too_small == ["teacher (its usual numbers)"]
    words = "rate too small to see the change of teacher (its usual numbers)"
    assert words in result.coverage.not_exercised
