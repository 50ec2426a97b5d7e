"""Changes: what updates move is compared by its change, on traces made by hand."""

import dataclasses
from typing import Any

import numpy as np
import pytest

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

ARRAYS = ("net.w", "net.b", "teacher")
NAMES = NameMap("names", {name: whole_array(name) for name in ARRAYS}, {}, ())
START = {
    "net.w": np.linspace(0.1, 1, 64).astype(np.float32),
    "net.b": np.linspace(-1, -0.1, 64).astype(np.float32),
    "teacher": np.linspace(0.5, 0.6, 64).astype(np.float32),
}
BATCHES = [(np.zeros((2, 3), np.float32), np.zeros(2, np.int32))] * 3


def moved(change: float, after: int, **others: Any) -> Arrays:
    """The arrays after some updates, each of which subtracts `change` from all but the teacher."""
    given = {"net.w": change, "net.b": change, "teacher": 0.0, **others}
    return {name: START[name] - np.asarray(given[name] * after, np.float32) for name in ARRAYS}


def run(after: list[Arrays], **fields: Any) -> Run:
    ones = {name: np.ones(64, np.float32) for name in ("net.w", "net.b")}
    values: dict[str, Any] = {"gradients": ones, "clipped": ones, "losses": [1.0] * 3} | fields
    return Run({"logits": np.ones(2)}, START, [0.1] * 3, after, norms=[1.0] * 3, **values)


def trace(after: list[Arrays], optimizer: str = "sgd", **fields: Any) -> Trace:
    recipe = Recipe(optimizer=optimizer, nesterov=False, clip_norm=0.0)
    trained = {"trainable": ["net.w", "net.b"]}
    of_trace = {one.name for one in dataclasses.fields(Trace)}
    own = {name: value for name, value in fields.items() if name in of_trace}
    rest = {name: value for name, value in fields.items() if name not in of_trace}
    made = run(after, train_outputs=[{"logits": np.ones(2)}] * 3, **rest)
    layers: dict[str, Any] = {"eval": [], "train": []}
    return Trace("PyTorch", plan_of(recipe, BATCHES), START, layers, made, **{**trained, **own})


def stages(port: Trace, reference: Trace) -> dict[str, Stage]:
    sides = sides_of(port, reference, NAMES, {}, ARRAYS)
    return {title_of_stage(stage): stage for stage in compare_stages(sides)}


def three(change: float, **others: Any) -> list[Arrays]:
    return [moved(change, update, **others) for update in (1, 2, 3)]


@pytest.mark.parametrize("change", [1e-2, 1e-5])
def test_a_step_that_stops_after_update_1_differs(change):
    port = [moved(change, 1)] * 3
    found = stages(trace(port), trace(three(change)))
    assert found["change by update 1"].verdict == "ok"
    assert found["weights after update 3"].verdict == "DIFFERS"
    assert stages(trace(three(change)), trace(three(change)))["weights after update 3"].verdict == (
        "ok"
    )


@pytest.mark.parametrize("change", [2e-6, 1e-3])
def test_a_frozen_array_moved_by_one_side_differs(change):
    still, moving = trace(three(1e-3)), trace(three(1e-3, teacher=change))
    for sides in ((still, moving), (moving, still)):
        stage = stages(*sides)["weights after update 3"]
        assert (stage.verdict, stage.first and stage.first.name) == ("DIFFERS", "teacher")
    stage = stages(moving, trace(three(1e-3, teacher=2 * change)))["weights after update 3"]
    assert stage.verdict == "DIFFERS"  # another momentum
    assert stages(moving, moving)["weights after update 3"].verdict == "ok"


def test_a_change_below_float32_is_not_exercised():
    result = verdict(trace(three(1e-8)), trace(three(1e-8)), NAMES)
    by_title = {title_of_stage(stage): stage for stage in result.stages}
    assert by_title["weights after update 3"].too_small == ["net.w", "net.b"]
    assert "rate too small to see the change of net.w, net.b" in result.coverage.not_exercised


