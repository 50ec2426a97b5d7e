"""Rules for stages with one array for each parameter or statistic.

Parameters     one array for each parameter or statistic
├ Weights      those with which both sides begin, bit for bit
├ Gradients    before clipping
│ └ Clipped    after clipping
└ Changes      how far updates have moved them, in several classes (changes.py)
"""

import dataclasses
import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.parity.compare.allowed import (
    GRADIENTS_TOLERANCE,
    NO_GRADIENT,
    Allowed,
    capped_rounding,
    kernel_rounding,
    larger_bound,
    median_of_stage,
    rounding_of_built,
)
from resnet_fn.parity.compare.chance import ByChance, without_chance
from resnet_fn.parity.compare.measures import (
    as_zero_in_reference,
    integer_difference,
    relative_to_stage,
)
from resnet_fn.parity.compare.rule import RunRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import NOT_RUN, Stage, not_in_task, worst
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    UNDECIDED,
    Difference,
    are_integers,
    large_numbers,
    norm,
)
from resnet_fn.parity.trace.stages import CLIPPED, GRADIENTS, WEIGHTS, ArrayId, StageId
from resnet_fn.parity.trace.tree import Arrays


@dataclasses.dataclass(frozen=True)
class OfStage:
    """What is known of all arrays of a stage before one is compared, by the port's names, except
    `large`.
    """

    port: Arrays
    reference: Arrays
    measured: Mapping[str, float]  # the measured rounding of each array
    median: float  # of these, without what ties add
    large: Mapping[Any, float]  # the rounding of large numbers, by the names in the reference
    kernels: Mapping[str, float]  # how far inaccurate kernels move the port's arrays
    whole: float  # the norm of the reference's arrays that have a gradient in the port
    by_chance: ByChance  # `Parameters.moved_by_chance`
    changing: Mapping[str, np.ndarray]  # masks of integers that change by rounding

    @cached_property
    def largest_of_layers(self) -> dict[str, float]:
        """The largest number of both sides' arrays of each layer, by the layer's path."""
        numbers: dict[str, list[float]] = {}
        for name, array in (*self.port.items(), *self.reference.items()):
            of_layer = numbers.setdefault(_layer_of(name), [])
            of_layer.append(float(np.abs(array).max(initial=0)))
        return {layer: max(of_layer) for layer, of_layer in numbers.items()}


def _layer_of(name: str) -> str:
    """Return the path of the layer that has a parameter."""
    return name.rpartition(".")[0]


Numbers = np.ndarray | EllipsisType
"""An index of the numbers of an array that are compared together: a mask, or all."""


class ComparedArray(NamedTuple):
    """One array of both sides, in the port's layout, while a rule compares it."""

    id: ArrayId
    port: np.ndarray
    reference: np.ndarray
    roundings: Mapping[str, float]  # by reason
    large: float | None  # the rounding of the array's large numbers, if it has such
    only_rounding: bool  # whether the array's gradient is only rounding
    of_stage: OfStage

    def parts(self) -> Iterator[tuple["ComparedArray", Numbers]]:
        """Yield the usual and the large numbers apart, if there are large ones: for each, the array
        with all other numbers equal on both sides, and the mask of its numbers.
        """
        are_large = large_numbers(self.reference)
        if not are_large.any():
            yield self, ...
            return
        of_usual = self.roundings[reasons.MEASURED]
        of_large = of_usual if self.large is None else self.large
        for numbers, measured in ((~are_large, of_usual), (are_large, of_large)):
            part = self._replace(
                port=np.where(numbers, self.port, self.reference),
                roundings={**self.roundings, reasons.MEASURED: measured},
                large=None,
            )
            yield part, numbers

    def within_bound(self, tolerance: float) -> Difference:
        """Return the difference with the larger one of a tolerance and the bound by the array's
        roundings; of an array that is only rounding and does not pass, as a part of the stage.
        """
        item = self.compare(larger_bound(tolerance, self.roundings, self.large))
        return self.as_only_rounding(item) or item

    def compare(self, bound: Allowed) -> Difference:
        """Return the difference with a bound."""
        return bound.compare(self.id, self.port, self.reference)

    def as_only_rounding(self, item: Difference) -> Difference | None:
        """Return the difference relative to the stage if the array is only rounding, and if it is
        undecided or differs, else None.

        Its tolerance stays, and its rounding becomes the stage's median.
        """
        does_not_pass = item.verdict in (UNDECIDED, DIFFERS) and math.isfinite(item.relative)
        if not (does_not_pass and self.only_rounding):
            return None
        return self.as_part_of_stage(item)

    def as_part_of_stage(self, item: Difference) -> Difference:
        """Return the difference relative to the stage, with the stage's median as rounding."""
        error = norm(self.port - self.reference)
        return relative_to_stage(item, error, self.of_stage.whole, self.roundings[reasons.MEDIAN])


