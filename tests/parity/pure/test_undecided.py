"""What decides nothing is undecided or counted, never absent; integers are compared by value."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from pure.test_verdict import NAMES, item_of, stage_of, trace
from resnet_fn.parity.compare.coverage import coverage_of
from resnet_fn.parity.compare.layers import compare_layers
from resnet_fn.parity.compare.measures import integer_difference
from resnet_fn.parity.compare.notes import first_found
from resnet_fn.parity.compare.other_runs import OtherRuns
from resnet_fn.parity.compare.probes import Probed
from resnet_fn.parity.compare.randomness import undecided_if_random
from resnet_fn.parity.compare.rule import RunRule
from resnet_fn.parity.compare.sides import both_sides
from resnet_fn.parity.compare.stage import Absent, Stage, not_in_task
from resnet_fn.parity.compare.verdict import verdict
from resnet_fn.parity.pair.name_map import MadeOf, Part
from resnet_fn.parity.show.table import findings
from resnet_fn.parity.trace.difference import UNDECIDED, difference, relative_error
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.returned import as_complex, as_real, named_outputs, unread, with_leaves
from resnet_fn.parity.trace.stages import (
    CHANGE,
    CHANGED_BUFFERS,
    EVAL_FORWARD,
    EVERY_LATER,
    GRADIENTS,
    LAST,
    LOSS,
    STATISTICS,
    TRAJECTORY,
)

LATER_GRADIENTS = dataclasses.replace(GRADIENTS, batch=EVERY_LATER)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("rounding", [1e-6, 1.0, math.inf])
def test_nan_on_one_side_alone_differs(value, rounding):
    port, reference = trace(), trace()
    port.run.later[0].gradients["head.bias"][0] = value
    reference.rounding[dataclasses.replace(GRADIENTS, batch=2)]["head.bias"] = rounding
    port.run.last_outputs["logits"][0, 0] = value
    reference.rounding[CHANGED_BUFFERS]["logits"] = rounding
    found = verdict(port, reference, NAMES)
    assert stage_of(found, LATER_GRADIENTS).verdict == "DIFFERS"
    assert stage_of(found, CHANGED_BUFFERS).verdict == "DIFFERS"


def test_an_undecided_array_is_counted():
    port, reference = trace(), trace()
    port.run.later[0].gradients["head.bias"] *= 1.1
    reference.rounding[dataclasses.replace(GRADIENTS, batch=2)]["head.bias"] = 0.5
    found = verdict(port, reference, NAMES)
    undecided, every = found.counts
    assert found.agrees
    assert undecided == 1
    assert every > 80
    assert f"; 1 of {every} arrays undecided" in findings(found)[0]
    assert stage_of(found, LATER_GRADIENTS).note.startswith("without 1 array that has")


def test_an_undecided_layer_is_not_counted_as_compared():
    port, reference = trace(), trace()
    assert verdict(port, reference, NAMES).coverage.facts["layers compared"] == 1
    for mode in ("eval", "train"):
        (layer,) = reference.layers[mode]
        port.layers[mode] = [dataclasses.replace(layer, output=1.1 * layer.output)]
        reference.layers[mode] = [dataclasses.replace(layer, output_rounding=0.5)]
    result = verdict(port, reference, NAMES)
    assert (result.agrees, result.counts[0]) == (True, 2)
    assert {layer.output.verdict for layer in result.layers} == {"undecided"}
    assert {stage.verdict for stage in result.stages if stage.id.name == "layers"} == {"skipped"}
    assert result.coverage.facts["layers compared"] == 0


def test_a_failing_search_hides_no_other_cause():
    def fails() -> list[str]:
        raise ValueError("no")

    (cause, error) = first_found(fails, list, lambda: ["a cause"], fails)
    assert cause == "a cause"
    assert "failed (ValueError: no)" in error
    assert first_found(list) == []


def test_a_stage_without_a_decided_array_is_undecided():
    port, reference = trace(), trace()
    port.run.last_outputs["logits"] *= 1.1
    reference.rounding[CHANGED_BUFFERS]["logits"] = 0.5
    found = verdict(port, reference, NAMES)
    assert [one.id for one in found.undecided] == [CHANGED_BUFFERS]
    assert "a relative rounding error of 0.5" in findings(found)[1]


def test_an_undecided_activation_accuses_no_layer():
    """A reference with norm and activation in one layer, beside a port that has them apart."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 4)), rng.standard_normal((2, 4))
    conv = Layer("conv", 0, "conv", "Conv", {}, x, 2 * y, (), True)
    act = dataclasses.replace(conv, name="act", kind="act", input=2 * y, output=1.2 * y)
    other = dataclasses.replace(conv, output=y, output_rounding=0.1)
    (found,) = compare_layers({"eval": [conv, act]}, {"eval": [other]}, {"conv": "conv"})
    assert found.output.verdict == "undecided"
    agrees = dataclasses.replace(act, name="relu", output=y)
    (found,) = compare_layers({"eval": [conv, act, agrees]}, {"eval": [other]}, {"conv": "conv"})
    assert found.output.verdict == "ok"


