"""Rules for stages with one array for each output, or one number for each update."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from resnet_fn.parity.compare.allowed import (
    CHANGES_TOLERANCE,
    LATER_OUTPUTS_TOLERANCE,
    OUTPUTS_TOLERANCE,
    SETTINGS_TOLERANCE,
    growing_rounding,
    kernel_rounding,
    larger_bound,
)
from resnet_fn.parity.compare.measures import integer_difference, without_step_ties
from resnet_fn.parity.compare.rule import RunRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import (
    NOT_RUN,
    Absent,
    Stage,
    may_be_set_apart,
    set_apart,
    without_undecided,
)
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import DIFFERS, are_integers
from resnet_fn.parity.trace.packed import packed_outputs, padded_names
from resnet_fn.parity.trace.stages import (
    ALL_GRADIENTS,
    ALL_OUTPUTS,
    CHANGED_BUFFERS,
    EVAL_FORWARD,
    LOSS,
    NORM,
    RATE,
    TRAIN_FORWARD,
    TRAJECTORY,
    Key,
    StageId,
    array_id,
)
from resnet_fn.parity.trace.tree import Arrays, paired_outputs


def _word(key: Key) -> str:
    return key if isinstance(key, str) else f"update {key}"


def _shapes(arrays: Mapping[Any, np.ndarray]) -> str:
    shapes = [f"{_word(key)} {list(array.shape)}" for key, array in arrays.items()]
    return ", ".join(shapes) or "nothing"


def _unpaired(port: Arrays, reference: Arrays, names: Mapping[str, str]) -> Iterator[str]:
    """Yield which outputs only one side has."""
    if more := [_word(name) for name in port if name not in names.values()]:
        yield f"in the port alone: {', '.join(more)}"
    if more := [_word(name) for name in reference if name not in names]:
        yield f"in the reference alone: {', '.join(more)}"


_SIZES = "and the reference's own rounding changes these sizes"


def _changed(
    changing: np.ndarray | None, flipped: np.ndarray | None, reference: np.ndarray
) -> np.ndarray | None:
    """Return a mask of the integers that change by rounding, or where ties are decided otherwise."""
    if flipped is None or flipped.shape != reference.shape:
        return changing
    by_ties: np.ndarray = flipped != reference
    return by_ties if changing is None else by_ties | changing


def _size_may_change(error: float, output: np.ndarray, flipped: np.ndarray) -> bool:
    """Return whether an output's size depends on rounding, or on ties, as that of boxes above a
    threshold may.
    """
    return math.isinf(error) or flipped.shape != output.shape


@dataclasses.dataclass(frozen=True)
class Outputs(RunRule):
    """Compares each output or number of one stage."""

    floor: ClassVar = ""  # the reason of `rounding_floor`, if it has one

    def compare(self, sides: Sides) -> Stage:
        """Compare each of the reference's outputs with the one that has its name or shape."""
        reference = self.values(sides.reference.run)
        outputs = self.values(sides.port.run)
        port = packed_outputs(outputs, reference)
        errors, changing = sides.rounding_of_stage(self.id), sides.changing(self.id)
        at_least = self.rounding_floor(sides)
        flipped = sides.flipped(self.id) if self.id in (EVAL_FORWARD, TRAIN_FORWARD) else {}
        names = paired_outputs(port, reference)
        if names is None:
            shapes = f"{_shapes(port)} in the port, {_shapes(reference)} in the reference"
            by_rounding = port.keys() == reference.keys() and all(
                _size_may_change(errors.get(name, 0.0), output, flipped.get(name, output))
                for name, output in reference.items()
                if port[name].shape != output.shape
            )
            return Stage(
                self.id,
                undecided=f"{shapes}, {_SIZES}" if by_rounding else "",
                failed=shapes * (not by_rounding),
            )
        of_large, kernels = sides.rounding_of_large(self.id), sides.kernels(self.id)
        padded = padded_names(outputs, reference)
        differences = []
        for name, b in reference.items():
            if name not in names:
                continue
            port_name = names[name]
            a, array = port[port_name], array_id(name)
            if are_integers(b):
                changed = _changed(changing.get(name), flipped.get(name), b)
                differences.append(integer_difference(array, a, b, changed))
                continue
            roundings = {
                reasons.MEASURED: errors.get(name, 0.0),
                self.floor: at_least.get(name, 0.0),
                reasons.KERNELS: kernel_rounding(
                    kernels.get(padded.get(port_name, port_name), 0.0)
                ),
            }
            bound = larger_bound(self.tolerance, roundings, large=of_large.get(name))
            item = bound.compare(array, a, b)
            if item.verdict == DIFFERS and name in flipped:
                item = without_step_ties(bound, item, a, b, flipped[name])
            differences.append(item)
        return Stage(self.id, differences, "; ".join(_unpaired(port, reference, names)))

    def rounding_floor(self, sides: Sides) -> Mapping[Any, float]:
        """Return lower limits for the rounding of numbers whose measured rounding may be small by
        chance.
        """
        return {}