class TooSmall(enum.Enum):
    """The result for an array that is not compared: a type of its own, which mypy can narrow."""

    TOO_SMALL = "float32 cannot show so small a change"  # `Stage.too_small`


TOO_SMALL = TooSmall.TOO_SMALL


@dataclasses.dataclass(frozen=True)
class Parameters(RunRule):
    """Compares arrays under the port's names.

    `compare` goes through the arrays once. Subclasses may change these methods, which it calls in
    this order:

    1. `compared`: the names of the arrays that the stage has
    2. `values`: the arrays of each side
    3. `is_idle`: which arrays are left out
    4. `moved_by_chance`: which elements count as equal
    5. of each array: `array_id`, then `differences` (integers are compared by value)

    What holds for the updates alone is in `stage` (rule.py). Later batches, masks and constants
    call `compare`.
    """

    # what the arrays are: it decides how terms of a sum are added
    made_of: str = name_map.VALUE_KIND

    def compare(self, sides: Sides) -> Stage:
        """Compare each array that both sides have."""
        names = self.compared(sides)
        if not names:
            return not_in_task(self.id, "there are none")
        port = self.values(sides.port.run)
        by_reference_names = self.values(sides.reference.run)  # by the reference's names
        # the same by the port's names
        reference = sides.names.rename(by_reference_names, self.made_of)
        on_both = [name for name in names if name in port and name in reference]
        if not on_both:  # only what an update makes may be missing: none was made, or none is kept
            # undecided: `absent` stays NOT_READ
            return Stage(self.id, note="one side keeps none" if sides.port.run.after else NOT_RUN)
        left = [
            name for name in on_both if not self.is_idle(sides, name, port[name], reference[name])
        ]
        if not left:
            return not_in_task(self.id, "nothing changes")
        compared = {name: reference[name] for name in left}
        recorded = measured = self._measured(sides, by_reference_names, compared)
        if sides.without_ties is not sides:  # larger roundings by ties would leave the median
            recorded = self._measured(sides.without_ties, by_reference_names, compared)
        changing = _changing(sides, self.id, by_reference_names)
        median = median_of_stage([*recorded.values()])
        of_stage = self._of_stage(sides, port, reference, measured, median, changing)
        differences, too_small = [], []
        for name in left:
            results = self._results(sides, name, of_stage)
            compared_parts = [item for item in results if item is not TOO_SMALL]
            if item := worst(compared_parts):
                differences.append(item)
            if len(compared_parts) < len(results):
                too_small.append(f"{name} (its usual numbers)" if item else name)
        return Stage(self.id, differences, too_small=too_small)

    def compared(self, sides: Sides) -> Sequence[str]:
        """Return the port's arrays that the stage has, in the order of its rows."""
        return sides.compared.all

    def is_idle(self, sides: Sides, name: str, port: np.ndarray, reference: np.ndarray) -> bool:
        """Return whether an array is left out, because nothing changes it."""
        return False

    def _measured(
        self, sides: Sides, by_reference_names: Arrays, reference: Arrays
    ) -> dict[str, float]:
        """Return the measured rounding of each array of `reference`, built from
        `by_reference_names`.
        """
        errors = sides.rounding_of_stage(self.id)
        roundings = {}
        for name, array in reference.items():
            error = rounding_of_built(sides.names, errors, name, by_reference_names, array)
            # Capped at a tolerance, the rounding of a part that is only rounding would count in the
            # stage's median. If such an array does not pass, it is compared as a part of the stage.
            if name not in sides.only_rounding:
                error = capped_rounding(sides.names, errors, name, error, self.tolerance)
            roundings[name] = error
        return roundings

    def _of_stage(
        self,
        sides: Sides,
        port: Arrays,
        reference: Arrays,
        measured: Mapping[str, float],
        median: float,
        changing: Arrays,
    ) -> OfStage:
        """Return what is known of all arrays together."""
        # only arrays that have a gradient count: an integer counter would dominate the norm
        trained = [reference[name] for name in reference if name in sides.port.run.gradients]
        return OfStage(
            port=port,
            reference=reference,
            measured=measured,
            median=median,
            large=sides.rounding_of_large(self.id),
            kernels=sides.kernels(self.id),
            whole=math.hypot(*map(norm, trained)),
            by_chance=self.moved_by_chance(sides, reference),
            changing=changing,
        )

    def moved_by_chance(self, sides: Sides, reference: Arrays) -> ByChance:
        """Return what the optimizer may change by chance."""
        return ByChance(0.0, {})

    def _results(
        self, sides: Sides, name: str, of_stage: OfStage
    ) -> Sequence[Difference | TooSmall]:
        """Compare one array, or its usual and its large numbers."""
        port, reference = of_stage.port[name], of_stage.reference[name]
        if are_integers(reference):
            changing = of_stage.changing.get(name)
            return [integer_difference(self.array_id(name), port, reference, changing)]
        return self.differences(sides, self._compared_array(sides, name, of_stage))

    def array_id(self, name: str) -> ArrayId:
        """Return the id of the compared array of a parameter."""
        return ArrayId(name)

    def _compared_array(self, sides: Sides, name: str, of_stage: OfStage) -> ComparedArray:
        """Return one array of both sides, with what is known of its rounding, and without what
        chance decides.
        """
        port, reference = of_stage.port[name], of_stage.reference[name]
        largest, masks = of_stage.by_chance
        if name in masks:
            port = without_chance(port, reference, masks[name], largest)
        sources = sides.names.sources(name)
        large = [of_stage.large[source] for source in sources if source in of_stage.large]
        return ComparedArray(
            id=self.array_id(name),
            port=port,
            reference=reference,
            roundings={
                reasons.MEASURED: of_stage.measured[name],
                reasons.MEDIAN: of_stage.median,
                reasons.KERNELS: kernel_rounding(of_stage.kernels.get(name, 0.0)),
            },
            # relative to the whole array's large numbers: of a part no more (`capped_rounding`)
            large=max(large, default=None),
            only_rounding=name in sides.only_rounding,
            of_stage=of_stage,
        )

    def differences(self, sides: Sides, array: ComparedArray) -> Sequence[Difference | TooSmall]:
        """Return the difference of one array; of `Changes`, those of its parts, which may be too
        small.
        """
        return [self.difference(sides, array)]

    def difference(self, sides: Sides, array: ComparedArray) -> Difference:
        """Return the difference of an array as a whole."""
        return array.within_bound(self.tolerance)


