"""Both sides of a comparison, and what several rules derive from them."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.parity.compare import allowed
from resnet_fn.parity.compare.chance import chance_elements
from resnet_fn.parity.compare.layers import LayerDifference, compare_layers
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import Rounding, Run, Trace
from resnet_fn.parity.trace.derived import MEASURED_ARRAYS
from resnet_fn.parity.trace.difference import norm
from resnet_fn.parity.trace.limits import ONLY_ROUNDING, SMALL_GRADIENT
from resnet_fn.parity.trace.stages import FIRST, GRADIENTS, LAST, StageId
from resnet_fn.parity.trace.tree import Arrays


class ComparedNames(NamedTuple):
    """Names of the port's arrays that stages compare, in the order of execution."""

    all: Sequence[str]  # parameters and statistics
    trained: Sequence[str]  # those with a gradient
    # those with a gradient on both sides, in the order of the backward pass
    backward: Sequence[str]
    rest: Sequence[str]  # those without a gradient


def at_most_decayed(start: np.ndarray, after: np.ndarray) -> bool:
    """Return whether no number of an array has moved away from 0."""
    return bool((np.abs(after) <= np.abs(start)).all())


@dataclasses.dataclass(frozen=True)
class Sides:
    """Both sides of a comparison, the pairs of names, and the rounding of the reference's
    arrays.

    `later`, `with_masks` and `with_constants` are these sides with other runs that begin with the
    same weights: the names are the same, and `rounding_of_stage` finds the rounding of those runs.
    `until` ends the same runs earlier. `decided_otherwise` has another run of the reference, and
    `of_worker` another trace of the port, so that only the latter finds the names of the arrays
    again.
    """

    port: Trace
    reference: Trace
    names: NameMap  # the port's names → what they are made of in the reference
    rounding: Rounding
    compared: ComparedNames
    layers: Sequence[LayerDifference] = ()
    initialisation: bool = True  # whether initial values are compared
    batch: int = FIRST  # which batch the runs of both sides are of
    masked: bool = False  # whether these runs use dropout masks
    # the reference's run with every tie of a function decided otherwise; None: there are none, or
    # both sides decide alike
    otherwise: Run | None = None
    recorded: Rounding | None = None  # the rounding without that of ties; None: it has none of ties
    drawn: bool = False  # whether constant arrays have random numbers in these runs

    @functools.cached_property
    def without_ties(self) -> "Sides":
        """These sides with the rounding as it was recorded."""
        if self.recorded is None:
            return self
        return dataclasses.replace(self, rounding=self.recorded, recorded=None)

    def rounding_of_stage(self, stage: StageId) -> Mapping[Any, float]:
        """Return the rounding of the arrays of a stage, in the runs of these sides."""
        key = dataclasses.replace(stage, batch=self.batch, masked=self.masked, drawn=self.drawn)
        return self.rounding.get(key, {})

    def rounding_of_large(self, stage: StageId) -> Mapping[Any, float]:
        """Return the rounding of the large numbers of the stage's arrays that have such."""
        return self.rounding_of_stage(dataclasses.replace(stage, large=True))

    def kernels(self, stage: StageId) -> Mapping[Any, float]:
        """Return how far the port's inaccurate kernels move its arrays of a stage, in the runs of
        these sides, or without masks and with the constants as they are, if that is more.
        """
        batch_id = dataclasses.replace(stage.of_first_batch, batch=self.batch)
        run_id = dataclasses.replace(batch_id, masked=self.masked, drawn=self.drawn)
        of_batch, of_run = (self.port.kernels.get(key, {}) for key in (batch_id, run_id))
        names = {**of_batch, **of_run}
        return {name: max(of_batch.get(name, 0.0), of_run.get(name, 0.0)) for name in names}

    def flipped(self, stage: StageId) -> Mapping[Any, np.ndarray]:
        """Return the reference's arrays of a stage, with ties decided otherwise."""
        return MEASURED_ARRAYS[stage](self.otherwise) if self.otherwise else {}

    def changing(self, stage: StageId) -> Mapping[Any, np.ndarray]:
        """Return the masks of integers that the reference's rounding changes (`Trace.changing`)."""
        key = dataclasses.replace(stage, batch=self.batch, masked=self.masked, drawn=self.drawn)
        return self.reference.changing.get(key, {})

    @functools.cached_property
    def builds(self) -> list[tuple[Arrays, Arrays]]:
        """The initial values of one build of each side, by the port's names."""
        reference = map(self.names.rename, self.reference.builds)
        return list(zip(self.port.builds, reference, strict=False))

    @functools.cached_property
    def random_arrays(self) -> set[str]:
        """The names of random arrays, which differ between two builds of one net."""
        sides = zip(*self.builds[:2], strict=True) if len(self.builds) > 1 else ()
        return {name for a, b in sides for name in a if not np.array_equal(a[name], b[name])}

    @functools.cached_property
    def gradients(self) -> Arrays:
        """The reference's gradients under the port's names."""
        return self.names.rename(self.reference.run.gradients, name_map.GRADIENT_KIND)

    @functools.cached_property
    def only_rounding(self) -> set[str]:
        """The port's parameters whose gradients are zero, near float32's smallest number, or
        mostly rounding errors, such as biases before norms.
        """
        gradients = self.reference.run.gradients.values()
        limit = SMALL_GRADIENT * math.hypot(*map(norm, gradients))
        small = {name: b for name, b in self.gradients.items() if norm(b) <= limit}
        return {
            name
            for name, b in small.items()
            if name not in self.no_gradient
            and (
                np.abs(b).max(initial=0) < allowed.UNDERFLOW
                or self._rounding_of_gradient(name) >= ONLY_ROUNDING
            )
        }

    @functools.cached_property
    def zero_gradient(self) -> set[str]:
        """The port's parameters whose gradients are zeros in the reference, not None, without a
        measured rounding: they are zeros in float64 and under noise, too, or nothing was measured.

        A part of a joint array has the rounding of the whole.
        """
        return {
            name
            for name, b in self.gradients.items()
            if name not in self.no_gradient and not b.any() and not self._rounding_of_gradient(name)
        }

    def _rounding_of_gradient(self, name: str) -> float:
        """Return the measured rounding of a gradient; the absolute one if the gradient is zeros."""
        errors, built = self.rounding_of_stage(GRADIENTS), self.gradients[name]
        gradients = self.reference.run.gradients
        return allowed.rounding_of_built(self.names, errors, name, gradients, built)

    @functools.cached_property
    def no_gradient(self) -> Arrays:
        """Masks of the elements for which the reference's gradient is None, of the port's arrays
        that have such elements.
        """
        run = self.reference.run
        if not run.no_gradient:
            return {}
        marks = {}
        for name, gradient in run.gradients.items():
            is_none = name in run.no_gradient
            marks[name] = np.full(gradient.shape, float(is_none))
        masks = {}
        for name, mark in self.names.rename(marks, name_map.GRADIENT_KIND).items():
            # a part of an array, or a term of a sum
            mask = np.abs(mark) == 1
            if mask.any():
                masks[name] = mask
        return masks

    @functools.cached_property
    def without_gradient(self) -> set[str]:
        """The port's parameters whose gradients are zero on both sides."""
        port, reference = self.port.run.gradients, self.names.rename(self.reference.run.gradients)
        return {
            name
            for name, b in reference.items()
            if not b.any() and name in port and not port[name].any()
        }

    def _chance_elements(self, port: Arrays, of_reference: Arrays) -> Arrays:
        reference = self.names.rename(of_reference, name_map.GRADIENT_KIND)
        return {
            name: chance_elements(port[name], b, name in self.only_rounding)
            & ~self.no_gradient.get(name, np.False_)
            for name, b in reference.items()
            if name in port
        }

    @functools.cached_property
    def chance_on_first_batch(self) -> Arrays:
        """Masks of the elements of gradients that are only rounding on this batch."""
        return self._chance_elements(self.port.run.clipped, self.reference.run.clipped)

    @functools.cached_property
    def chance_on_any_batch(self) -> Arrays:
        """Masks of the elements of gradients that are only rounding on at least one batch."""
        pairs = zip(self.port.run.later, self.reference.run.later, strict=True)
        later = [
            self._chance_elements(port.gradients, reference.gradients) for port, reference in pairs
        ]
        return {
            name: np.any([mask, *(masks[name] for masks in later)], axis=0)
            for name, mask in self.chance_on_first_batch.items()
        }

    @functools.cached_property
    def later(self) -> tuple["Sides", ...]:
        """These sides on each further batch."""
        runs = enumerate(self._runs("later"), FIRST + 1)
        return tuple(self._on(*pair, batch=batch) for batch, pair in runs)

    @functools.cached_property
    def with_masks(self) -> tuple["Sides", ...]:
        """These sides with dropout masks, if both made such an update."""
        return tuple(self._on(*pair, masked=True) for pair in self._runs("dropped"))

    @functools.cached_property
    def with_constants(self) -> tuple["Sides", ...]:
        """These sides with random numbers for constant arrays, if both made such a run."""
        return tuple(self._on(*pair, drawn=True) for pair in self._runs("drawn"))

    def _runs(self, field: str) -> Iterator[tuple[Run, Run, Run | None]]:
        """Return the runs in a field of `Run` that both sides made, each with that of ties decided
        otherwise.
        """
        port, reference = getattr(self.port.run, field), getattr(self.reference.run, field)
        otherwise = getattr(self.otherwise, field) if self.otherwise else ()
        every = itertools.chain(otherwise, itertools.repeat(None))
        return zip(port, reference, every, strict=False)

    @property
    def is_chaotic(self) -> bool:
        """Whether rounding decides about later updates, so that earlier ones are measured, too."""
        return any(stage.update for stage in self.rounding)

    @property
    def decided_otherwise(self) -> "Sides":
        """These sides with the reference's run in which every tie is decided otherwise."""
        assert self.otherwise is not None
        sides = self._on(self.port.run, self.otherwise, None)
        return dataclasses.replace(sides, rounding=self.reference.rounding)

    def _on(self, port: Run, reference: Run, otherwise: Run | None, **which: Any) -> "Sides":
        return dataclasses.replace(
            self,
            port=dataclasses.replace(self.port, run=port),
            reference=dataclasses.replace(self.reference, run=reference),
            otherwise=otherwise,
            **which,
        )

    def until(self, update: int) -> "Sides":
        """Return these sides with runs that end after an update."""
        port, reference = self.port.run, self.reference.run
        other = self.otherwise
        return self._on(
            dataclasses.replace(port, after=port.after[:update]),
            dataclasses.replace(reference, after=reference.after[:update]),
            other and dataclasses.replace(other, after=other.after[:update]),
            rounding=_until(update, self.rounding),
            recorded=None if self.recorded is None else _until(update, self.recorded),
        )

    def of_worker(self, worker: Trace) -> "Sides":
        """Return these sides with another worker's trace as the port's."""
        return dataclasses.replace(
            self,
            port=worker,
            compared=compared_names(worker, self.reference, self.names, self.compared.all),
        )


