"""The ways to compute one net, each with its state and what is expected of it."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from resnet_fn.config.wording import first_few, first_line
from resnet_fn.parity.record.common import words_with_place
from resnet_fn.parity.record.rounding import changing
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.difference import DIFFERS
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.plan import Plan, check_batches
from resnet_fn.parity.trace.stages import StageId
from resnet_fn.parity.trace.tree import Tree
from resnet_fn.parity.ways.half import unit
from resnet_fn.parity.ways.net import OneNet
from resnet_fn.parity.ways.padding import lengths_of, padded_and_alone
from resnet_fn.parity.ways.samples import beside, count_of, samples_of
from resnet_fn.parity.ways.way import (
    BITS,
    BY_PRECISION,
    TO_ROUNDING,
    NotApplicableError,
    Way,
    WayResult,
    compared,
    errors_of,
)

HALF = "half"  # the name of the way in half precision

_MOST_SAMPLES = 8  # that run alone

_EVALUATION = (stages.EVAL_FORWARD,)
_WITH_LAYERS = (stages.EVAL_FORWARD, stages.EVAL_LAYERS)
_WITH_STATE = (stages.WEIGHTS, stages.EVAL_FORWARD)
_BACKWARD = (stages.LOSS, stages.GRADIENTS, stages.NORM, stages.CHANGE)
_UPDATES = (
    stages.EVAL_FORWARD,
    stages.TRAIN_FORWARD,
    *_BACKWARD,
    stages.STATISTICS,
    stages.TRAJECTORY,
    stages.LAST,
    stages.CHANGED_BUFFERS,
)


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asks of the ways."""

    length_axes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    half: str = ""  # "float16" or "bfloat16"; empty: none
    compile: bool = False  # whether to compile a net that is not compiled always
    only: Collection[str] = ()  # the names of the ways; empty: all


def results(net: OneNet, options: Options) -> Iterator[WayResult]:
    """Compute a net in all ways, one after the other. An error makes a way undecided."""
    for way, compare in _WAYS:
        if options.only and way.name not in options.only:
            continue
        fix = ""
        if way.name == HALF and options.half:
            way = dataclasses.replace(way, state=options.half, port=f"in {options.half}")
            fix = "; --half none leaves this way out"
        try:
            with net.fresh() as fresh:
                yield compare(way, fresh, options)
        except NotApplicableError as reason:
            yield WayResult(way, skipped=str(reason))
        except Exception as error:
            message = words_with_place(error).removeprefix("ValueError: ")
            yield WayResult(way, undecided=message + fix)


def _one_by_one(way: Way, net: OneNet, options: Options) -> WayResult:
    inputs = samples_of(net.plan.batches[0][0], 0, _MOST_SAMPLES)
    count = count_of(inputs)
    if count < 2:
        raise NotApplicableError("not exercised: a batch has one sample; give two or more")
    alone = [samples_of(inputs, index, index + 1) for index in range(count)]
    return _of_samples(way, net, inputs, alone, _WITH_LAYERS)


def _of_samples(
    way: Way,
    net: OneNet,
    inputs: Tree,
    samples: Sequence[Tree],
    which: Sequence[StageId] = _EVALUATION,
) -> WayResult:
    whole, alone = _afresh(net, inputs, rounding=True), [_afresh(net, sample) for sample in samples]
    reference, port, left = beside(whole, alone)
    if not port.run.eval_outputs:
        message = f"no output has an axis of samples: {first_few([*whole.run.eval_outputs])}"
        return WayResult(way, undecided=message)
    notes = [f"not compared, without an axis of samples: {first_few(left)}"] if left else []
    return compared(way, port, reference, which, notes)


def _without_padding(way: Way, net: OneNet, options: Options) -> WayResult:
    inputs = samples_of(net.plan.batches[0][0], 0, _MOST_SAMPLES)
    lengths = lengths_of(inputs, options.length_axes)
    if lengths is None or lengths.longest < 2 or count_of(inputs) < 2:
        raise NotApplicableError(
            "not exercised: no input is a mask or lengths; name the axis of the length: "
            "--length-axis NAME=AXIS"
        )
    return _of_samples(way, net, *padded_and_alone(inputs, lengths))


def _afresh(net: OneNet, inputs: Tree, rounding: bool = False) -> Trace:
    """Return an evaluation that does not move the state of the next one."""
    with net.fresh() as fresh:
        return fresh.with_rounding(inputs) if rounding else fresh.evaluated(inputs)


def _repeated(way: Way, net: OneNet, options: Options) -> WayResult:
    inputs = net.plan.batches[0][0]
    first = net.evaluated(inputs)
    return compared(way, net.evaluated(inputs), first, _WITH_STATE)


