"""Stages: rounding, differences, and stages that are skipped with a note."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from resnet_fn.parity.batches import make_batches
from resnet_fn.parity.compare.allowed import rounding_with_relu_ties, tie_width
from resnet_fn.parity.compare.comparing import compare_stages
from resnet_fn.parity.compare.inputs import Inputs
from resnet_fn.parity.compare.sides import sides_of
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.pair.name_map import MadeOf, NameMap, Part, whole_array
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.rounding import changing, with_noise
from resnet_fn.parity.record.rounding import rounding as measured_rounding
from resnet_fn.parity.show.titles import title_of, title_of_stage
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.difference import difference, relative_error
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.stages import CLIPPED, EVAL_FORWARD, GRADIENTS
from resnet_fn.recipes import recipe

TASK = plan_of(recipe("digits"), make_batches(2, 4, 1, 2, 3))
NAMES = NameMap("names", {"w": whole_array("w"), "mean": whole_array("mean")}, {}, ())


def traces(**apart: float) -> tuple[Run, Run, Run]:
    """MindSpore's side, PyTorch's and its float64 values; `apart` shifts MindSpore's, PyTorch's is
    off by 1e-3.
    """

    def trace(shift: float = 0.0, **apart: float) -> Run:
        names = ("eval_outputs", "after", "train_outputs", "losses", "gradients")
        one = {name: np.ones(4) * (1 + shift) * (1 + apart.get(name, 0.0)) for name in names}
        return Run(
            eval_outputs={"logits": one["eval_outputs"]},
            start={"w": np.full(4, 0.5), "mean": np.zeros(4)},
            rates=[0.1, 0.2],
            after=[{"w": one["after"], "mean": one["after"]}],
            train_outputs=[{"logits": one["train_outputs"]}] * 2,
            losses=[float(one["losses"][0])] * 2,
            norms=[2.0, 2.0],
            gradients={"w": one["gradients"]},
            clipped={"w": one["gradients"]},
        )

    return trace(**apart), trace(1e-3), trace()


def by_title(stages: Sequence[Stage]) -> dict[str, Stage]:
    return {title_of_stage(stage): stage for stage in stages}


def compared(
    ours: Run,
    theirs: Run,
    *others: Run,
    order: Sequence[str] = ("w", "mean"),
    plan: Plan = TASK,
) -> dict[str, Stage]:
    """The stages by name; `others` are the reference in float64 and with flipped ties; none:
    without rounding.
    """
    exact = others[:1]
    known = measured_rounding(theirs, *exact) if exact else {}
    for one in others[1:]:
        known = rounding_with_relu_ties(known, measured_rounding(one, *exact))
    sides = [Trace("", plan, {}, {}, trace) for trace in (ours, theirs)]
    return by_title(compare_stages(sides_of(*sides, NAMES, known, order)))


def test_only_the_references_rounding_is_allowed():
    # MindSpore's eval outputs are 1.0 · (1 + 2e-3): 1e-3 from the reference, which is 1e-3 from
    # float64.
    by_name = compared(*traces(eval_outputs=2e-3, gradients=1e-2))
    verdicts = {
        "weights": "ok",
        "eval forward": "rounding",
        "gradients": "DIFFERS",
        "learning rate": "ok",
    }
    assert {name: by_name[name].verdict for name in verdicts} == verdicts
    assert [title_of(item.id) for item in by_name["learning rate"].differences] == [
        "update 1",
        "update 2",
    ]
    assert [item.name for item in by_name["BatchNorm statistics after update 1"].differences] == [
        "mean"
    ]


def test_a_loss_may_differ_as_its_outputs_do():
    ours, theirs, exact = traces(losses=5e-4)
    theirs.losses = exact.losses  # close to float64 by luck
    stage = compared(ours, theirs, exact)["loss"]
    assert (stage.verdict, stage.differences[0].rounding) == ("rounding", pytest.approx(1e-3))
    theirs.train_outputs = exact.train_outputs
    assert compared(ours, theirs, exact)["loss"].verdict == "DIFFERS"


def test_losses_are_compared_until_rounding_hides_them():
    ours, theirs, exact = traces()
    for trace, losses in (
        (ours, [1, 1, 1.2, 1.3]),
        (theirs, [1, 1, 1.1, 1.2]),
        (exact, [1, 1, 1.001, 1.0]),
    ):
        trace.losses, trace.train_outputs = losses, []
    stage = compared(ours, theirs, exact)["loss trajectory"]
    assert (stage.verdict, [title_of(item.id) for item in stage.differences]) == (
        "ok",
        ["update 1", "update 2"],
    )
    assert stage.note.startswith(
        "without 2 losses, the first of update 3: a relative rounding error of 0.099 in "
    )
    ours.losses[3] = 2.5  # further than that
    assert compared(ours, theirs, exact)["loss trajectory"].first.id.update == 4


def test_what_flipped_ties_change_is_rounding():
    ours, theirs, exact = traces(gradients=1e-2)
    flipped = traces()[2]
    flipped.gradients = {"w": np.full(4, 1.01)}
    assert compared(ours, theirs, exact)["gradients"].verdict == "DIFFERS"
    assert compared(ours, theirs, exact, flipped)["gradients"].verdict == "rounding"


def test_a_zero_gradient_must_be_small():
    ours, theirs, exact = traces()
    for trace, noise in ((ours, 3e-9), (theirs, -2e-9), (exact, 1e-25)):
        trace.gradients = {"w": np.ones(4), "mean": np.full(4, noise)}
    assert compared(ours, theirs, exact)["gradients"].verdict == "ok"  # beside all gradients
    ours.gradients["mean"] = np.full(4, 1e-3)  # no rounding of gradients of size 1
    stage = compared(ours, theirs, exact)["gradients"]
    assert (stage.verdict, stage.first.name) == ("DIFFERS", "mean")


@pytest.mark.parametrize("stage", [GRADIENTS, CLIPPED], ids=str)
def test_gradients_changed_by_noise_count_as_rounding(stage):
    ours, theirs, exact = traces()
    for trace, tiny in ((ours, -1.5e-8), (theirs, -2.2e-8), (exact, -2.19e-8)):
        trace.gradients = trace.clipped = {"w": np.ones(4), "mean": np.full(4, tiny)}
    measured, sides = (
        measured_rounding(theirs, exact),
        [Trace("", TASK, {}, {}, one) for one in (ours, theirs)],
    )
    # of the gradient, in a run with noise
    for spread, verdict in ((0.15, "ok"), (0.01, "DIFFERS")):
        known = with_noise(measured, [{GRADIENTS: {"mean": spread}, CLIPPED: {"mean": spread}}])
        stages = compare_stages(sides_of(*sides, NAMES, known, ("w", "mean")))
        assert by_title(stages)[stage.name].verdict == verdict
        assert known[stage]["mean"] == known[GRADIENTS]["mean"]


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
    for trace, name, gradient in (
        (ours, "q", np.full(4, 1.02e-4)),
        (theirs, "w", np.repeat([1e-4, 1.0], [4, 8])),
    ):
        trace.gradients = trace.clipped = {name: gradient}
        trace.start, trace.after = (
            {name: np.zeros_like(gradient)},
            [{name: np.zeros_like(gradient)}],
        )
    sides = [Trace("", TASK, {}, {}, trace) for trace in (ours, theirs)]
    names = NameMap("names", {"q": MadeOf((Part("w", share=(0, 3)),))}, {}, ())
    found = compare_stages(sides_of(*sides, names, {GRADIENTS: {"w": 1e-6}}, ["q"]))
    assert by_title(found)["gradients"].verdict == "DIFFERS"


@pytest.mark.parametrize(
    ("noise", "own", "verdict"),
    [(3e-9, 1e-11, "ok"), (-2e-8, 1e-11, "ok"), (1e-3, 1e-11, "DIFFERS"), (1e-6, 1e-6, "ok")],
)
def test_an_attentions_key_bias_is_compared_by_rounding(noise, own, verdict):
    """Its gradient is zero except for rounding; Adam divides it by its own size: a step of up to
    the rate's.
    """
    ours, theirs, exact = traces()
    for trace, rounded in ((ours, noise), (theirs, own), (exact, own if noise == own else 1e-18)):
        w, bias = trace.start
        gradient = np.repeat([0.3, rounded, -0.2], 4)  # of the biases of q, k and v in one array
        trace.start = {w: np.full(4, 0.5), bias: np.full(12, 0.1)}
        trace.gradients = trace.clipped = {w: np.ones(4), bias: gradient}
        steps = {w: np.full(4, 1e-3), bias: 1e-3 * gradient / (np.abs(gradient) + 1e-8)}
        trace.after = [{name: trace.start[name] - step for name, step in steps.items()}]
    adam = dataclasses.replace(TASK, optimizer=dataclasses.replace(TASK.optimizer, name="adam"))
    by_name = compared(ours, theirs, exact, plan=adam)
    assert by_name["gradients"].verdict == verdict
    if verdict == "ok":
        assert by_name["change by update 1"].verdict == verdict
        ours.after[0]["mean"][4:8] += 1e-3
        change = compared(ours, theirs, exact, plan=adam)["change by update 1"]
        assert change.verdict == ("DIFFERS" if noise == own else "ok")
        ours.after[0]["mean"] += 2e-3  # more than any step
        assert compared(ours, theirs, exact)["change by update 1"].verdict == "DIFFERS"


def test_changes_below_the_last_place_are_rounding():
    """1 unit of 2^-25 in the port, 2 there: all that the weight 0.5 can hold of such a change."""
    ours, theirs, exact = traces()
    for trace, units in ((ours, 2), (theirs, 1), (exact, 1)):
        w, mean = trace.start
        trace.start = {w: np.full(4, 0.5), mean: np.zeros(4)}
        trace.after = [{w: np.full(4, 0.5 + units * 2**-25), mean: np.full(4, 1e-3)}]
        trace.gradients = {w: np.ones(4), mean: np.ones(4)}
    stage = compared(ours, theirs, exact)["change by update 1"]
    assert (stage.verdict, stage.differences[0].relative) == (
        "rounding",
        pytest.approx(2**-25 / 1e-3, rel=0.01),
    )
    ours.after[0]["w"] = np.full(4, 0.5 + 6 * 2**-25)
    assert compared(ours, theirs, exact)["change by update 1"].verdict == "DIFFERS"
    for trace in (ours, theirs, exact):
        trace.gradients.popitem()  # w is all that changes
    ours.after[0]["w"] = np.full(4, 0.5 + 2 * 2**-25)
    stage = compared(ours, theirs, exact)["change by update 1"]
    assert (stage.verdict, stage.too_small) == ("skipped", ["w"])


def test_without_float64_only_the_tolerance_counts():
    by_name = compared(*traces(eval_outputs=1e-3 + 5e-6)[:2])
    assert (by_name["eval forward"].verdict, by_name["train forward"].verdict) == ("ok", "DIFFERS")


def test_stages_without_arrays_are_skipped_with_a_note():
    ours, theirs, exact = traces()
    by_name = compared(ours, theirs, exact, order=["w"])
    later, statistics = (
        by_name["weights after update 2"],
        by_name["BatchNorm statistics after update 1"],
    )
    assert {later.verdict, statistics.verdict} == {"skipped"}
    assert statistics.note == "there are none"
    assert "momentum" in later.note


def test_outputs_of_another_shape_or_number_differ():
    ours, theirs, exact = traces()
    ours.eval_outputs = {"logits": np.ones(5)}
    ours.train_outputs = [{"logits 0": np.ones(4), "logits 1": np.ones(4)}] * 2
    by_name = compared(ours, theirs, exact)
    assert by_name["eval forward"].failed == "logits [5] in the port, logits [4] in the reference"
    assert (
        by_name["train forward"].failed
        == "logits 0 [4], logits 1 [4] in the port, logits [4] in the reference"
    )


def test_inputs_are_compared_by_bits_and_names():
    first, (images, labels) = batches = TASK.batches
    assert Inputs().compare(batches, batches).verdict == "ok"
    stage = Inputs().compare([first, (np.nextafter(images, np.float32(9)), labels)], batches)
    assert (stage.verdict, title_of(stage.first.id)) == ("DIFFERS", "inputs of update 2")
    stage = Inputs().compare([({"a": images}, labels)], [({"b": images}, labels)])
    assert (stage.verdict, stage.failed) == (
        "DIFFERS",
        "update 1: the inputs have other names or shapes",
    )


def test_ties_widen_by_the_port_s_error():
    def output(ours, exact):
        return difference("x", [ours], [1.0], rounding=relative_error(1.0, exact))

    assert tie_width([]) == 1
    outputs = [output(1 + 6e-6, 1 / (1 + 2e-6)), output(1.0, 1 / (1 + 2e-6))]
    assert tie_width(outputs) == pytest.approx(3, rel=1e-3)
    # A layer that overflows in float32, as masked scores do, is no measure of the others.
    assert tie_width([*outputs, output(1.0, np.inf)]) == tie_width(outputs)
