"""Stages: rounding, differences, and stages that are skipped with a note."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from resnet_fn.parity.batches import make_batches
from resnet_fn.parity.compare.allowed import tie_width
from resnet_fn.parity.compare.comparing import compare_stages
from resnet_fn.parity.compare.inputs import Inputs
from resnet_fn.parity.compare.sides import sides_of
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.pair.name_map import MadeOf, NameMap, Part, whole_array
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.rounding import changing, with_noise
from resnet_fn.parity.record.rounding import rounding as measured_rounding
from resnet_fn.parity.show.titles import title_of, title_of_stage
from resnet_fn.parity.trace.data import Rounding, Run, Trace
from resnet_fn.parity.trace.difference import difference, relative_error
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.stages import CLIPPED, EVAL_FORWARD, GRADIENTS
from resnet_fn.parity.trace.tree import Arrays
from resnet_fn.recipes import recipe

TASK = plan_of(recipe("digits"), make_batches(2, 4, 1, 2, 3))
NAMES = NameMap("names", {"w": whole_array("w"), "mean": whole_array("mean")}, {}, ())


def traces(**apart: float) -> tuple[Run, Run, Run]:
    """MindSpore's side, PyTorch's and its float64 values; `apart` shifts MindSpore's, PyTorch's is
    off by 1e-3.
    """

    def trace(shift: float = 0.0, **apart: float) -> Run:
        eval_outputs, after, train_outputs, losses, gradients = (
            np.ones(4) * (1 + shift) * (1 + apart.get(name, 0.0))
            for name in ("eval_outputs", "after", "train_outputs", "losses", "gradients")
        )
        return Run(
            eval_outputs={"logits": eval_outputs},
            start={"w": np.full(4, 0.5), "mean": np.zeros(4)},
            rates=[0.1, 0.2],
            after=[{"w": after, "mean": after}],
            train_outputs=[{"logits": train_outputs}] * 2,
            losses=[float(losses[0])] * 2,
            norms=[2.0, 2.0],
            gradients={"w": gradients},
            clipped={"w": gradients},
        )

    return trace(**apart), trace(1e-3), trace()


def update(run: Run, gradients: Arrays, changes: Arrays, start: float = 0.5):
    """Set a run's gradients, and what its first update changes."""
    run.gradients = run.clipped = gradients
    run.start = {name: np.full_like(change, start) for name, change in changes.items()}
    run.after = [{name: start + change for name, change in changes.items()}]


def compared_with(
    ours: Run,
    theirs: Run,
    known: Rounding,
    names: NameMap = NAMES,
    order: Sequence[str] = ("w", "mean"),
    plan: Plan = TASK,
) -> dict[str, Stage]:
    """The stages by name, with this rounding."""
    sides = [Trace("", plan, {}, {}, run) for run in (ours, theirs)]
    stages = compare_stages(sides_of(*sides, names, known, order))
    return {title_of_stage(stage): stage for stage in stages}


def compared(ours: Run, theirs: Run, *exact: Run, **options) -> dict[str, Stage]:
    """`exact` is the reference in float64; none: without rounding."""
    known = measured_rounding(theirs, *exact) if exact else {}
    return compared_with(ours, theirs, known, **options)


def test_only_the_references_rounding_is_allowed():
    # MindSpore's eval outputs are 1.0 · (1 + 2e-3): 1e-3 from the reference, which is 1e-3 from
    # float64.
    by_name = compared(*traces(eval_outputs=2e-3, gradients=1e-2))
    for name, expected in (
        ("weights", "ok"),
        ("eval forward", "rounding"),
        ("gradients", "DIFFERS"),
        ("learning rate", "ok"),
    ):
        assert by_name[name].verdict == expected, name
    titles = [title_of(item.id) for item in by_name["learning rate"].differences]
    assert titles == ["update 1", "update 2"]
    (statistics,) = by_name["BatchNorm statistics after update 1"].differences
    assert statistics.name == "mean"


def test_a_loss_may_differ_as_its_outputs_do():
    ours, theirs, exact = traces(losses=5e-4)
    theirs.losses = exact.losses  # close to float64 by luck
    stage = compared(ours, theirs, exact)["loss"]
    assert (stage.verdict, stage.differences[0].rounding) == ("rounding", pytest.approx(1e-3))
    theirs.train_outputs = exact.train_outputs
    assert compared(ours, theirs, exact)["loss"].verdict == "DIFFERS"


