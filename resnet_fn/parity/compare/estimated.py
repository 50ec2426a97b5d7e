"""Estimate the reference's arrays from a small trace, so that all rules compare them.

Each array is the one nearest to the port's that has the recorded norm, sums and numbers
(`sketch.nearest`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.result import Seen, Verdict
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.pair.inverse import as_in_reference
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.data import Rounding, Run, Trace
from resnet_fn.parity.trace.difference import Difference
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.layout import moves
from resnet_fn.parity.trace.limits import CEILING
from resnet_fn.parity.trace.sketch import Sketch, error_of, hides, nearest
from resnet_fn.parity.trace.small import (
    OF_RUN,
    SmallTrace,
    after_first_and_last,
    of_layers,
    title_in,
)
from resnet_fn.parity.trace.tree import Arrays, paired_outputs

_TWICE = 2.0
"""A small trace allows so many times the rounding, because sums estimate a distance.
docs/parity.md#a-small-trace
"""

_NEVER = (
    "what moves none of these numbers",
    "initial values",
    "changed inputs",
    "outputs and gradients of further batches",
    "random numbers for constant arrays",
    "dropout masks",
    "the loss and the optimizer alone",
)

# stages whose numbers a small trace holds
_EXACT = {
    stages.INPUTS,
    stages.WEIGHTS,
    stages.DROPOUT,
    stages.LOSS,
    stages.TRAINED,
    stages.NORM,
    stages.RATE,
    stages.SETTINGS,
    stages.TRAJECTORY,
}

# the groups of what nets return
_OUTPUTS = {
    stages.EVAL_FORWARD: "evaluation",
    stages.TRAIN_FORWARD: "training",
    stages.CHANGED_BUFFERS: "last evaluation",
}


class Estimate(NamedTuple):
    """Both sides with the arrays that a small trace can compare."""

    port: Trace
    reference: Trace
    seen: Seen


class _Estimating:
    """Estimates arrays, and counts them."""

    def __init__(self, small: SmallTrace) -> None:
        self.small = small
        self.arrays = self.numbers = 0
        self.missing: list[str] = []
        self.hiding: list[str] = []  # titles of arrays with numbers that no sum has

    def of_group(self, group: str, port: Mapping[str, np.ndarray]) -> Arrays:
        """Return the reference's arrays of a group, of which `port` has the port's numbers."""
        made: Arrays = {}
        for name, kept in self.small.sketches.get(group, {}).items():
            if name not in port:
                self.missing.append(f"{group} {name}")
                continue
            made[name] = self.estimate(group, name, port[name], kept)
        return made

    def estimate(self, group: str, name: str, port: np.ndarray, kept: Sketch) -> np.ndarray:
        """Return the estimate of one array."""
        self.arrays += 1
        self.numbers += len(kept.numbers)
        if not kept.is_whole and hides(port):
            self.hiding.append(f"{group} {name}")
        return nearest(port, kept, self.small.seed, title_in(group, name))


def estimate(small: SmallTrace, port: Trace, names: NameMap) -> Estimate:
    """Return both sides, the reference's arrays as the small trace and the port show them."""
    estimating = _Estimating(small)
    run = _run(estimating, port.run, names)
    layers = {mode: _layers(estimating, mode, port.layers, names) for mode in small.layers}
    reference = dataclasses.replace(
        small, run=run, layers=layers, rounding=_twice(small.rounding), flipped=_flipped(small)
    )
    left = [*_NEVER, *small.left_out]
    if estimating.missing:
        left.append(first_few(estimating.missing))
    if estimating.hiding:
        left.append(f"numbers of 5000 and more in {first_few(estimating.hiding)}")
    seen = Seen(estimating.arrays, estimating.numbers, left)
    of_port = dataclasses.replace(
        port.run, after=after_first_and_last(port.run), later=[], drawn=[], dropped=[]
    )
    kept = dataclasses.replace(
        port, run=of_port, probes={}, builds=[], optimizer_alone={}, losses_alone={}
    )
    return Estimate(kept, reference, seen)