def test_a_stage_without_numbers_has_a_reason():
    for reason in Absent:
        expected = "undecided" if reason is Absent.NOT_READ else "skipped"
        assert Stage(LOSS, absent=reason).verdict == expected
    assert Stage(LOSS).verdict == "undecided"  # a rule that forgets the reason does not agree
    assert not_in_task(LOSS, "not asked for").verdict == "skipped"


def test_a_port_without_updates_is_undecided():
    port = trace()
    port.run.after, port.run.last_outputs, port.run.average = [], {}, {}
    found = verdict(port, trace(), NAMES)
    names = {stage.id.name for stage in found.undecided}
    assert {TRAJECTORY.name, LAST.name, CHANGED_BUFFERS.name} <= names
    assert found.first_stage is None


def test_a_change_seen_anywhere_is_not_too_small():
    both = trace()
    seen = stage_of(verdict(both, both, NAMES), CHANGE)
    hidden = Stage(LAST, too_small=("conv.weight", "other"))
    lines = coverage_of(both_sides(both, both, NAMES, False), [seen, hidden], Probed())
    assert "rate too small to see the change of other" in lines.not_exercised


def test_one_update_is_named_as_too_short():
    both = trace()
    both.run.after = both.run.after[:1]
    result = verdict(both, both, NAMES)
    assert stage_of(result, LAST).verdict == "skipped"
    assert any("momentum" in line for line in result.coverage.not_exercised)


def test_outputs_without_numbers_do_not_agree():
    both = trace()
    both.run.eval_outputs = {}
    assert stage_of(verdict(both, both, NAMES), EVAL_FORWARD).verdict == "undecided"


@pytest.mark.parametrize(("wrong", "expected"), [("boxes", "undecided"), ("logits", "DIFFERS")])
def test_only_a_shape_that_rounding_changes_is_undecided(wrong, expected):
    """The size of `boxes` depends on rounding; that of `logits` does not."""
    port, reference = trace(), trace()
    outputs = {"logits": np.ones((2, 5)), "boxes": np.ones((3, 4))}
    reference.run.eval_outputs = outputs
    port.run.eval_outputs = {**outputs, wrong: np.ones((2, 4))}
    reference.rounding[EVAL_FORWARD] = {"logits": 1e-6, "boxes": math.inf}
    assert stage_of(verdict(port, reference, NAMES), EVAL_FORWARD).verdict == expected


LARGE, SMALL = np.array([2**60, 7]), np.array([100_000, 100_001])


@pytest.mark.parametrize(
    ("port", "reference", "expected"),
    [
        (LARGE.astype(np.uint64), LARGE, "ok"),
        (LARGE, LARGE + np.array([1, 0]), "DIFFERS"),
        (SMALL.astype(np.int32), SMALL, "ok"),
        (SMALL + 1, SMALL, "DIFFERS"),
        (np.array([0, 1], np.uint8), np.array([False, True]), "ok"),
    ],
)
def test_integers_are_compared_by_value_whatever_the_width(port, reference, expected):
    assert integer_difference("ids", port, reference, None).verdict == expected
    assert (relative_error(port, reference) > 0) == (expected == "DIFFERS")


@pytest.mark.parametrize(
    ("changing", "wrong", "verdicts"),
    [
        (2, [0, 5], ["ok", "ok", "DIFFERS"]),
        (3, range(200), ["ok", "undecided", "DIFFERS"]),  # it decides little
    ],
)
def test_integers_that_rounding_changes_are_excused_and_counted(changing, wrong, verdicts):
    """The port has no wrong integer, the first alone, or several."""
    reference = np.arange(200)
    items = [
        integer_difference("ids", reference + apart, reference, reference < changing)
        for apart in (0, reference == 0, np.isin(reference, wrong))
    ]
    assert [item.verdict for item in items] == verdicts
    if changing == 2:
        assert items[1].why == "1 of 200 integers excused, which change by rounding"
    else:
        assert items[1].doubt.startswith("3 of 200 integers ")


def counted(sources: dict[str, MadeOf], arrays: dict[str, np.ndarray], changing, wrong: str):
    """How an array is compared that updates set, and of which the port's first number is wrong."""
    port, reference = trace(), trace()
    built = {name: source.build(arrays.get) for name, source in sources.items()}
    for side, counts in ((port, built), (reference, arrays)):
        side.run.start |= {name: np.zeros_like(count) for name, count in counts.items()}
        for after in side.run.after:
            after |= counts
    reference.changing = {STATISTICS: changing}
    port.run.after[0][wrong] = built[wrong] + (np.arange(built[wrong].size) == 0)
    names = dataclasses.replace(NAMES, parameters=NAMES.parameters | sources)
    return item_of(stage_of(verdict(port, reference, names), STATISTICS), wrong)


THREE_CHANGE = np.arange(400) < 3


