"""The verdict as a function of two traces made by hand: neither PyTorch nor MindSpore is needed."""

import dataclasses
import math
from collections.abc import Generator
from functools import partial, partialmethod
from typing import Any

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.compare.allowed import Allowed
from resnet_fn.parity.compare.comparing import compare_stages
from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.probes import Probed, compare_probes, judge_probes
from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.rules import RULES
from resnet_fn.parity.compare.sides import Sides, order_of, sides_of
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.compare.verdict import (
    Answer,
    AskProbes,
    AskTies,
    FlippedTies,
    Request,
    decide,
    verdict,
)
from resnet_fn.parity.pair.name_map import NameMap, whole_array
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.data import Probe, Run, Ties, Trace
from resnet_fn.parity.trace.derived import MEASURED_ARRAYS
from resnet_fn.parity.trace.difference import AGREES, DIFFERS, Difference, difference
from resnet_fn.parity.trace.drop import Drop
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.limits import ROUNDING_FACTOR
from resnet_fn.parity.trace.probes import MORE
from resnet_fn.parity.trace.source import ProbeAnswer, StoredSource
from resnet_fn.parity.trace.stages import (
    CHANGE,
    EVAL_FORWARD,
    EVAL_LAYERS,
    GRADIENTS,
    INITIALISATION,
    LOSS,
    UNTRAINED,
    WEIGHTS,
    ArrayId,
    StageId,
)

SHAPES = {"conv.weight": (4, 3, 3, 3), "head.weight": (5, 4), "head.bias": (5,)}
ALL = SHAPES | {"norm.moving_mean": (4,), "norm.moving_variance": (4,)}
NAMES = NameMap("names", {name: whole_array(name) for name in ALL}, {"conv": "conv"}, ())
WHOLE = 1e-6  # the rounding of each array of the reference
# large numbers get the median of gradients, as all numbers do
LARGE_AT_LEAST = {EVAL_FORWARD: 0.0, GRADIENTS: WHOLE}