def test_losses_are_compared_until_rounding_hides_them():
    ours, theirs, exact = traces()
    for run, third, last in ((ours, 1.2, 1.3), (theirs, 1.1, 1.2), (exact, 1.001, 1.0)):
        run.losses, run.train_outputs = [1, 1, third, last], []
    stage = compared(ours, theirs, exact)["loss trajectory"]
    assert stage.verdict == "ok"
    assert [title_of(item.id) for item in stage.differences] == ["update 1", "update 2"]
    words = "without 2 losses, the first of update 3: a relative rounding error of 0.099 in "
    assert stage.note.startswith(words)
    ours.losses[3] = 2.5  # further than that
    assert compared(ours, theirs, exact)["loss trajectory"].first.id.update == 4


def test_a_zero_gradient_must_be_small():
    ours, theirs, exact = traces()
    for trace, noise in ((ours, 3e-9), (theirs, -2e-9), (exact, 1e-25)):
        trace.gradients = {"w": np.ones(4), "mean": np.full(4, noise)}
    assert compared(ours, theirs, exact)["gradients"].verdict == "ok"  # beside all gradients
    ours.gradients["mean"] = np.full(4, 1e-3)  # no rounding of gradients of size 1
    stage = compared(ours, theirs, exact)["gradients"]
    assert (stage.verdict, stage.first.name) == ("DIFFERS", "mean")


@pytest.mark.parametrize(("spread", "expected"), [(0.15, "ok"), (0.01, "DIFFERS")])
def test_gradients_changed_by_noise_count_as_rounding(spread, expected):
    ours, theirs, exact = traces()
    for run, tiny in ((ours, -1.5e-8), (theirs, -2.2e-8), (exact, -2.19e-8)):
        run.gradients = run.clipped = {"w": np.ones(4), "mean": np.full(4, tiny)}
    of_noise = {stage: {"mean": spread} for stage in (GRADIENTS, CLIPPED)}
    known = with_noise(measured_rounding(theirs, exact), [of_noise])
    by_name = compared_with(ours, theirs, known)
    assert [by_name[stage.name].verdict for stage in (GRADIENTS, CLIPPED)] == [expected] * 2
    assert known[CLIPPED]["mean"] == known[GRADIENTS]["mean"]


def test_integers_change_by_drawn_constants_too():
    def run(ids: list[int], drawn: list[int]) -> Run:
        of_constants = Run({"ids": np.array(drawn)}, {}, [])
        return Run({"ids": np.array(ids)}, {}, [], drawn=[of_constants])

    masks = changing(run([1, 2], [3, 4]), [run([1, 0], [0, 4])])
    assert masks[EVAL_FORWARD]["ids"].tolist() == [False, True]
    with_constants = dataclasses.replace(EVAL_FORWARD, drawn=True)
    assert masks[with_constants]["ids"].tolist() == [True, False]


def test_a_parts_rounding_stays_below_its_tolerance():
    ours, theirs, _ = traces()
    for run, name, gradient in (
        (ours, "q", np.full(4, 1.02e-4)),
        (theirs, "w", np.repeat([1e-4, 1.0], [4, 8])),
    ):
        update(run, {name: gradient}, {name: np.zeros_like(gradient)}, start=0)
    names = NameMap("names", {"q": MadeOf((Part("w", share=(0, 3)),))}, {}, ())
    by_name = compared_with(ours, theirs, {GRADIENTS: {"w": 1e-6}}, names, ["q"])
    assert by_name["gradients"].verdict == "DIFFERS"


