"""The verdict as a function of two traces made by hand: neither PyTorch nor MindSpore is needed."""

import dataclasses
import math
from collections.abc import Generator
from functools import partialmethod
from typing import Any

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.compare.allowed import Allowed, larger_bound
from resnet_fn.parity.compare.comparing import compare_stages
from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.probes import compare_probes, judge_probes
from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.rules import RULES
from resnet_fn.parity.compare.sides import Sides, order_of, sides_of
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
STATISTICS = {"norm.moving_mean": (4,), "norm.moving_variance": (4,)}
NAMES = NameMap(
    "names", {name: whole_array(name) for name in {**SHAPES, **STATISTICS}}, {"conv": "conv"}, ()
)
WHOLE = 1e-6  # the rounding of each array of the reference
# large numbers get the median of gradients, as all numbers do
LARGE_AT_LEAST = {EVAL_FORWARD: 0.0, GRADIENTS: WHOLE}


def run(seed: int, updates: int = 3, **fields: Any) -> Run:
    rng = np.random.default_rng(seed)

    def arrays(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        return {name: rng.standard_normal(shape) for name, shape in shapes.items()}

    gradients, last = arrays(SHAPES), arrays({**SHAPES, **STATISTICS})
    return Run(
        eval_outputs=arrays({"logits": (2, 5)}),
        start=arrays({**SHAPES, **STATISTICS}),
        rates=[0.1, 0.2, 0.4][:updates],
        after=[arrays({**SHAPES, **STATISTICS}) for _ in range(updates)],
        train_outputs=[arrays({"logits": (2, 5)}) for _ in range(updates)],
        losses=[float(loss) for loss in rng.uniform(1, 2, updates)],
        norms=[float(norm) for norm in rng.uniform(1, 2, updates)],
        gradients=gradients,
        clipped={name: 0.5 * array for name, array in gradients.items()},
        average=last,
        last_outputs=arrays({"logits": (2, 5)}),
        **fields,
    )


def trace(seed: int, optimizer: str = "sgd") -> Trace:
    """A recording of one worker that draws nothing and is finite."""
    rng = np.random.default_rng(seed)
    batches = [
        (rng.standard_normal((2, 3, 6, 6)).astype(np.float32), np.arange(2, dtype=np.int32))
        for _ in range(3)
    ]
    recipe = Recipe(optimizer=optimizer, nesterov=False, clip_norm=0.5)
    main = run(seed, later=[run(seed + 1), run(seed + 2)], dropped=[run(seed + 3, 1)])
    layer = Layer(
        "conv", 0, "conv", "Conv", {}, batches[0][0], rng.standard_normal((2, 4)), (), True
    )
    initial = {name: rng.standard_normal(shape) for name, shape in {**SHAPES, **STATISTICS}.items()}
    return Trace(
        "PyTorch",
        plan_of(recipe, batches),
        initial,
        {"eval": [layer], "train": [layer], "dropout": []},
        main,
        rounding=known_rounding(main),
        trainable=[*SHAPES],
        constants=[],
        drops=[Drop("conv", 0.2, True, 1.25, (2, 4))],
        probes={"": {"−x": Probe({"logits": rng.standard_normal((2, 5))}, "")}},
        builds=[
            {name: rng.standard_normal(shape) for name, shape in SHAPES.items()} for _ in range(3)
        ],
        optimizer_alone={
            update: {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
            for update in (1, 100)
        },
        losses_alone={ArrayId(samples=2, factor=factor): 0.5 * factor for factor in (1, 10)},
        optimizer_settings={
            "learning rate": dict.fromkeys(SHAPES, 0.1),
            "eps": dict.fromkeys(SHAPES, 1e-8),
        },
    )


def known_rounding(one: Run) -> dict[StageId, dict[Any, float]]:
    known = {stage: dict.fromkeys(values(one), WHOLE) for stage, values in MEASURED_ARRAYS.items()}
    for index, later in enumerate(one.later):
        for stage, values in MEASURED_ARRAYS.items():
            known[dataclasses.replace(stage, batch=index + 2)] = dict.fromkeys(values(later), WHOLE)
    for dropped in one.dropped:
        for stage, values in MEASURED_ARRAYS.items():
            known[dataclasses.replace(stage, masked=True)] = dict.fromkeys(values(dropped), WHOLE)
    return known


def sides(port: Trace, reference: Trace) -> Sides:
    order = order_of(port, NAMES)
    return sides_of(port, reference, NAMES, reference.rounding, order)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("seed", range(5))
def test_a_trace_agrees_with_itself_with_no_difference(seed, optimizer):
    one, two = trace(seed, optimizer), trace(seed, optimizer)
    found, again = (verdict(side, side, NAMES) for side in (one, two))
    assert found.agrees
    items = [item for stage in found.stages for item in stage.differences]
    assert len(items) > 80
    assert {item.relative for item in items} == {0.0}
    assert {item.max_abs for item in items} == {0.0}
    assert repr(found) == repr(again)


class Moves:
    """Takes the place of `Allowed.compare`, and moves the port's array in one of the calls."""

    def __init__(self, number: int | None = None) -> None:
        self.number, self.calls = number, list[tuple[ArrayId, Allowed]]()

    def __call__(self, bound: Allowed, array: ArrayId | str, ours: Any, theirs: Any) -> Difference:
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
    one, moved = trace(7, optimizer), 0
    for rule in RULES:
        still = Moves()
        monkeypatch.setattr(Allowed, "compare", partialmethod(still))
        rule.stage(sides(one, one))
        for number, (array, bound) in enumerate(still.calls):
            if not math.isfinite(bound.rounding) or bound.why.startswith("only rounding"):
                continue
            if rule.id == UNTRAINED:  # a table that differs is looked at again
                continue
            monkeypatch.setattr(Allowed, "compare", partialmethod(Moves(number)))
            stage = rule.stage(sides(one, one))
            assert stage.verdict == DIFFERS, (rule.id, array, bound)
            assert stage.first.id.name == array.name
            moved += 1
    assert moved >= 80


def test_a_stages_tolerance_is_its_rules_field():
    """Except in stages of layers and of initial values."""
    one, least, compared = trace(7), 1e-9, set()
    for rule in RULES:
        stage = dataclasses.replace(rule, tolerance=least).stage(sides(one, one))
        if stage is None or rule.id == INITIALISATION:
            continue
        compared.add(rule.id)
        assert {item.tolerance for item in stage.differences} <= {least}, rule.id
    assert len(compared) > 20


def test_untrained_tables_may_differ_by_last_places_only():
    for units, verdict_of_stage in ((2, "ok"), (100, "DIFFERS")):
        port, reference = trace(7), trace(7)
        table = np.ones(4, np.float32)
        for side, array in ((port, table + units * np.spacing(table)), (reference, table)):
            side.initial["norm.moving_mean"] = array
        found = verdict(port, reference, NAMES)
        stage = next(one for one in found.stages if one.id == UNTRAINED)
        assert stage.verdict == verdict_of_stage
        item = next(one for one in stage.differences if one.name == "norm.moving_mean")
        if stage.verdict == "ok":
            assert item.tolerance == pytest.approx(2 * item.relative)  # of 4 units


@pytest.mark.parametrize(("dtype", "named"), [(np.float32, True), (np.int32, False)])
def test_only_tables_of_floats_have_a_precision(dtype, named):
    port, reference = trace(7), trace(7)
    table = np.full(4, 2**20, dtype)
    for side, array in ((port, table + dtype(8)), (reference, table)):
        side.initial["norm.moving_mean"] = array
    stage = next(one for one in verdict(port, reference, NAMES).stages if one.id == UNTRAINED)
    assert stage.verdict == DIFFERS
    assert ["float64" in hint for hint in stage.hints] == [named]


@pytest.mark.parametrize(
    "why", ["measured rounding", "median", "unit of the weight", "tolerance", "equal"]
)
def test_a_row_says_which_rule_gives_its_bound(why):
    one = trace(7)
    if why == "unit of the weight":
        one.run.start["conv.weight"] *= 1e5  # its last place is 1 % of its change
        one.run.after[0]["conv.weight"] += one.run.start["conv.weight"]
    elif why != "tolerance":
        one.rounding[GRADIENTS] = {"conv.weight": 1e-3, "head.weight": 5e-5, "head.bias": 8e-5}
    found = verdict(one, one, NAMES)
    whys = {(stage.id, item.name): item.why for stage in found.stages for item in stage.differences}
    place = {
        "measured rounding": (GRADIENTS, "conv.weight"),
        "median": (GRADIENTS, "head.weight"),
        "unit of the weight": (CHANGE, "conv.weight"),
        "tolerance": (GRADIENTS, "conv.weight"),
        "equal": (WEIGHTS, "conv.weight"),
    }
    assert whys[place[why]] == why


@pytest.mark.parametrize(
    ("usual", "large", "verdict_and_why"),
    [(1e-7, 1e-3, ("rounding", "measured rounding")), (1e-3, 1e-7, ("DIFFERS", "tolerance"))],
)
def test_why_is_of_the_numbers_that_decide(usual, large, verdict_and_why):
    """Here of the large ones, which are compared apart."""
    reference = np.array([1.0, 2.0, 3.0, 4.0, -1e9])
    port = reference * [1, 1, 1, 1, 1.002]
    bound = larger_bound(1e-5, {reasons.MEASURED: usual}, large)
    item = bound.compare("scores", port, reference)
    assert item.rounding == large
    assert (item.verdict, item.why) == verdict_and_why


@pytest.mark.parametrize(("of_large", "expected"), [(1e-3, "rounding"), (1e-7, "DIFFERS")])
@pytest.mark.parametrize(
    ("stage_id", "name"), [(EVAL_FORWARD, "logits"), (GRADIENTS, "conv.weight")]
)
def test_large_numbers_have_their_measured_rounding(stage_id, name, of_large, expected):
    """One number is 10¹² times the others, and differs by 0.2 %. The others are equal."""
    port, reference = trace(7), trace(7)
    for one, factor in ((port, 1.002), (reference, 1.0)):
        MEASURED_ARRAYS[stage_id](one.run)[name].flat[0] = 1e12 * factor
    reference.rounding[dataclasses.replace(stage_id, large=True)] = {name: of_large}
    found = verdict(port, reference, NAMES)
    stage = next(one for one in found.stages if one.id == stage_id)
    item = next(one for one in stage.differences if one.id.name == name)
    assert (item.verdict, item.rounding) == (expected, max(of_large, LARGE_AT_LEAST[stage_id]))


@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_errors_of_kernels_excuse_packed_outputs_too(error):
    """The port pads: what its kernels move has the name of its padded output."""
    port, reference = trace(7), trace(7)
    padded = np.ones((2, 3, 4), np.float32)
    reference.run.eval_outputs = {
        "logits data": np.ones((5, 4), np.float32),
        "logits batch_sizes": np.array([2, 2, 1]),
    }
    port.run.eval_outputs = {"logits": padded * (1 + 1e-3)}
    port.kernels = {EVAL_FORWARD: {"logits": error}}
    found = verdict(port, reference, NAMES)
    stage = next(one for one in found.stages if one.id == EVAL_FORWARD)
    assert stage.verdict == ("rounding" if error else "DIFFERS")


def other_gradients() -> Trace:
    """A port with the same layers, whose gradients are 1 % away."""
    port = trace(7)
    port.run.gradients = {name: 1.01 * array for name, array in port.run.gradients.items()}
    return port


def answered(deciding: Generator[Request, Answer, Verdict], answer: Answer) -> Verdict:
    """The verdict after one request and its answer."""
    with pytest.raises(StopIteration) as end:
        deciding.send(answer)
    return end.value.value


def test_gradients_that_differ_alone_request_flipped_ties():
    port, reference = other_gradients(), trace(7)
    wide = {stage: dict.fromkeys(errors, 1e-2) for stage, errors in reference.rounding.items()}
    for answer, ties, first in ((FlippedTies(wide, 3), 3, None), (None, 0, "head.bias")):
        deciding = decide(port, reference, NAMES, (2.0, 8.0))
        assert next(deciding) == AskTies(2.0)
        final = answered(deciding, answer)
        assert (final.ties, final.first_gradient and final.first_gradient.name) == (ties, first)
    assert verdict(port, reference, NAMES).first_gradient.name == "head.bias"  # without widths


def test_flipped_ties_are_not_requested_when_layers_differ():
    port = other_gradients()
    layer = port.layers["eval"][0]
    port.layers["eval"] = [dataclasses.replace(layer, output=1.01 * layer.output)]
    with pytest.raises(StopIteration):
        next(decide(port, trace(7), NAMES, (1e-5,)))


@pytest.mark.parametrize(("rounding", "findings"), [(1e-3, 0), (1e-6, 1), (None, 1)])
def test_a_probe_that_differs_requests_its_rounding(rounding, findings):
    port, reference = trace(7), trace(7)
    port.probes[""]["−x"].outputs["logits"] *= 1 + 2e-3
    deciding = decide(port, reference, NAMES)
    assert next(deciding) == AskProbes({"": ["−x"]})
    known = {"": {"−x": {"logits": rounding}}} if rounding else {}
    final = answered(deciding, ProbeAnswer(known, "" if rounding else "no"))
    assert len(final.probed.findings) == findings
    assert ("the rounding of probes" in final.probed.left_out) == (rounding is None)
    assert final.agrees


def test_undecided_outputs_are_no_agreement_for_probes():
    port, reference = trace(7), trace(7)
    port.run.eval_outputs["logits"] *= 1.1
    reference.rounding[EVAL_FORWARD]["logits"] = 0.5
    port.probes[""]["−x"].outputs["logits"] *= 2
    probed = verdict(port, reference, NAMES).probed
    assert (probed.findings, probed.agreed) == ([], {})
    assert probed.left_out == {"−x": "the outputs on the batches are undecided"}


def test_probes_with_undecided_outputs_do_not_agree():
    port, reference = trace(7), trace(7)
    for side, factors in ((port, (1.2, 1.1)), (reference, (1.0, 1.0))):
        outputs = side.probes[""]["−x"].outputs
        wide, unclear = (factor * outputs["logits"] for factor in factors)
        outputs |= {"logits": wide, "aux": unclear}
    compared = compare_probes(port, reference, NAMES.layers, "ok")
    known = {"": {"−x": {"logits": 0.06, "aux": 0.5}}}
    probed = judge_probes(compared, ProbeAnswer(known))
    assert (probed.findings, probed.agreed) == ([], {})
    assert list(probed.left_out) == ["−x"]


@pytest.mark.parametrize(
    ("kernels", "error", "findings"),
    [(8e-6, 1.5e-5, 0), (0.0, 1.5e-5, 1), (8e-6, 1e-2, 1), (1e-3, 1e-4, 1)],
)
def test_kernels_excuse_probes_as_batches(kernels, error, findings):
    port, reference = trace(7), trace(7)
    for side, factor in ((port, 1 + error), (reference, 1.0)):
        probe = side.probes[""]["−x"]
        outputs = {name: factor * one for name, one in probe.outputs.items()}
        side.probes[""][MORE] = dataclasses.replace(probe, outputs=outputs)
    port.kernels = {EVAL_FORWARD: {"logits": kernels}}
    compared = compare_probes(port, reference, NAMES.layers, "ok")
    probed = judge_probes(compared, ProbeAnswer({}))
    assert [one.probe for one in probed.findings] == [MORE] * findings
    assert len(probed.kernels) == 1 - findings


@pytest.mark.parametrize(
    ("probe", "error", "findings"),
    [(MORE, 1.5e-5, 0), (MORE, 3e-4, 1), ("10·x", 8e-5, 0), ("10·x", 3e-4, 1)],
)
def test_inexact_layers_excuse_little_in_the_net(probe, error, findings):
    """Of a net with a layer of tanh: the error may be outside of this layer."""
    port, reference = trace(7), trace(7)
    for side, factor in ((port, 1 + error), (reference, 1.0)):
        (layer,) = side.layers["eval"]
        side.layers["eval"] = [dataclasses.replace(layer, kind="tanh")]
        outputs = side.probes[""].pop("−x").outputs
        changed = {name: factor * value for name, value in outputs.items()}
        side.probes[""][probe] = Probe(changed, "")
    port.kernels = {EVAL_FORWARD: {"logits": 8e-6}}
    probed = judge_probes(compare_probes(port, reference, NAMES.layers, "ok"), ProbeAnswer({}))
    assert [finding.probe for finding in probed.findings] == [probe] * findings
    assert len(probed.kernels) == 1 - findings


def test_an_error_costs_one_line_of_the_coverage():
    one = trace(7)
    one.run.after = one.run.after[:1]
    layers = {
        "eval": [dataclasses.replace(one.layers["eval"][0], settings={"min": "?", "max": "?"})]
    }
    one.layers |= layers
    lines = verdict(one, one, NAMES).coverage.not_exercised
    assert lines[0].startswith("unknown because of an error: layers (TypeError")
    assert any("momentum" in line for line in lines)


def test_probes_that_fail_leave_the_coverage():
    one = trace(7)
    one.run.after = one.run.after[:1]
    one.probes[""]["−x"].outputs["logits"] = None
    found = verdict(one, one, NAMES)
    assert any("the comparison of probes failed" in line for line in found.changes)
    assert found.coverage.facts["layers compared"] == 1
    assert any("momentum" in line for line in found.coverage.not_exercised)


def test_a_stored_source_answers_from_what_was_stored():
    one = trace(7)
    one.probes[""]["−x"].rounding["logits"] = 1e-3
    source = StoredSource(one)
    assert source.probe_rounding({"": ["−x"]}).rounding == {"": {"−x": {"logits": 1e-3}}}
    assert (source.tie_widths, source.flipped_ties(1e-5), source.can_run) == ((), None, False)


def test_each_worker_may_decide_ties_otherwise():
    """The port's loss, on both workers, is that of the reference with its ties decided otherwise."""
    reference = trace(0)
    run_of_port = dataclasses.replace(reference.run, losses=[9.0, *reference.run.losses[1:]])
    port = dataclasses.replace(trace(0), run=run_of_port)
    port = dataclasses.replace(port, workers=[port, port])
    tied = dataclasses.replace(sides(port, reference), otherwise=run_of_port)
    (loss,) = [stage for stage in compare_stages(tied) if stage.id == LOSS]
    assert loss.verdict in AGREES


@pytest.mark.parametrize("integers", [False, True])
def test_layers_that_ties_change_do_not_differ(integers):
    """The net's outputs are those of the reference with its ties decided otherwise."""
    reference, port = trace(0), trace(0)
    numbers = reference.run.eval_outputs["logits"]
    otherwise = np.roll(numbers, 1)
    if integers:
        otherwise = otherwise.argsort()
        reference.run.eval_outputs["logits"] = np.argsort(numbers)
    run_of_port = dataclasses.replace(port.run, eval_outputs={"logits": otherwise})
    port = dataclasses.replace(port, run=run_of_port)
    apart = difference("conv", np.float32([1, 2]), np.float32([1, 3]), 1e-5)
    layer = LayerDifference("eval", "conv", "conv", apart, None, ())
    tied = dataclasses.replace(sides(port, reference), otherwise=run_of_port, layers=[layer])
    by_id = {stage.id: stage for stage in compare_stages(tied)}
    assert by_id[EVAL_FORWARD].verdict in AGREES
    assert by_id[EVAL_LAYERS].verdict != DIFFERS


def test_relus_ties_are_requested_where_others_changed_layers():
    """Ties of a step change the net's outputs and a layer; the gradients differ beside it."""
    reference, port = trace(7), other_gradients()
    otherwise = dataclasses.replace(
        reference.run, eval_outputs={"logits": np.roll(reference.run.eval_outputs["logits"], 1)}
    )
    reference.ties = Ties(["net.py:1, long: 1 tie"], reference.rounding, otherwise)
    port.run.eval_outputs = otherwise.eval_outputs
    layer = port.layers["eval"][0]
    port.layers["eval"] = [dataclasses.replace(layer, output=1.01 * layer.output)]
    deciding = decide(port, reference, NAMES, (2.0, 8.0))
    assert next(deciding) == AskTies(2.0)
    final = answered(deciding, None)
    assert (final.first_layer, final.first_stage.id, len(final.tied)) == (None, GRADIENTS, 1)
    port.run.eval_outputs = reference.run.eval_outputs
    assert verdict(port, reference, NAMES).first_layer.name == "conv"


def test_ties_leave_the_median_as_it_was_measured():
    """Else larger roundings of others would leave the median, and a passing array would differ."""
    reference, port = trace(0), trace(0)
    first, *others = SHAPES
    errors = {first: 1e-6, **dict.fromkeys(others, 5e-5)}
    port.run.gradients[first] = reference.run.gradients[first] * (1 + 1.5e-4)
    with_ties = {**errors, **dict.fromkeys(others, 2e-4)}
    tied = dataclasses.replace(
        sides(port, reference), rounding={GRADIENTS: with_ties}, recorded={GRADIENTS: errors}
    )
    (stage,) = [stage for stage in compare_stages(tied) if stage.id == GRADIENTS]
    assert {item.name: item.verdict for item in stage.differences}[first] == "rounding"


def test_only_arrays_that_ties_excuse_are_called_tied():
    reference = trace(0)
    first, second, *_ = SHAPES
    gradients = reference.run.gradients
    otherwise = {**gradients, first: gradients[first] + 1}
    port = dataclasses.replace(
        trace(0), run=dataclasses.replace(reference.run, gradients=otherwise)
    )
    tied = dataclasses.replace(sides(port, reference), otherwise=port.run)
    (stage,) = [stage for stage in compare_stages(tied) if stage.id == GRADIENTS]
    why = {item.name: item.why for item in stage.differences}
    assert (why[first], why[second] == reasons.TIES) == (reasons.TIES, False)


def test_excused_integers_excuse_no_layers_without_ties():
    reference, port = trace(0), trace(0)
    ids = np.arange(1000)
    reference.run.eval_outputs["logits"] = ids
    port.run.eval_outputs["logits"] = np.where(ids == 3, 0, ids)
    reference.changing = {EVAL_FORWARD: {"logits": ids == 3}}
    apart = difference("conv", np.float32([1, 2]), np.float32([1, 3]), 1e-5)
    layer = LayerDifference("eval", "conv", "conv", apart, None, ())
    both = dataclasses.replace(sides(port, reference), layers=[layer])
    by_id = {stage.id: stage for stage in compare_stages(both)}
    assert by_id[EVAL_FORWARD].verdict in AGREES
    assert by_id[EVAL_LAYERS].verdict == DIFFERS