def _at(mask: np.ndarray | None, place: tuple[int, ...]) -> bool:
    return mask is not None and bool(mask[place])


def _changing(sides: Sides, stage_id: StageId, by_reference_names: Arrays) -> Arrays:
    """Return masks of the integers that change by rounding, under the port's names."""
    changing = sides.changing(stage_id)
    if not changing:
        return {}
    masks = {**changing}
    for source in sides.names.parameters.values():
        joined = [sides.names.one_of(name, by_reference_names) for name in source.names]
        if not changing.keys() & {*joined}:
            continue
        for name in joined:  # what is joined with a mask needs one, too
            if name and name not in masks:
                masks[name] = np.zeros(by_reference_names[name].shape, bool)
    return sides.names.rename(masks, name_map.MASK_KIND)


@dataclasses.dataclass(frozen=True)
class Weights(Parameters):
    """Compares the arrays with which both sides begin, bit for bit."""

    id: StageId = WEIGHTS
    trains: bool = False


@dataclasses.dataclass(frozen=True)
class Gradients(Parameters):
    """Compares gradients in the order of the backward pass, and which arrays have none."""

    id: StageId = GRADIENTS
    names_beyond: bool = True
    tolerance: float = GRADIENTS_TOLERANCE
    made_of: str = name_map.GRADIENT_KIND

    def compared(self, sides: Sides) -> Sequence[str]:
        """Return the arrays that have a gradient on both sides."""
        return sides.compared.backward

    def difference(self, sides: Sides, array: ComparedArray) -> Difference:
        """Return the difference. Where the reference's gradient is None, a small one counts as 0.

        If the whole array is so, any other is all wrong (no such array is in
        `Sides.only_rounding`). An array of which a part is so is compared as usual, unless the rest
        of it is zeros: then any other in that part is all wrong, too.
        """
        name = array.id.name
        without = sides.no_gradient.get(name)  # the elements whose gradient is None
        if without is None:
            return array.within_bound(self.tolerance)
        largest = array.of_stage.largest_of_layers[_layer_of(name)]
        is_small = np.abs(array.port) <= NO_GRADIENT * largest
        port = np.where(without & is_small, 0, array.port)
        item = array._replace(port=port).within_bound(self.tolerance)
        # what is None must be 0; zeros beside it are compared by the absolute error
        is_wrong = port[without].any() and not array.reference.any()
        return as_zero_in_reference(item) if is_wrong else item

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, with a line for each gradient that only the port has."""
        stage = self.compare(sides)
        only_in_port = "it has a gradient in the port; in the reference it has none (None)"
        hints = [
            f"{item.name}: {only_in_port}, so that no optimizer touches it"
            for item in stage.differences
            # a part of the array may be None, and another one may differ
            if item.verdict == DIFFERS and _at(sides.no_gradient.get(item.name), item.place)
        ]
        return dataclasses.replace(stage, hints=hints)


@dataclasses.dataclass(frozen=True)
class Clipped(Gradients):
    """Compares gradients after clipping."""

    id: StageId = CLIPPED
    names_beyond: bool = False