@dataclasses.dataclass(frozen=True)
class NetOutputs(Outputs):
    """Compares what the net returns, of which nothing may be left out."""

    id: StageId = TRAIN_FORWARD
    names_beyond: bool = True
    tolerance: float = OUTPUTS_TOLERANCE

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, which is undecided if an output is not read."""
        stage = self.compare(sides)
        left = {"port": sides.port.unread, "reference": sides.reference.unread}
        unread = [f"{', '.join(names)} in the {side}" for side, names in left.items() if names]
        if not unread or stage.verdict == DIFFERS:
            return stage
        return dataclasses.replace(stage, undecided=f"not read: {'; '.join(unread)}; {_READ}")


_CHAOTIC = "outputs after the updates: rounding decides about them; train at a lower rate"

_READ = "return tensors, numbers or texts, or objects that hold them"


@dataclasses.dataclass(frozen=True)
class EvalForward(NetOutputs):
    """Compares outputs in evaluation mode, and whether they repeat."""

    id: StageId = EVAL_FORWARD
    trains: bool = False

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, which decides nothing if both nets draw random numbers here, and
        one of them in training mode, too.
        """
        stage = super().stage(sides)
        port, reference = sides.port, sides.reference
        # on purpose: with dropout set to 0 they may repeat
        both = port.random_eval and reference.random_eval
        if both and (port.random_train or reference.random_train):
            message = (
                "both nets draw random numbers in evaluation mode too; switch that off to compare"
            )
            return dataclasses.replace(stage, undecided=message)
        for trace, side in ((port, "the net"), (reference, "the reference")):
            if trace.random_eval and not both:
                message = (
                    f"{side} gives another output each time it is called in evaluation mode: "
                    "dropout is left on"
                )
                stage = dataclasses.replace(stage, failed=message, hints=[*stage.hints, message])
        return stage


@dataclasses.dataclass(frozen=True)
class Loss(Outputs):
    """Compares the loss, which gets at least the rounding of the outputs."""

    id: StageId = LOSS
    names_beyond: bool = True
    tolerance: float = OUTPUTS_TOLERANCE

    floor: ClassVar = reasons.FROM_OUTPUTS

    def rounding_floor(self, sides: Sides) -> Mapping[Any, float]:
        """Return the rounding of the outputs of update 1."""
        return {self.id.name: sides.rounding_of_stage(ALL_OUTPUTS).get(1, 0.0)}


@dataclasses.dataclass(frozen=True)
class GradientNorm(Outputs):
    """Compares the global norm, which gets at least the rounding of all gradients together."""

    id: StageId = NORM
    tolerance: float = OUTPUTS_TOLERANCE

    floor: ClassVar = reasons.FROM_GRADIENTS

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if no side trains anything."""
        trains = sides.port.run.gradients or sides.reference.run.gradients
        return self.compare(sides) if trains else None

    def rounding_floor(self, sides: Sides) -> Mapping[Any, float]:
        """Return the rounding of all gradients as one array."""
        return {"norm": sides.rounding_of_stage(ALL_GRADIENTS).get("", 0.0)}


@dataclasses.dataclass(frozen=True)
class Rates(Outputs):
    """Compares learning rates, if a side does not use the recipe's."""

    id: StageId = RATE
    trains: bool = False
    tolerance: float = SETTINGS_TOLERANCE

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if both sides use the recipe's rates."""
        reference = sides.reference
        if sides.port.run.rates == reference.run.rates == reference.plan.rates:
            return None
        return self.compare(sides)


