"""Stages: what counts as rounding, what differs, what is skipped with a note."""

from collections.abc import Sequence

import numpy as np
import pytest

from resnet_fn.parity import stages
from resnet_fn.parity.compare import Stage
from resnet_fn.parity.matching.name_map import NameMap
from resnet_fn.parity.matching.source import plain
from resnet_fn.parity.traces.batches import make_batches
from resnet_fn.parity.traces.trace import Recording, Task, Trace
from resnet_fn.recipes import recipe

TASK = Task(recipe("digits"), make_batches(2, 4, 1, 2, 3))
NAMES = NameMap("names", {"w": plain("theirs.w"), "mean": plain("theirs.mean")}, {}, ())


def traces(**apart: float) -> tuple[Trace, Trace, Trace]:
    """MindSpore's side, PyTorch's and its float64 values; `apart` shifts MindSpore's, PyTorch's is off by 1e-3."""

    def trace(shift: float, side: dict[str, float], prefix: str) -> Trace:
        def values(field: str, size: int = 4) -> np.ndarray:
            return np.ones(size) * (1 + shift) * (1 + side.get(field, 0.0))

        w, mean = prefix + "w", prefix + "mean"
        return Trace(
            eval_outputs={"logits": values("eval_outputs")},
            start={w: np.full(4, 0.5), mean: np.zeros(4)},
            rates=[0.1, 0.2],
            after=[{w: values("after"), mean: values("after")}],
            train_outputs=[{"logits": values("train_outputs")}, {"logits": values("train_outputs")}],
            losses=[float(values("losses")[0]), float(values("losses")[0])],
            norms=[2.0, 2.0],
            gradients={w: values("gradients")},
            clipped={w: values("gradients")},
        )

    return trace(0.0, apart, ""), trace(1e-3, {}, "theirs."), trace(0.0, {}, "theirs.")


def compared(
    ours: Trace, theirs: Trace, exact: Trace, *flipped: Trace, order: Sequence[str] = ("w", "mean")
) -> dict[str, Stage]:
    rounding = stages.worst_rounding(*(stages.rounding(trace, exact) for trace in (theirs, *flipped)))
    sides = [Recording("", TASK, {}, {}, trace) for trace in (ours, theirs)]
    return {stage.name: stage for stage in stages.Comparison(*sides, NAMES, rounding).all_stages(order)}


def test_what_float32_costs_the_reference_is_rounding_and_more_is_a_difference():
    # MindSpore's eval outputs are 1.0 · (1 + 2e-3): 1e-3 from the reference, which is 1e-3 from float64.
    found = compared(*traces(eval_outputs=2e-3, gradients=1e-2))
    assert found["weights"].verdict == "ok"
    assert found["eval forward"].verdict == "rounding"
    assert found["gradients"].verdict == "DIFFERS"
    assert found["learning rate"].verdict == "ok"
    assert [item.name for item in found["learning rate"].differences] == ["update 1", "update 2"]
    assert [item.name for item in found["BatchNorm statistics after update 1"].differences] == ["mean"]


def test_a_loss_counts_at_least_what_its_outputs_are_off_by():
    ours, theirs, exact = traces(losses=5e-4)
    theirs.losses = exact.losses  # close to float64 by luck
    found = compared(ours, theirs, exact)
    assert found["loss"].verdict == "rounding"
    assert found["loss"].differences[0].rounding == pytest.approx(1e-3)
    theirs.train_outputs = exact.train_outputs
    found = compared(ours, theirs, exact)
    assert found["loss"].verdict == "DIFFERS"


def test_what_flipped_ties_change_is_rounding():
    ours, theirs, exact = traces(gradients=1e-2)
    flipped = traces()[2]
    flipped.gradients = {"theirs.w": np.full(4, 1.01)}
    assert compared(ours, theirs, exact)["gradients"].verdict == "DIFFERS"
    assert compared(ours, theirs, exact, flipped)["gradients"].verdict == "rounding"