def draw(rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def run(seed: int, updates: int = 3, **fields) -> Run:
    rng = np.random.default_rng(seed)
    arrays = partial(draw, rng)
    gradients, last = arrays(SHAPES), arrays(ALL)
    return Run(
        eval_outputs=arrays({"logits": (2, 5)}),
        start=arrays(ALL),
        rates=[0.1, 0.2, 0.4][:updates],
        after=[arrays(ALL) for _ in range(updates)],
        train_outputs=[arrays({"logits": (2, 5)}) for _ in range(updates)],
        losses=[float(loss) for loss in rng.uniform(1, 2, updates)],
        norms=[float(norm) for norm in rng.uniform(1, 2, updates)],
        gradients=gradients,
        clipped={name: 0.5 * array for name, array in gradients.items()},
        average=last,
        last_outputs=arrays({"logits": (2, 5)}),
        **fields,
    )


def trace(seed: int = 7, optimizer: str = "sgd") -> Trace:
    """A recording of one worker that draws nothing and is finite."""
    rng = np.random.default_rng(seed)
    arrays = partial(draw, rng)
    batches = [
        (rng.standard_normal((2, 3, 6, 6)).astype(np.float32), np.arange(2, dtype=np.int32))
        for _ in range(3)
    ]
    recipe = Recipe(optimizer=optimizer, nesterov=False, clip_norm=0.5)
    main = run(seed, later=[run(seed + 1), run(seed + 2)], dropped=[run(seed + 3, 1)])
    layer = Layer(
        "conv", 0, "conv", "Conv", {}, batches[0][0], rng.standard_normal((2, 4)), (), True
    )
    return Trace(
        "PyTorch",
        plan_of(recipe, batches),
        arrays(ALL),
        {"eval": [layer], "train": [layer], "dropout": []},
        main,
        rounding=known_rounding(main),
        trainable=[*SHAPES],
        constants=[],
        drops=[Drop("conv", 0.2, True, 1.25, (2, 4))],
        probes={"": {"−x": Probe(arrays({"logits": (2, 5)}), "")}},
        builds=[arrays(SHAPES) for _ in range(3)],
        optimizer_alone={update: arrays(SHAPES) for update in (1, 100)},
        losses_alone={ArrayId(samples=2, factor=factor): 0.5 * factor for factor in (1, 10)},
        optimizer_settings={
            "learning rate": dict.fromkeys(SHAPES, 0.1),
            "eps": dict.fromkeys(SHAPES, 1e-8),
        },
    )


def known_rounding(main: Run) -> dict[StageId, dict[Any, float]]:
    known = {}
    runs = [({}, main), *(({"masked": True}, dropped) for dropped in main.dropped)]
    runs += [({"batch": number}, later) for number, later in enumerate(main.later, 2)]
    for marks, recorded in runs:
        for stage, values in MEASURED_ARRAYS.items():
            known[dataclasses.replace(stage, **marks)] = dict.fromkeys(values(recorded), WHOLE)
    return known


def sides(port: Trace, reference: Trace) -> Sides:
    order = order_of(port, NAMES)
    return sides_of(port, reference, NAMES, reference.rounding, order)


def compared(port: Trace, reference: Trace, **changed) -> dict[StageId, Stage]:
    """The stages, with other values in some fields of the sides."""
    both = dataclasses.replace(sides(port, reference), **changed)
    return {stage.id: stage for stage in compare_stages(both)}


def stage_of(result: Verdict, stage_id: StageId) -> Stage:
    return next(stage for stage in result.stages if stage.id.of_any_update == stage_id)


def item_of(stage: Stage, name: str) -> Difference:
    return next(item for item in stage.differences if item.name == name)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("seed", range(5))
def test_a_trace_agrees_with_itself_with_no_difference(seed, optimizer):
    result, again = (
        verdict(side, side, NAMES) for side in (trace(seed, optimizer), trace(seed, optimizer))
    )
    assert result.agrees
    items = [item for stage in result.stages for item in stage.differences]
    assert len(items) > 80
    assert {(item.relative, item.max_abs) for item in items} == {(0.0, 0.0)}
    assert repr(result) == repr(again)


class Moves:
    """Takes the place of `Allowed.compare`, and moves the port's array in one of the calls."""

    def __init__(self, number: int | None = None):
        self.number, self.calls = number, list[tuple[ArrayId, Allowed]]()

    def __call__(self, bound: Allowed, array: ArrayId | str, ours, theirs) -> Difference:
        self.calls.append((array if isinstance(array, ArrayId) else ArrayId(array), bound))
        if len(self.calls) - 1 == self.number:
            b = np.asarray(theirs, np.float64)
            by = 10 * max(bound.tolerance, ROUNDING_FACTOR * bound.rounding) or 1e-9
            step = b if b.any() else np.ones_like(b) / max(1, b.size) ** 0.5
            ours = b + by * step
        return difference(array, ours, theirs, *bound)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_array_ten_bounds_away_differs(optimizer, monkeypatch):
    """Each array of each rule, moved in the pair that the rule gets, except arrays that are only
    rounding.
    """
    recorded, moved = trace(optimizer=optimizer), 0
    for rule in RULES:
        if rule.id == UNTRAINED:  # a table that differs is looked at again
            continue
        still = Moves()
        monkeypatch.setattr(Allowed, "compare", partialmethod(still))
        rule.stage(sides(recorded, recorded))
        for number, (array, bound) in enumerate(still.calls):
            if not math.isfinite(bound.rounding) or bound.why.startswith("only rounding"):
                continue
            monkeypatch.setattr(Allowed, "compare", partialmethod(Moves(number)))
            stage = rule.stage(sides(recorded, recorded))
            assert stage.verdict == DIFFERS, (rule.id, array, bound)
            assert stage.first.id.name == array.name
            moved += 1
    assert moved >= 80


def test_a_stages_tolerance_is_its_rules_field():
    """Except in stages of layers and of initial values."""
    both, least, count = sides(trace(), trace()), 1e-9, 0
    for rule in RULES:
        stage = dataclasses.replace(rule, tolerance=least).stage(both)
        if stage and rule.id != INITIALISATION:
            count += 1
            assert {item.tolerance for item in stage.differences} <= {least}, rule.id
    assert count > 20


@pytest.mark.parametrize(
    ("dtype", "apart", "verdict_of_stage", "named"),
    [
        (np.float32, 0.25, "ok", []),  # two last places
        (np.float32, 8, "DIFFERS", [True]),
        (np.float32, 1024, "DIFFERS", [False]),  # another precision gives no such numbers
        (np.int32, 8, "DIFFERS", [False]),  # only floats have a precision
    ],
)
def test_untrained_tables_may_differ_by_last_places_only(dtype, apart, verdict_of_stage, named):
    port, reference = trace(), trace()
    for side, number in ((port, 2**20 + apart), (reference, 2**20)):
        side.initial["norm.moving_mean"] = np.full(4, number, dtype)
    stage = stage_of(verdict(port, reference, NAMES), UNTRAINED)
    assert stage.verdict == verdict_of_stage
    assert ["float64" in hint for hint in stage.hints] == named
    if stage.verdict == "ok":
        item = item_of(stage, "norm.moving_mean")
        assert item.tolerance == pytest.approx(2 * item.relative)  # of 4 units


@pytest.mark.parametrize(
    ("why", "stage", "name"),
    [
        ("measured rounding", GRADIENTS, "conv.weight"),
        ("median", GRADIENTS, "head.weight"),
        ("unit of the weight", CHANGE, "conv.weight"),
        ("tolerance", GRADIENTS, "conv.weight"),
        ("equal", WEIGHTS, "conv.weight"),
    ],
)
def test_a_row_says_which_rule_gives_its_bound(why, stage, name):
    both = trace()
    if why == "unit of the weight":
        both.run.start["conv.weight"] *= 1e5  # its last place is 1 % of its change
        both.run.after[0]["conv.weight"] += both.run.start["conv.weight"]
    elif why != "tolerance":
        both.rounding[GRADIENTS] = {"conv.weight": 1e-3, "head.weight": 5e-5, "head.bias": 8e-5}
    assert item_of(stage_of(verdict(both, both, NAMES), stage), name).why == why


@pytest.mark.parametrize(
    ("usual", "of_large", "expected"),
    [(1e-7, 1e-3, ("rounding", "measured rounding")), (1e-3, 1e-7, ("DIFFERS", "tolerance"))],
)
@pytest.mark.parametrize(
    ("stage_id", "name"), [(EVAL_FORWARD, "logits"), (GRADIENTS, "conv.weight")]
)
def test_large_numbers_have_their_measured_rounding(stage_id, name, usual, of_large, expected):
    """One number is 10¹² times the others, and differs by 0.2 %. The others are equal."""
    port, reference = trace(), trace()
    for side, factor in ((port, 1.002), (reference, 1.0)):
        MEASURED_ARRAYS[stage_id](side.run)[name].flat[0] = 1e12 * factor
    reference.rounding[stage_id][name] = usual
    reference.rounding[dataclasses.replace(stage_id, large=True)] = {name: of_large}
    item = item_of(stage_of(verdict(port, reference, NAMES), stage_id), name)
    assert (item.verdict, item.why) == expected
    assert item.rounding == max(of_large, LARGE_AT_LEAST[stage_id])


@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_errors_of_kernels_excuse_packed_outputs_too(error):
    """The port pads: what its kernels move has the name of its padded output."""
    port, reference = trace(), trace()
    padded = np.ones((2, 3, 4), np.float32)
    reference.run.eval_outputs = {
        "logits data": np.ones((5, 4), np.float32),
        "logits batch_sizes": np.array([2, 2, 1]),
    }
    port.run.eval_outputs = {"logits": padded * (1 + 1e-3)}
    port.kernels = {EVAL_FORWARD: {"logits": error}}
    stage = stage_of(verdict(port, reference, NAMES), EVAL_FORWARD)
    assert stage.verdict == ("rounding" if error else "DIFFERS")


def other_gradients() -> Trace:
    """A port with the same layers, whose gradients are 1 % away."""
    port = trace()
    port.run.gradients = {name: 1.01 * array for name, array in port.run.gradients.items()}
    return port


def answered(deciding: Generator[Request, Answer, Verdict], answer: Answer) -> Verdict:
    """The verdict after one request and its answer."""
    with pytest.raises(StopIteration) as end:
        deciding.send(answer)
    return end.value.value


@pytest.mark.parametrize("flips", [True, False])
def test_gradients_that_differ_alone_request_flipped_ties(flips):
    port, reference = other_gradients(), trace()
    wide = {stage: dict.fromkeys(errors, 1e-2) for stage, errors in reference.rounding.items()}
    deciding = decide(port, reference, NAMES, (2.0, 8.0))
    assert next(deciding) == AskTies(2.0)
    final = answered(deciding, FlippedTies(wide, 3) if flips else None)
    assert final.ties == (3 if flips else 0)
    assert getattr(final.first_gradient, "name", None) == (None if flips else "head.bias")


def test_flipped_ties_are_not_requested_when_layers_differ():
    port = other_gradients()
    layer = port.layers["eval"][0]
    port.layers["eval"] = [dataclasses.replace(layer, output=1.01 * layer.output)]
    with pytest.raises(StopIteration):
        next(decide(port, trace(), NAMES, (1e-5,)))


@pytest.mark.parametrize(("rounding", "findings"), [(1e-3, 0), (1e-6, 1), (None, 1)])
def test_a_probe_that_differs_requests_its_rounding(rounding, findings):
    port, reference = trace(), trace()
    port.probes[""]["−x"].outputs["logits"] *= 1 + 2e-3
    deciding = decide(port, reference, NAMES)
    assert next(deciding) == AskProbes({"": ["−x"]})
    known = {"": {"−x": {"logits": rounding}}} if rounding else {}
    final = answered(deciding, ProbeAnswer(known, "" if rounding else "no"))
    assert len(final.probed.findings) == findings
    assert ("the rounding of probes" in final.probed.left_out) == (rounding is None)
    assert final.agrees


def test_undecided_outputs_are_no_agreement_for_probes():
    port, reference = trace(), trace()
    port.run.eval_outputs["logits"] *= 1.1
    reference.rounding[EVAL_FORWARD]["logits"] = 0.5
    port.probes[""]["−x"].outputs["logits"] *= 2
    probed = verdict(port, reference, NAMES).probed
    assert (probed.findings, probed.agreed) == ([], {})
    assert probed.left_out == {"−x": "the outputs on the batches are undecided"}


def judged(port: Trace, reference: Trace, answer: ProbeAnswer) -> Probed:
    return judge_probes(compare_probes(port, reference, NAMES.layers, "ok"), answer)


def test_probes_with_undecided_outputs_do_not_agree():
    port, reference = trace(), trace()
    for side, wide, unclear in ((port, 1.2, 1.1), (reference, 1.0, 1.0)):
        outputs = side.probes[""]["−x"].outputs
        outputs |= {"logits": wide * outputs["logits"], "aux": unclear * outputs["logits"]}
    known = {"": {"−x": {"logits": 0.06, "aux": 0.5}}}
    probed = judged(port, reference, ProbeAnswer(known))
    assert (probed.findings, probed.agreed) == ([], {})
    assert list(probed.left_out) == ["−x"]


@pytest.mark.parametrize(
    ("kind", "probe", "kernels", "error", "findings"),
    [
        ("Conv", MORE, 8e-6, 1.5e-5, 0),
        ("Conv", MORE, 0.0, 1.5e-5, 1),
        ("Conv", MORE, 8e-6, 1e-2, 1),
        ("Conv", MORE, 1e-3, 1e-4, 1),
        # inexact layers: the error may be outside of them
        ("tanh", MORE, 8e-6, 1.5e-5, 0),
        ("tanh", MORE, 8e-6, 3e-4, 1),
        ("tanh", "10·x", 8e-6, 8e-5, 0),
        ("tanh", "10·x", 8e-6, 3e-4, 1),
    ],
)
def test_kernels_excuse_probes_as_batches(kind, probe, kernels, error, findings):
    port, reference = trace(), trace()
    for side, factor in ((port, 1 + error), (reference, 1.0)):
        (layer,) = side.layers["eval"]
        side.layers["eval"] = [dataclasses.replace(layer, kind=kind)]
        outputs = side.probes[""].pop("−x").outputs
        side.probes[""][probe] = Probe({"logits": factor * outputs["logits"]}, "")
    port.kernels = {EVAL_FORWARD: {"logits": kernels}}
    probed = judged(port, reference, ProbeAnswer({}))
    assert [finding.probe for finding in probed.findings] == [probe] * findings
    assert len(probed.kernels) == 1 - findings


def of_one_update() -> Trace:
    recorded = trace()
    recorded.run.after = recorded.run.after[:1]
    return recorded


def test_an_error_costs_one_line_of_the_coverage():
    both = of_one_update()
    layer = dataclasses.replace(both.layers["eval"][0], settings={"min": "?", "max": "?"})
    both.layers["eval"] = [layer]
    lines = verdict(both, both, NAMES).coverage.not_exercised
    assert lines[0].startswith("unknown because of an error: layers (TypeError")
    assert any("momentum" in line for line in lines)


def test_what_is_left_out_is_named():
    """The user's own loss or optimizer, unless the reference has it; of two builds, copies."""
    both = trace()
    line = verdict(both, both, NAMES).coverage.not_compared
    assert "; your own loss, optimizer, step, schedule and moving average, as far as" in line
    assert line.endswith("the ladder does not get them")
    plan = both.plan
    loss = dataclasses.replace(plan.loss, custom=True)
    optimizer = dataclasses.replace(plan.optimizer, custom=True)
    both.plan = dataclasses.replace(plan, loss=loss, optimizer=optimizer)
    both.builds = both.builds[:1]
    covered = verdict(both, both, NAMES).coverage
    assert "; your own step, schedule and moving average, as far as" in covered.not_compared
    assert covered.not_compared.endswith(
        "; of initial values all but mean, deviation and kurtosis (of one build each)"
    )
    assert covered.facts["not compared"] == covered.not_compared


def test_probes_that_fail_leave_the_coverage():
    both = of_one_update()
    both.probes[""]["−x"].outputs["logits"] = None
    result = verdict(both, both, NAMES)
    assert any("the comparison of probes failed" in line for line in result.changes)
    assert result.coverage.facts["layers compared"] == 1
    assert any("momentum" in line for line in result.coverage.not_exercised)


def test_a_stored_source_answers_from_what_was_stored():
    one = trace()
    one.probes[""]["−x"].rounding["logits"] = 1e-3
    source = StoredSource(one)
    assert source.probe_rounding({"": ["−x"]}).rounding == {"": {"−x": {"logits": 1e-3}}}
    assert (source.tie_widths, source.flipped_ties(1e-5), source.can_run) == ((), None, False)


def test_each_worker_may_decide_ties_otherwise():
    """The port's loss, on both workers, is that of the reference with its ties decided otherwise."""
    port, reference = trace(), trace()
    port.run.losses[0] = 9.0
    port = dataclasses.replace(port, workers=[port, port])
    assert compared(port, reference, otherwise=port.run)[LOSS].verdict in AGREES


APART = difference("conv", np.float32([1, 2]), np.float32([1, 3]), 1e-5)
LAYERS = [LayerDifference("eval", "conv", "conv", APART, None, ())]


@pytest.mark.parametrize("integers", [False, True])
def test_layers_that_ties_change_do_not_differ(integers):
    """The net's outputs are those of the reference with its ties decided otherwise."""
    reference, port = trace(), trace()
    numbers = reference.run.eval_outputs["logits"]
    otherwise = np.roll(numbers, 1)
    if integers:
        otherwise = otherwise.argsort()
        reference.run.eval_outputs["logits"] = np.argsort(numbers)
    port.run.eval_outputs = {"logits": otherwise}
    stages = compared(port, reference, otherwise=port.run, layers=LAYERS)
    assert stages[EVAL_FORWARD].verdict in AGREES
    assert stages[EVAL_LAYERS].verdict != DIFFERS


def test_relus_ties_are_requested_where_others_changed_layers():
    """Ties of a step change the net's outputs and a layer; the gradients differ beside it."""
    reference, port = trace(), other_gradients()
    outputs = reference.run.eval_outputs
    port.run.eval_outputs = {"logits": np.roll(outputs["logits"], 1)}
    otherwise = dataclasses.replace(reference.run, eval_outputs=port.run.eval_outputs)
    reference.ties = Ties(["net.py:1, long: 1 tie"], reference.rounding, otherwise)
    layer = port.layers["eval"][0]
    port.layers["eval"] = [dataclasses.replace(layer, output=1.01 * layer.output)]
    deciding = decide(port, reference, NAMES, (2.0, 8.0))
    assert next(deciding) == AskTies(2.0)
    final = answered(deciding, None)
    assert (final.first_layer, final.first_stage.id, len(final.tied)) == (None, GRADIENTS, 1)
    port.run.eval_outputs = outputs
    assert verdict(port, reference, NAMES).first_layer.name == "conv"


def test_ties_leave_the_median_as_it_was_measured():
    """Else larger roundings of others would leave the median, and a passing array would differ."""
    reference, port = trace(), trace()
    first, *others = SHAPES
    port.run.gradients[first] = reference.run.gradients[first] * (1 + 1.5e-4)
    recorded, with_ties = (
        {GRADIENTS: {first: 1e-6, **dict.fromkeys(others, rounding)}} for rounding in (5e-5, 2e-4)
    )
    stages = compared(port, reference, rounding=with_ties, recorded=recorded)
    assert item_of(stages[GRADIENTS], first).verdict == "rounding"


def test_only_arrays_that_ties_excuse_are_called_tied():
    port, reference = trace(), trace()
    first, second, *_ = SHAPES
    port.run.gradients[first] += 1
    stage = compared(port, reference, otherwise=port.run)[GRADIENTS]
    assert item_of(stage, first).why == reasons.TIES
    assert item_of(stage, second).why != reasons.TIES


def test_excused_integers_excuse_no_layers_without_ties():
    reference, port = trace(), trace()
    ids = np.arange(1000)
    reference.run.eval_outputs["logits"] = ids
    port.run.eval_outputs["logits"] = np.where(ids == 3, 0, ids)
    reference.changing = {EVAL_FORWARD: {"logits": ids == 3}}
    stages = compared(port, reference, layers=LAYERS)
    assert stages[EVAL_FORWARD].verdict in AGREES
    assert stages[EVAL_LAYERS].verdict == DIFFERS