@pytest.mark.parametrize(
    ("source", "size"),
    [
        (MadeOf((Part("count", sign=-1),)), 400),
        (MadeOf((Part("count"), Part("other")), added=True), 400),
        (MadeOf((Part("count"), Part("same"))), 800),
    ],
    ids=["negative", "sum", "joined"],
)
def test_masks_of_changing_integers_are_built_by_map(source, size):
    """Without a sign, and where only one of two arrays changes."""
    arrays = dict.fromkeys(("count", "other", "same"), np.arange(400))
    changing = dict.fromkeys(("count", "other"), THREE_CHANGE)
    item = counted({"steps": source}, arrays, changing, "steps")
    words = f"1 of {size} integers excused, which change by rounding"
    assert (item.verdict, item.why) == ("ok", words)


def test_integers_that_never_change_are_not_called_excused():
    """Where others of the stage change by rounding."""
    arrays = dict.fromkeys(("count", "same"), np.arange(400))
    sources = {name: MadeOf((Part(name),)) for name in arrays}
    item = counted(sources, arrays, {"count": THREE_CHANGE}, "same")
    assert (item.verdict, item.why) == ("DIFFERS", "equal")


def test_numbers_beyond_float32_count_as_its_largest():
    largest = float(np.finfo(np.float32).max)
    mask = np.array([-1e300, 1.0, 2.0])
    shown = np.array([-largest, 1.0, 2.0])
    assert relative_error(shown, mask) == 0.0
    assert difference("scores", shown, mask).relative == 0.0
    assert relative_error([1.0, 2.0], [1.0, 2.0, 3.0]) == math.inf


def test_complex_numbers_are_pairs_of_parts():
    whole = np.array([1 + 2j, 3 - 4j], np.complex64)
    assert as_real(whole).tolist() == [[1, 2], [3, -4]]
    again = as_complex(as_real(whole))
    np.testing.assert_array_equal(again, whole)
    assert again.dtype == np.complex64


@dataclasses.dataclass
class Output:
    logits: object
    aux: object = None


class Settings:
    """A class of the user's, with a result and a setting."""

    def __init__(self, logits):
        self.logits, self.top = logits, 5


def test_leaves_of_all_kinds_are_named():
    x = np.ones(3, np.float32)
    for outputs, names in (
        (x, ["logits"]),
        (Output(x, [x, {"a": 0.5}]), ["logits logits", "logits aux 0", "logits aux 1 a"]),
        (Settings(x), ["logits logits", "logits top (number)"]),
    ):
        assert list(named_outputs(outputs)) == names
    assert named_outputs(("ab", True))["logits 0 (text)"].tolist() == [97, 98]
    assert unread((x, (one for one in x))) == ["logits 1 (generator)"]
    assert unread((x, None, np.float32, len)) == []


def test_replaced_leaves_keep_their_containers():
    like = Output(np.ones(2, np.float32), (1.5, "text", None))
    values = {"logits logits": np.zeros(2), "logits aux 0": np.array(2.5)}
    found = with_leaves(like, values, lambda array: array)
    assert isinstance(found, Output)
    assert found.aux == (2.5, "text", None)
    assert (found.logits.tolist(), like.logits.tolist()) == ([0, 0], [1, 1])


def of_batches(*stages: Stage) -> Stage:
    """The stage of further batches, of which each gives one of these."""

    class OfBatch(RunRule):
        def compare(self, sides) -> Stage:
            return stages[sides.batch - 2]

    batches = [SimpleNamespace(batch=2 + index, otherwise=None) for index in range(len(stages))]
    later = dataclasses.replace(EVAL_FORWARD, batch=EVERY_LATER)
    stage = OtherRuns(later, rule=OfBatch(EVAL_FORWARD)).stage(SimpleNamespace(later=batches))
    assert stage is not None
    return stage


SAME = Stage(EVAL_FORWARD, [difference("logits", np.ones(2), np.ones(2), 1e-5)])


@pytest.mark.parametrize("other_decides", [False, True])
def test_an_undecided_batch_is_no_silent_ok(other_decides):
    """Another batch may decide the stage; the note has the reason."""
    unclear = Stage(EVAL_FORWARD, undecided="sizes that rounding changes")
    stage = of_batches(unclear, SAME if other_decides else unclear)
    assert stage.verdict == ("ok" if other_decides else UNDECIDED)
    assert "sizes" in (stage.note if other_decides else stage.undecided)


@pytest.mark.parametrize("order", [1, -1])
def test_an_unread_batch_is_undecided_in_any_order(order):
    stages = [Stage(EVAL_FORWARD, note="no tensors"), not_in_task(EVAL_FORWARD, "nothing changes")]
    assert of_batches(*stages[::order]).verdict == UNDECIDED


def test_arrays_too_small_in_another_run_are_named():
    small = dataclasses.replace(not_in_task(EVAL_FORWARD, "too small"), too_small=["w"])
    assert of_batches(small, SAME).too_small == ["w"]


def test_all_that_draws_is_named_beside_other_reasons():
    port, reference = trace(), trace()
    port.random_train, reference.random_train = "noise", "forward, at net.py:3"
    stage = undecided_if_random(Stage(LOSS, undecided="not read"), port, reference)
    assert stage.verdict == UNDECIDED
    words = "in the net noise and in the reference forward, at net.py:3 draw random numbers"
    assert stage.undecided.startswith(f"not read; {words} in training")