def test_a_gradient_that_is_zero_but_for_rounding_must_be_small():
    ours, theirs, exact = traces()
    for trace, noise in ((ours, 3e-9), (theirs, -2e-9), (exact, 1e-25)):
        prefix = "" if trace is ours else "theirs."
        trace.gradients = {prefix + "w": np.ones(4), prefix + "mean": np.full(4, noise)}
    assert compared(ours, theirs, exact)["gradients"].verdict == "rounding"
    ours.gradients["mean"] = np.full(4, 1e-3)  # no rounding of gradients of size 1
    stage = compared(ours, theirs, exact)["gradients"]
    assert (stage.verdict, stage.first.name) == ("DIFFERS", "mean")


def test_a_change_below_the_last_place_of_its_weight_is_rounding():
    """As of a bias before a BatchNorm, whose gradient is 0 but for rounding: 1 here, 0 there, in units of 2^-24."""
    ours, theirs, exact = traces()
    for trace, units in ((ours, 2), (theirs, 1), (exact, 1)):
        (name,) = trace.gradients
        trace.start = {**trace.start, name: np.full(4, 0.5)}
        trace.after = [{**trace.after[0], name: np.full(4, 0.5 + units * 2**-25)}]
    stage = compared(ours, theirs, exact)["change by update 1"]
    assert (stage.verdict, stage.differences[0].relative) == ("rounding", 1.0)
    ours.after[0]["w"] = np.full(4, 0.5 + 6 * 2**-25)
    assert compared(ours, theirs, exact)["change by update 1"].verdict == "DIFFERS"


def test_without_float64_only_the_tolerance_counts():
    ours, theirs, _ = traces(eval_outputs=1e-3 + 5e-6)
    sides = [Recording("", TASK, {}, {}, trace) for trace in (ours, theirs)]
    found = {stage.name: stage for stage in stages.Comparison(*sides, NAMES, {}).all_stages(["w", "mean"])}
    assert found["eval forward"].verdict == "ok"
    assert found["train forward"].verdict == "DIFFERS"


def test_what_one_side_does_not_keep_or_nobody_has_is_skipped_with_a_note():
    ours, theirs, exact = traces()
    theirs.state = exact.state = {"momentum": {"theirs.w": np.ones(4)}}
    found = compared(ours, theirs, exact, order=["w"])
    momentum, later = found["momentum after update 1"], found["weights after update 5"]
    statistics = found["BatchNorm statistics after update 1"]
    assert {stage.verdict for stage in (momentum, later, statistics)} == {"skipped"}
    assert (momentum.note, later.note, statistics.note) == ("one side keeps none", "there are none", "there are none")


def test_what_one_side_keeps_of_some_only_differs():
    ours, theirs, exact = traces()
    theirs.average = exact.average = {"theirs.w": np.ones(4)}
    ours.average = {"w": np.ones(4), "mean": np.ones(4)}
    stage = compared(ours, theirs, exact)["averaged weights after the last update"]
    assert (stage.verdict, stage.failed) == ("DIFFERS", "mean and 0 more: here only")


def test_a_parameter_that_trains_on_one_side_only_is_named():
    ours, theirs, exact = traces()
    for trace in (theirs, exact):
        trace.gradients = trace.clipped = {"theirs.mean": np.ones(4)}
    stage = compared(ours, theirs, exact)["gradients"]
    assert stage.verdict == "DIFFERS"
    assert stage.hints == [
        "w: trained here, frozen in the reference",
        "mean: frozen here, trained in the reference",
    ]


def test_outputs_of_another_shape_or_number_differ():
    ours, theirs, exact = traces()
    ours.eval_outputs = {"logits": np.ones(5)}
    ours.train_outputs = [{"logits 0": np.ones(4), "logits 1": np.ones(4)}] * 2
    found = compared(ours, theirs, exact)
    assert found["eval forward"].failed == "logits [5] here, logits [4] in the reference"
    assert found["train forward"].failed == "logits 0 [4], logits 1 [4] here, logits [4] in the reference"