def _restored(way: Way, net: OneNet, options: Options) -> WayResult:
    inputs = net.plan.batches[0][0]
    saved, first = net.saved(), net.evaluated(inputs)
    net.train()
    net.restore(saved)
    return compared(way, net.evaluated(inputs), first, _WITH_STATE)


def _compiled(way: Way, net: OneNet, options: Options) -> WayResult:
    if not (options.compile or net.compiles_always):
        raise NotApplicableError(f"not exercised: give --compile to run {net.compiler}")
    # Two updates and a further pass are three calls of the compiled step.
    compiled, eager = net.compiled(_first_batches(net.plan, 2))
    result = compared(way, compiled, eager, _UPDATES)
    # Layers were run uncompiled. A known fault explains only what differs.
    notes = compiled.notes if result.verdict == DIFFERS else ()
    return dataclasses.replace(result, layers=(), notes=notes)


def _first_batches(plan: Plan, count: int, accumulate: int = 1) -> Plan:
    return dataclasses.replace(
        plan,
        batches=plan.batches[:count],
        rates=plan.rates[:count],
        accumulate=accumulate,
        average=None,
    )


def _micro_batches(way: Way, net: OneNet, options: Options) -> WayResult:
    count = count_of(net.plan.batches[0][0])
    parts = next((divisor for divisor in range(2, count + 1) if count % divisor == 0), 0)
    whole = _first_batches(net.plan, 1)
    if not parts:
        raise NotApplicableError("not exercised: a batch has one sample; give two or more")
    try:
        check_batches(whole.batches, parts)
    except ValueError as error:
        raise NotApplicableError(f"not exercised: {first_line(error)}") from None
    layers = _afresh(net, whole.batches[0][0]).layers["eval"]
    if norms := [layer.title for layer in layers if _normalises_batch(layer)]:
        raise NotApplicableError(
            f"not applicable: statistics of the batch, in {first_few(norms)}; each micro-batch is "
            "normalised on its own"
        )
    reference = net.updates(whole)
    port = net.updates(_first_batches(net.plan, 1, parts))
    result = compared(way, port, reference, _BACKWARD)
    result = dataclasses.replace(result, layers=())  # those of one micro-batch
    ratio = port.run.losses[0] / (reference.run.losses[0] or np.nan)
    if abs(ratio * parts - 1) < 1e-3:
        message = (
            f"the loss of {parts} micro-batches is 1/{parts} of that of the batch: it is a sum"
        )
        return dataclasses.replace(result, notes=[f"{message}; take the mean over the batch"])
    return result


def _normalises_batch(layer: Layer) -> bool:
    settings = layer.settings
    return settings.get("over") == "batch" and settings.get("batch_statistics") != "never"


def _in_half(way: Way, net: OneNet, options: Options) -> WayResult:
    if not options.half:
        raise NotApplicableError("not exercised: --half none")
    inputs, least = net.plan.batches[0][0], unit(options.half)
    reference = _afresh(net, inputs)
    with net.fresh() as fresh:
        control = fresh.rounded_to(inputs, options.half)
    half = net.in_half(inputs, options.half)
    others = {layer.title: layer for layer in control.layers["eval"]}
    for layer in reference.layers["eval"]:
        other = others.get(layer.title)
        for which in ("input", "output"):
            errors = errors_of({"": getattr(layer, which)}, {"": getattr(other, which, None)})
            setattr(layer, f"{which}_rounding", max(least, errors.get("", 0.0)))
    reference.changing = changing(reference.run, [control.run])
    errors = errors_of(reference.run.eval_outputs, control.run.eval_outputs)
    reference.rounding[stages.EVAL_FORWARD] = {
        name: max(least, error) for name, error in errors.items()
    }
    return compared(way, half, reference, _EVALUATION)


Compare = Callable[[Way, OneNet, Options], WayResult]

_WAYS: tuple[tuple[Way, Compare], ...] = (
    (
        Way("repeated", "evaluation", BITS, "in the second evaluation", "in the first"),
        _repeated,
    ),
    (
        Way("alone", "evaluation", TO_ROUNDING, "alone", "in the batch"),
        _one_by_one,
    ),
    (
        Way("unpadded", "evaluation", TO_ROUNDING, "without padding", "with padding"),
        _without_padding,
    ),
    (
        Way("restored", "after updates", BITS, "restored after updates", "before them"),
        _restored,
    ),
    (
        Way("micro-batches", "update 1", TO_ROUNDING, "in micro-batches", "in one batch"),
        _micro_batches,
    ),
    (
        Way(HALF, "evaluation", BY_PRECISION, "in half precision", "in float32"),
        _in_half,
    ),
    (
        Way("compiled", "2 updates", TO_ROUNDING, "compiled", "not compiled"),
        _compiled,
    ),
)

NAMES = [way.name for way, _ in _WAYS]