def _run(estimating: _Estimating, port: Run, names: NameMap) -> Run:
    small = estimating.small
    start = small.run.start

    def outputs(group: str) -> Arrays:
        zeros = {name: np.zeros(sketch.shape) for name, sketch in small.sketches[group].items()}
        own = OF_RUN[group](port)
        paired = paired_outputs(dict(own), zeros)
        if paired is None:  # the stage lists the shapes
            return zeros
        return estimating.of_group(
            group, {name: own[port_name] for name, port_name in paired.items()}
        )

    def parameters(group: str, own: Mapping[str, np.ndarray] | None = None) -> Arrays:
        shapes = {name: sketch.shape for name, sketch in small.sketches[group].items()}
        arrays = OF_RUN[group](port) if own is None else own
        return estimating.of_group(group, as_in_reference(names, arrays, shapes))

    def moved(group: str) -> Arrays:
        return {name: start[name] + change for name, change in parameters(group).items()}

    gradients = parameters("gradients")
    clipped = parameters("clipped", port.clipped) if small.sketches["clipped"] else gradients
    after = [moved("change")] * small.updates
    if small.updates > 1:
        after[-1] = moved("last change")
    return dataclasses.replace(
        small.run,
        eval_outputs=outputs("evaluation"),
        train_outputs=[outputs("training")],
        gradients=gradients,
        clipped=clipped,
        after=after,
        average=moved("average"),
        last_outputs=outputs("last evaluation"),
    )


def _layers(
    estimating: _Estimating, mode: str, port: Mapping[str, Sequence[Layer]], names: NameMap
) -> list[Layer]:
    """Return the reference's layers, with the arrays of those that are paired."""
    inputs, outputs = of_layers("inputs", mode), of_layers("outputs", mode)
    paired: dict[tuple[str, int], Layer] = {}
    for layer in port[mode]:
        if layer.name in names.layers:
            paired.setdefault((names.layers[layer.name], layer.call), layer)
    flow: dict[int, np.ndarray] = {}

    def made(group: str, title: str, own: np.ndarray | None) -> np.ndarray | None:
        kept = estimating.small.sketches[group].get(title)
        if kept is None or own is None or own.size != np.prod(kept.shape):
            return None
        fitting = own if own.shape == kept.shape else _nearest_move(estimating, group, title, own)
        return estimating.estimate(group, title, fitting, kept)

    layers = []
    for layer in estimating.small.layers[mode]:
        own = paired.get((layer.name, layer.call))
        input_ = output = None
        if own is not None:
            before = flow.get(id(layer.input))
            input_ = made(inputs, layer.title, own.input) if before is None else before
            output = made(outputs, layer.title, own.output)
            if output is not None:
                flow[id(layer.output)] = output
        layers.append(
            dataclasses.replace(
                layer,
                input=input_,
                output=output,
                input_rounding=_doubled(layer.input_rounding),
                output_rounding=_doubled(layer.output_rounding),
            )
        )
    return layers


def _nearest_move(estimating: _Estimating, group: str, title: str, own: np.ndarray) -> np.ndarray:
    """Return the port's array in the reference's layout, which the sketch fits best."""
    small = estimating.small
    kept = small.sketches[group][title]
    every = [move(own) for move in moves(kept.shape, own)]
    return min(every, key=lambda array: error_of(array, kept, small.seed, title_in(group, title)))


def _twice(rounding: Rounding) -> Rounding:
    """Return twice the rounding, but not so much that it decides nothing any more."""
    return {
        stage: {key: _doubled(error) for key, error in errors.items()}
        for stage, errors in rounding.items()
    }


def _doubled(error: float) -> float:
    return min(_TWICE * error, max(error, CEILING))


def _flipped(small: SmallTrace) -> dict[float, tuple[Rounding, int]]:
    return {width: (_twice(rounding), ties) for width, (rounding, ties) in small.flipped.items()}


def recorded_outputs(small: SmallTrace, reference: Trace) -> Trace:
    """Return the reference with only those outputs in evaluation mode that the small trace has."""
    sketches = small.sketches["evaluation"]
    known = reference.run.eval_outputs.items()
    outputs = {name: output for name, output in known if sketches[name].is_whole}
    run = dataclasses.replace(reference.run, eval_outputs=outputs)
    return dataclasses.replace(reference, run=run)


def with_seen(result: Verdict, small: SmallTrace, seen: Seen) -> Verdict:
    """Return the verdict with what a small trace shows, and without numbers that are estimates."""
    of_stages = [_of_stage(stage, small) for stage in result.stages]
    layers = [
        dataclasses.replace(
            layer, output=_estimated(layer.output), input=layer.input and _estimated(layer.input)
        )
        for layer in result.layers
    ]
    return dataclasses.replace(result, stages=of_stages, layers=layers, seen=seen)


def _of_stage(stage: Stage, small: SmallTrace) -> Stage:
    whole = small.sketches.get(_OUTPUTS.get(stage.id, ""), {}).values()
    if stage.id in _EXACT or (whole and all(sketch.is_whole for sketch in whole)):
        return stage
    return dataclasses.replace(stage, differences=[*map(_estimated, stage.differences)])


def _estimated(item: Difference) -> Difference:
    return dataclasses.replace(item, estimated=True)