@dataclasses.dataclass(frozen=True)
class Losses(Outputs):
    """Compares the loss of every update, as far as the reference's rounding allows."""

    id: StageId = TRAJECTORY
    tolerance: float = CHANGES_TOLERANCE

    floor: ClassVar = reasons.FROM_EARLIER

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison without later losses that rounding makes undecided."""
        if not sides.port.run.after:
            return Stage(self.id, note=NOT_RUN)
        stage = self.compare(sides)
        apart = list(filter(may_be_set_apart, stage.differences[2:]))
        if not apart:
            return stage
        first = f"the first of update {apart[0].id.update}: {apart[0].doubt}"
        return set_apart(stage, apart, f"without {len(apart)} losses, {first}")

    def rounding_floor(self, sides: Sides) -> Mapping[Any, float]:
        """Return for each loss the rounding of its outputs and of all losses before."""
        return growing_rounding(
            sides.rounding_of_stage(self.id), sides.rounding_of_stage(ALL_OUTPUTS)
        )


@dataclasses.dataclass(frozen=True)
class ChangedBuffers(Outputs):
    """Compares the outputs after the updates, which show differences in statistics and buffers."""

    id: StageId = CHANGED_BUFFERS
    tolerance: float = LATER_OUTPUTS_TOLERANCE

    floor: ClassVar = reasons.FROM_OUTPUTS

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison."""
        port, reference = sides.port.run, sides.reference.run
        if not port.after:
            return Stage(self.id, note=NOT_RUN)
        if not (port.last_outputs and reference.last_outputs):
            note = "one side has no outputs after the updates; record it again"
            return Stage(self.id, note=note)
        stage = without_undecided(self.compare(sides))
        if not stage.differences and stage.left_out and sides.is_chaotic:
            return Stage(self.id, note=_CHAOTIC, absent=Absent.CHAOTIC)
        lines = buffers_without_counterpart(sides)
        hints = [line for mode, line in lines if mode == "evaluation"]
        return dataclasses.replace(stage, hints=hints) if stage.verdict == DIFFERS else stage

    def rounding_floor(self, sides: Sides) -> Mapping[Any, float]:
        """Return the largest rounding of any update's outputs."""
        largest = max(sides.rounding_of_stage(ALL_OUTPUTS).values(), default=0.0)
        return dict.fromkeys(sides.reference.run.last_outputs, largest)

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the stage without numbers if each worker has its own BatchNorm statistics."""
        stage = workers.without_moved(stage)
        if not workers.moved:
            return stage
        return dataclasses.replace(stage, differences=(), absent=Absent.NOT_IN_TASK)


def without_counterpart(sides: Sides) -> dict[str, str]:
    """Return the buffers and numbers that training changes in the reference, but that the port
    lacks, with the mode in which they change outputs.
    """
    counts = sides.reference.counts  # which no array of the same name replaces
    known = {*sides.port.run.moved, *sides.names.paired, *(sides.port.run.start.keys() - counts)}
    return {name: mode for name, mode in sides.reference.run.moved.items() if name not in known}


def buffers_without_counterpart(sides: Sides) -> list[tuple[str, str]]:
    """Return (mode, text) for each of `without_counterpart`; for all counts of custom norms in the
    same mode, one.
    """
    counts = sides.reference.counts
    lacking = without_counterpart(sides)
    moved = "training moves it in the reference; it has no counterpart in the port, and it changes "
    where = {"": "no output", "training": "outputs in training mode, so later losses can differ"}
    lines = []
    for name, mode in lacking.items():
        alike = [other for other in counts if lacking.get(other) == mode] if name in counts else []
        if alike and name != min(alike):
            continue  # one line for all layers
        more = f" (and {len(alike) - 1} more)" if len(alike) > 1 else ""
        text = f"{name}{more}: {moved}{where.get(mode, 'outputs in evaluation mode')}"
        lines.append((mode, text))
    return lines