@pytest.mark.parametrize("array", ["net.w", "teacher"])
@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.15, False)])
def test_large_changes_have_bounds_of_their_own(array, factor, agrees):
    """The last place of all weights, as a part of the usual changes alone, would be 22 % of the
    few large ones.
    """
    usual = np.full(64, 4e-7)
    of_reference, of_port = usual.copy(), usual.copy()
    of_reference[:2], of_port[:2] = 1e-3, 1e-3 * factor
    port, reference = (trace(three(1e-3, **{array: change})) for change in (of_port, of_reference))
    result = stages(port, reference)
    assert (result["weights after update 3"].verdict != "DIFFERS") is agrees


@pytest.mark.parametrize(("part", "agrees"), [(0, True), (1e-7, True), (1e-5, False)])
def test_a_gradient_that_is_none_must_be_tiny(part, agrees):
    w = np.ones(64, np.float32)
    of_port = {"net.w": w, "net.b": part * w}
    of_reference = {"net.w": w, "net.b": 0 * w}
    port = trace(three(1e-3, **{"net.b": 0.0}), gradients=of_port, clipped=of_port)
    reference = trace(
        three(1e-3, **{"net.b": 0.0}),
        gradients=of_reference,
        clipped=of_reference,
        no_gradient=["net.b"],
    )
    stage = stages(port, reference)["gradients"]
    assert (stage.verdict == "ok") is agrees
    assert bool(stage.hints) is not agrees


def gradients_beside_none(in_none, in_other, of_other):
    """Compare gradients, of which the first half of `net.b` is None in the reference, and the other
    `of_other`.
    """
    w, half = np.ones(64, np.float32), np.ones(32, np.float32)
    of_reference = {"net.w": w, "first": 0 * half, "second": of_other * half}
    of_port = {"net.w": w, "net.b": np.concatenate([in_none * half, in_other * half])}
    made_of = {"net.w": whole_array("net.w"), "net.b": MadeOf((Part("first"), Part("second")))}
    names = NameMap("names", made_of, {}, ())
    reference = trace([], gradients=of_reference, clipped=of_reference, no_gradient=["first"])
    port = trace([], gradients=of_port, clipped=of_port)
    return Gradients().stage(sides_of(port, reference, names, {}, made_of))


@pytest.mark.parametrize(
    ("in_none", "in_zeros", "agrees"), [(0.0, 1e-9, True), (1e-7, 0.0, True), (5e-5, 0.0, False)]
)
def test_a_none_joined_with_zeros_must_be_tiny(in_none, in_zeros, agrees):
    """Of `net.b`, the first half has the gradient None, and the second half one of zeros."""
    stage = gradients_beside_none(in_none, in_zeros, 0)
    assert [one.name for one in stage.differences] == ["net.b", "net.w"]
    assert (stage.verdict == "ok") is agrees


@pytest.mark.parametrize(("in_none", "in_other", "hinted"), [(0.5, 1.0, True), (0.0, 1.5, False)])
def test_only_a_part_that_is_none_is_hinted(in_none, in_other, hinted):
    """Of `net.b`, the first half has the gradient None, and the second half one of ones."""
    stage = gradients_beside_none(in_none, in_other, 1)
    assert stage.verdict == "DIFFERS"
    assert bool(stage.hints) is hinted


@pytest.mark.parametrize(("part", "agrees"), [(1e-7, True), (1e-5, False)])
def test_a_clipped_none_must_be_tiny_beside_others(part, agrees):
    """Clipping leaves a thousandth of all gradients."""
    w = np.ones(64, np.float32)
    still = three(1e-6, **{"net.b": 0.0})
    gradients, clipped = {"net.w": w, "net.b": 0 * w}, {"net.w": 1e-3 * w, "net.b": 0 * w}
    of_port = {**clipped, "net.b": 1e-3 * part * w}
    none = ["net.b"]
    port = trace(still, gradients=gradients, clipped=of_port)
    reference = trace(still, gradients=gradients, clipped=clipped, no_gradient=none)
    found = stages(port, reference)
    assert found["gradients"].verdict == "ok"
    assert (found["clipped gradients"].verdict == "ok") is agrees