def _until(update: int, rounding: Rounding) -> Rounding:
    """Return the rounding of runs that end after an update."""
    of_update = {
        stage.of_any_update: errors
        for stage, errors in rounding.items()
        if stage.name == LAST.name and stage.update == update
    }
    return {**rounding, **of_update}


def order_of(port: Trace, names: NameMap) -> list[str]:
    """Return the port's arrays in the order of the forward pass, then those that it does not
    use.
    """
    owned = [name for layer in port.layers["eval"] for name in layer.owned()]
    used = [name for name in owned if name in names.parameters]
    return list(dict.fromkeys([*used, *names.parameters]))


def compared_names(
    port: Trace, reference: Trace, names: NameMap, order: Sequence[str]
) -> ComparedNames:
    """Return which of the port's arrays, given in the order of execution, stages compare."""
    gradients = reference.run.gradients
    trained = [name for name in order if name in port.run.gradients]
    on_both = [
        name for name in trained if all(source in gradients for source in names.sources(name))
    ]
    rest = [name for name in order if name not in port.run.gradients]
    return ComparedNames(order, trained, on_both[::-1], rest)


def sides_of(
    port: Trace,
    reference: Trace,
    names: NameMap,
    rounding: Rounding,
    order: Iterable[str],
    layers: Sequence[LayerDifference] = (),
    initialisation: bool = True,
) -> Sides:
    """Return both sides with the names of the arrays that are compared."""
    compared = compared_names(port, reference, names, list(order))
    return Sides(port, reference, names, rounding, compared, layers, initialisation)


def both_sides(port: Trace, reference: Trace, names: NameMap, initialisation: bool) -> Sides:
    """Return both sides of two traces, with the rounding that the reference's trace has."""
    layers = compare_layers(port.layers, reference.layers, names.layers)
    order = order_of(port, names)
    return sides_of(port, reference, names, reference.rounding, order, layers, initialisation)