@pytest.mark.parametrize(
    ("noise", "own", "verdict"),
    [(3e-9, 1e-11, "ok"), (-2e-8, 1e-11, "ok"), (1e-3, 1e-11, "DIFFERS"), (1e-6, 1e-6, "ok")],
)
def test_an_attentions_key_bias_is_compared_by_rounding(noise, own, verdict):
    """Its gradient is zero except for rounding; Adam divides it by its own size: a step of up to
    the rate's.
    """
    ours, theirs, exact = traces()
    for run, rounded in ((ours, noise), (theirs, own), (exact, own if noise == own else 1e-18)):
        bias = np.repeat([0.3, rounded, -0.2], 4)  # of the biases of q, k and v in one array
        steps = {"w": np.full(4, -1e-3), "mean": -1e-3 * bias / (np.abs(bias) + 1e-8)}
        update(run, {"w": np.ones(4), "mean": bias}, steps)
    adam = dataclasses.replace(TASK, optimizer=dataclasses.replace(TASK.optimizer, name="adam"))
    by_name = compared(ours, theirs, exact, plan=adam)
    assert by_name["gradients"].verdict == verdict
    if verdict == "ok":
        title = "change by update 1"
        assert by_name[title].verdict == verdict
        ours.after[0]["mean"][4:8] += 1e-3
        change = compared(ours, theirs, exact, plan=adam)[title]
        assert change.verdict == ("DIFFERS" if noise == own else "ok")
        ours.after[0]["mean"] += 2e-3  # more than any step
        assert compared(ours, theirs, exact)[title].verdict == "DIFFERS"


def test_changes_below_the_last_place_are_rounding():
    """1 unit of 2^-25 in the port, 2 there: all that the weight 0.5 can hold of such a change."""
    ours, theirs, exact = traces()

    def change_by(units: int, *trained: str) -> Stage:
        """The port's change of the weight has so many units."""
        for run, number in ((ours, units), (theirs, 1), (exact, 1)):
            changes = {"w": np.full(4, number * 2**-25), "mean": np.full(4, 1e-3)}
            update(run, dict.fromkeys(trained, np.ones(4)), changes)
        return compared(ours, theirs, exact)["change by update 1"]

    stage = change_by(2, "w", "mean")
    assert stage.verdict == "rounding"
    assert stage.differences[0].relative == pytest.approx(2**-25 / 1e-3, rel=0.01)
    assert change_by(6, "w", "mean").verdict == "DIFFERS"
    stage = change_by(2, "w")
    assert (stage.verdict, stage.too_small) == ("skipped", ["w"])


def test_without_float64_only_the_tolerance_counts():
    by_name = compared(*traces(eval_outputs=1e-3 + 5e-6)[:2])
    assert (by_name["eval forward"].verdict, by_name["train forward"].verdict) == ("ok", "DIFFERS")


def test_stages_without_arrays_are_skipped_with_a_note():
    by_name = compared(*traces(), order=["w"])
    later, statistics = (
        by_name[f"{name} after update {number}"]
        for name, number in (("weights", 2), ("BatchNorm statistics", 1))
    )
    assert {later.verdict, statistics.verdict} == {"skipped"}
    assert statistics.note == "there are none"
    assert "momentum" in later.note


def test_outputs_of_another_shape_or_number_differ():
    ours, theirs, exact = traces()
    ours.eval_outputs = {"logits": np.ones(5)}
    ours.train_outputs = [{"logits 0": np.ones(4), "logits 1": np.ones(4)}] * 2
    by_name = compared(ours, theirs, exact)
    for mode, outputs in (("eval", "logits [5]"), ("train", "logits 0 [4], logits 1 [4]")):
        words = f"{outputs} in the port, logits [4] in the reference"
        assert by_name[f"{mode} forward"].failed == words


def test_inputs_are_compared_by_bits_and_names():
    first, (images, labels) = batches = TASK.batches
    assert Inputs().compare(batches, batches).verdict == "ok"
    stage = Inputs().compare([first, (np.nextafter(images, np.float32(9)), labels)], batches)
    assert (stage.verdict, title_of(stage.first.id)) == ("DIFFERS", "inputs of update 2")
    stage = Inputs().compare([({"a": images}, labels)], [({"b": images}, labels)])
    words = "update 1: the inputs have other names or shapes"
    assert (stage.verdict, stage.failed) == ("DIFFERS", words)


def test_ties_widen_by_the_port_s_error():
    def output(ours, exact):
        return difference("x", [ours], [1.0], rounding=relative_error(1.0, exact))

    assert tie_width([]) == 1
    outputs = [output(1 + 6e-6, 1 / (1 + 2e-6)), output(1.0, 1 / (1 + 2e-6))]
    assert tie_width(outputs) == pytest.approx(3, rel=1e-3)
    # A layer that overflows in float32, as masked scores do, is no measure of the others.
    assert tie_width([*outputs, output(1.0, np.inf)]) == tie_width(outputs)