@pytest.mark.parametrize(("change", "agrees"), [(-1e-3, True), (1e-3, False), (0.0, True)])
def test_without_gradient_only_decay_may_move_weights(change, agrees):
    """`net.b` is negative: adding to it decays it, subtracting from it does not."""
    w = np.ones(64, np.float32)
    for gradient in (0.0, 1e-8):  # Adam moves a weight as far for a tiny gradient
        of_port = {"net.w": w, "net.b": gradient * w}
        of_reference = {"net.w": w, "net.b": 0 * w}
        port = trace(three(1e-3, **{"net.b": change}), "adam", gradients=of_port, clipped=of_port)
        reference = trace(
            three(1e-3, **{"net.b": 0.0}),
            "adam",
            gradients=of_reference,
            clipped=of_reference,
            no_gradient=["net.b"],
        )
        found = stages(port, reference)
        right = agrees and not (gradient and change)
        for title in ("change by update 1", "weights after update 3"):
            assert (found[title].verdict == "ok") is right, (title, gradient)


@pytest.mark.parametrize("start", [START["net.b"], np.zeros(64, np.float32)])
def test_a_later_move_without_gradient_differs(start, monkeypatch):
    """Update 1 leaves `net.b` on both sides; the port's update 2 moves it away from 0."""
    monkeypatch.setitem(START, "net.b", start)
    w = np.ones(64, np.float32)
    gradients = {"net.w": w, "net.b": 0 * w}
    still = three(1e-3, **{"net.b": 0.0})
    moving = [still[0], *three(1e-3, **{"net.b": 1e-3})[1:]]
    fields: dict[str, Any] = {"gradients": gradients, "clipped": gradients}
    fields["no_gradient"] = ["net.b"]
    found = stages(trace(moving, **fields), trace(still, **fields))
    assert found["change by update 1"].verdict == "ok"
    assert found["weights after update 3"].first.name == "net.b"


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
    """The reference keeps `net.b`, whose gradient is zeros, and SGD moves it in the port alone."""
    w = np.ones(64, np.float32)
    of_reference = {"net.w": w, "net.b": 0 * w}
    still = three(1.0, **{"net.b": 0.0})
    reference = trace(still, gradients=of_reference, clipped=of_reference)
    measured = {GRADIENTS: {"net.w": 1e-7, "net.b": rounding}}
    moves = (0.0, 1e-8, 1e-6, 3e-4, 1e-2)
    for title in ("change by update 1", "weights after update 3"):
        verdicts = []
        for move in moves:
            of_port = {"net.w": w, "net.b": move * w}
            moving = three(1.0, **{"net.b": move})
            port = trace(moving, gradients=of_port, clipped=of_port)
            sides = sides_of(port, reference, NAMES, measured, ARRAYS)
            by_title = {title_of_stage(stage): stage for stage in compare_stages(sides)}
            verdicts.append(by_title[title].verdict)
        assert verdicts == expected, title


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_move_beside_nothing_that_moves_differs(rate):
    """Without any change of the reference's, there is no stage to be a part of."""
    w = np.ones(64, np.float32)
    gradients = {"net.w": w, "net.b": 0 * w}
    of_run = {"gradients": gradients, "clipped": gradients}
    reference = trace(three(0.0), **of_run)
    reference.run.rates = [rate] * 3
    port = trace(three(0.0, **{"net.b": 1e-5}), **of_run)
    port.run.rates = [rate] * 3
    measured = {GRADIENTS: {"net.b": 1.0}}
    sides = sides_of(port, reference, NAMES, measured, ARRAYS)
    by_title = {title_of_stage(stage): stage for stage in compare_stages(sides)}
    assert by_title["change by update 1"].verdict == "DIFFERS"


@pytest.mark.parametrize(("fault", "update", "expected"), [(0, 2, "ok"), (0.01, 3, "DIFFERS")])
def test_a_decided_difference_stays_in_a_chaotic_training(fault, update, expected):
    """Rounding decides about `net.w` after update 3, and about nothing after update 2."""
    right = three(0.1)
    port = [*right[:2], moved(0.1, 3, **{"net.w": 0.12, "net.b": 0.1 + fault})]
    of_last = {"net.w": 1.0, "net.b": 1e-6}
    rounding = {LAST: of_last, dataclasses.replace(LAST, update=2): dict.fromkeys(of_last, 1e-6)}
    sides = sides_of(trace(port), trace(right), NAMES, rounding, ARRAYS)
    stage = next(one for one in compare_stages(sides) if one.id.name == LAST.name)
    assert (stage.id.update, stage.verdict) == (update, expected)
    assert [one.name for one in stage.differences if one.verdict == "DIFFERS"] == (
        ["net.b"] if fault else []
    )


def test_nan_in_an_array_that_keeps_differs():
    port = trace(three(1e-3, teacher=np.nan))
    stage = stages(port, trace(three(1e-3)))["weights after update 3"]
    assert (stage.verdict, stage.first and stage.first.name) == ("DIFFERS", "teacher")


def test_an_average_that_never_moves_differs():
    """A decay of 0.9999 moves the average by 1e-6 in three updates."""
    average = moved(1e-6, 1)
    reference = trace(three(1e-3), average=average)
    still = trace(three(1e-3), average=START)
    title = "averaged weights after the last update"
    assert stages(still, reference)[title].verdict == "DIFFERS"
    assert stages(reference, reference)[title].verdict == "ok"


@pytest.mark.parametrize("count", [1, 3])
def test_a_counter_is_compared_exactly(count):
    def counting(by: int) -> Trace:
        states = [{**state, "teacher": np.array(by * k)} for k, state in enumerate(three(1e-3), 1)]
        one = trace(states)
        one.run.start = {**START, "teacher": np.array(0)}
        return one

    stage = stages(counting(count), counting(1))["weights after update 3"]
    assert stage.verdict == ("ok" if count == 1 else "DIFFERS")


@pytest.mark.parametrize("moved", [{}, {"teacher": "training"}])
def test_counters_that_change_no_output_are_named(moved):
    """A period of a thousand updates is not seen."""
    states = [{**state, "teacher": np.array(k)} for k, state in enumerate(three(1e-3), 1)]
    one = trace(states, buffers={"teacher": True}, moved=moved)
    one.run.start = {**START, "teacher": np.array(0)}
    lines = verdict(one, one, NAMES).coverage.not_exercised
    assert any(line.startswith("teacher: counts") for line in lines) is not bool(moved)


def test_state_that_the_port_alone_moves_is_named():
    """A schedule may begin after a thousand updates."""
    names = NameMap("names", {name: whole_array(name) for name in ("net.w", "net.b")}, {}, ())
    for name, moves in (("step", 0), ("step", 1), ("norm.num_batches_tracked", 1)):
        states = [{**state, name: np.array(moves * k)} for k, state in enumerate(three(1e-3), 1)]
        port, reference = trace(states), trace(three(1e-3))
        port.run.start = {**START, name: np.array(0)}
        lines = verdict(port, reference, names).coverage.not_exercised
        named = [line for line in lines if f"{name}: updates move it in the port" in line]
        assert len(named) == (moves if name == "step" else 0)


@pytest.mark.parametrize(
    ("port", "reference", "buffers", "words"),
    [
        (["net.w", "teacher"], ["net.w"], {"teacher": True}, "in the port, a buffer in"),
        (["net.w", "teacher"], ["net.w"], {"teacher": False}, "in the port, a buffer in"),
        (["net.w", "teacher"], ["net.w"], {}, "trained in the port, frozen in the reference"),
        (["net.w"], ["net.w", "teacher"], {}, "frozen in the port, trained in the reference"),
    ],
)
def test_arrays_that_only_one_side_trains_are_named(port, reference, buffers, words):
    sides = trace([], trainable=port), trace([], trainable=reference, buffers=buffers)
    stage = stages(*sides)["trained arrays"]
    assert stage.verdict == "DIFFERS"
    assert [line.partition(":")[0] for line in stage.hints] == ["teacher"]
    assert words in stage.hints[0]
    assert stages(sides[0], sides[0])["trained arrays"].verdict == "ok"


def test_usual_numbers_that_float32_hides_are_named():
    """Beside a large change, which is compared."""
    change = np.full(64, 2e-7)
    change[0] = 1e-3
    result = verdict(*(trace(three(1e-3, teacher=change)) for _ in range(2)), NAMES)
    stage = next(one for one in result.stages if one.id.of_any_update == LAST)
    assert stage.too_small == ["teacher (its usual numbers)"]
    words = "rate too small to see the change of teacher (its usual numbers)"
    assert words in result.coverage.not_exercised
