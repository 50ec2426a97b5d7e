"""Define the stages of the ladder (the comparison with PyTorch) in the order of a training step."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.parity import name_map
from resnet_fn.parity.alone import made_up
from resnet_fn.parity.layers.difference import (
    CEILING,
    DIFFERS,
    ROUNDING_FACTOR,
    UNDECIDED,
    VERDICTS,
    Difference,
    difference,
    norm,
    relative_error,
)
from resnet_fn.parity.name_map import NameMap
from resnet_fn.parity.notes import training_notes
from resnet_fn.parity.optimizer_settings import compare_settings
from resnet_fn.parity.trace import LATER, Arrays, Batch, Recording, Rounding, Trace, named_leaves

INPUTS, INITIALISATION, UNTRAINED, WEIGHTS = (
    "inputs",
    "initialisation",
    "untrained arrays",
    "weights",
)
EVAL_FORWARD, TRAIN_FORWARD, LOSS = "eval forward", "train forward", "loss"
# Suffixes of the names of stages, for all batches after the first and for one update with dropout
# masks.
LATER_BATCHES, WITH_DROPOUT = ", later batches", ", with dropout"
LAYERS_OF = {
    EVAL_FORWARD: ("eval", "eval layers"),
    TRAIN_FORWARD: ("train", "train layers"),
    TRAIN_FORWARD + WITH_DROPOUT: ("dropout", f"train layers{WITH_DROPOUT}"),
}
GRADIENTS, NORM, CLIPPED, RATE = "gradients", "gradient norm", "clipped gradients", "learning rate"
SETTINGS, ALONE, LOSS_ALONE = "optimizer settings", "optimizer alone", "loss alone"
CHANGE, STATISTICS = "change by update 1", "BatchNorm statistics after update 1"
TRAJECTORY, LAST, AVERAGE = (
    "loss trajectory",
    f"weights after update {LATER}",
    "averaged weights after the last update",
)
MOVED = "eval forward after the updates"

_OF_CHANGE = 1e-3  # the tolerance of a weight's change, also if the weight begins at zero
SKIPPED = "skipped"


@dataclasses.dataclass
class Stage:
    """The result of one stage of the comparison, for example of the loss or of the gradients."""

    name: str  # "loss", "gradients", …
    # one for each array, in the order of execution, of the backward pass or of updates
    differences: list[Difference] = field(default_factory=list)
    note: str = ""  # a remark, such as why the stage was skipped or is incomplete
    hints: list[str] = field(default_factory=list)  # possible causes
    failed: str = ""  # why the stage differs without an array to compare; empty otherwise
    undecided: str = ""  # why the stage's numbers decide nothing; empty otherwise

    @property
    def verdict(self) -> str:
        """The worst verdict of the differences, unless `failed` or `undecided` is set."""
        if self.failed or self.undecided:
            return DIFFERS if self.failed else UNDECIDED
        return max((item.verdict for item in self.differences), key=VERDICTS.index, default=SKIPPED)

    @property
    def doubt(self) -> str:
        """The reason for the verdict "undecided", or an empty string."""
        doubts = (
            f"{item.name}: {item.doubt}" for item in self.differences if item.verdict == UNDECIDED
        )
        return self.undecided or next(doubts, "")

    @property
    def worst(self) -> Difference | None:
        """The difference with the worst verdict and the largest `excess`, or None if there is
        none.
        """
        return max(
            self.differences,
            key=lambda item: (VERDICTS.index(item.verdict), item.excess),
            default=None,
        )

    @property
    def first(self) -> Difference | None:
        """The first difference with the verdict "DIFFERS", or None if the stage has none or is
        undecided.
        """
        differing = (item for item in self.differences if item.verdict == DIFFERS)
        return next(differing, None) if self.verdict == DIFFERS else None


def _updates(values: Iterable[object]) -> Arrays:
    return {f"update {index + 1}": np.asarray(value) for index, value in enumerate(values)}


def flat(arrays: Mapping[str, np.ndarray], names: Iterable[str] | None = None) -> np.ndarray:
    """Return the numbers of all arrays, or of the arrays in `names`, as one float64 array [n]."""
    return np.concatenate(
        [np.zeros(0), *(np.ravel(arrays[name]) for name in (arrays if names is None else names))]
    )


def _statistics(trace: Trace) -> Arrays:
    first = trace.after[0] if trace.after else {}
    return {name: value for name, value in first.items() if name not in trace.gradients}


def _change(trace: Trace) -> Arrays:
    return {
        name: np.subtract(trace.after[0][name], trace.start[name], dtype=np.float64)
        for name in (trace.gradients if trace.after else ())
    }


class Row(NamedTuple):
    """A row of the table `STAGES`.

    `values` returns the arrays of one side that the stage compares.
    """

    name: str
    # the relative error ‖a − b‖ / ‖b‖ that passes whatever the rounding (docs/migrating.md)
    tolerance: float
    # the compared arrays: "all", "trained", "rest", or trained arrays in "backward" order; "":
    # outputs or updates
    of: str
    values: Callable[[Trace], Arrays]
    what: str = name_map.VALUES  # the kind of `values` (`MadeOf.build`)


STAGES = (
    Row(WEIGHTS, 0.0, "all", lambda trace: trace.start),
    Row(EVAL_FORWARD, 1e-5, "", lambda trace: trace.eval_outputs),
    Row(
        TRAIN_FORWARD, 1e-5, "", lambda trace: trace.train_outputs[0] if trace.train_outputs else {}
    ),
    Row(LOSS, 1e-5, "", lambda trace: {"loss": np.asarray(trace.losses[:1])}),
    Row(LOSS_ALONE, 0.0, "alone", lambda trace: {}),
    Row(GRADIENTS, 1e-4, "backward", lambda trace: trace.gradients, name_map.GRADIENTS),
    Row(NORM, 1e-5, "", lambda trace: {"norm": np.asarray(trace.norms[:1])}),
    Row(CLIPPED, 1e-4, "backward", lambda trace: trace.clipped, name_map.GRADIENTS),
    Row(RATE, 1e-6, "", lambda trace: _updates(trace.rates)),
    Row(SETTINGS, 0.0, "settings", lambda trace: {}),
    Row(ALONE, 0.0, "alone", lambda trace: {}),
    Row(CHANGE, _OF_CHANGE, "trained", _change),
    Row(STATISTICS, 1e-5, "rest", _statistics),
    Row(TRAJECTORY, 1e-3, "", lambda trace: _updates(trace.losses)),
    Row(LAST, 1e-4, "all", lambda trace: trace.after[-1] if len(trace.after) > 1 else {}),
    Row(MOVED, 1e-4, "", lambda trace: trace.last_outputs),
    Row(AVERAGE, 1e-4, "all", lambda trace: trace.average),
)
# The stages that are compared on each batch, with the weights from before any update.
EACH_BATCH = [row for row in STAGES if row.name in (EVAL_FORWARD, TRAIN_FORWARD, LOSS, GRADIENTS)]
_DROPPED = [
    row for row in STAGES if row.name in (TRAIN_FORWARD, LOSS, GRADIENTS, CHANGE, STATISTICS)
]
# Names for the rounding of the arrays from which norms and losses are computed.
_ALL_GRADIENTS, _OUTPUTS = "all gradients", "outputs of each update"
_AFTER = (LAST, AVERAGE)
_WEIGHTS = (CHANGE, *_AFTER)
# A gradient's element is only rounding if both sides differ by more than _OTHER of the element, or
# if the element is below _NOTHING of the largest.
_OTHER, _NOTHING = 0.01, 1e-6

# A gradient is only rounding if its error against float64 is above NOISE and its norm below _SMALL
# of all gradients.
NOISE, _SMALL = 0.5, 1e-4
_MOST = 0.05  # the largest error that is allowed because of noise alone
# with ROUNDING_FACTOR, 16: all 165 arrays of right ports were within this bound (docs/migrating.md)
SPREADS = 4
_LENT = 1e-4  # arrays with more rounding do not count in the median


Names = Mapping[str, Sequence[str]]  # `Row.of` ("all", "trained", …) → our parameters' names


def rounding(trace: Trace, exact: Trace) -> Rounding:
    """Return the relative errors of a trace's arrays against the same net in float64, by stage and
    name.
    """
    rows = [row for row in STAGES if row.tolerance]
    rows.append(Row(_ALL_GRADIENTS, 1.0, "", lambda trace: {"": flat(trace.gradients)}))
    rows.append(Row(_OUTPUTS, 1.0, "", lambda trace: _updates(map(flat, trace.train_outputs))))
    roundings: Rounding = {}
    for row in rows:
        errors, exactly = roundings.setdefault(row.name, {}), row.values(exact)
        for name, value in row.values(trace).items():
            error = relative_error(value, exactly[name])
            errors[name] = 0.0 if math.isnan(error) else error
    for index, pair in enumerate(zip(trace.later, exact.later, strict=True)):
        roundings |= {
            f"{name} of batch {index + 2}": errors for name, errors in rounding(*pair).items()
        }
    for pair in zip(trace.dropped, exact.dropped, strict=True):
        roundings |= {f"{name}{WITH_DROPOUT}": errors for name, errors in rounding(*pair).items()}
    return roundings


def sure(stage: Stage) -> Stage:
    """Remove the undecided arrays from a stage, add their number to `stage.note`, and return the
    stage.
    """
    decided = [item for item in stage.differences if item.verdict != UNDECIDED]
    if lost := len(stage.differences) - len(decided):
        stage.differences = decided
        stage.note += (
            f"{'; ' * bool(stage.note)}without {lost} arrays that have too much rounding "
            "in the reference"
        )
    return stage


# The stages whose rounding is also measured by noise.
MEASURED = {
    name
    for row in EACH_BATCH
    for name in (row.name, row.name + LATER_BATCHES, row.name + WITH_DROPOUT)
}


def with_noise(measured: Rounding, noisy: Sequence[Rounding]) -> Rounding:
    """Return each array's rounding: the error in `measured` or, if larger, an estimate from the
    changes in `noisy`.

    `noisy` has the relative changes of the first batch's arrays under noise of one unit in the last
    place.
    """
    grown = {}
    for stage, errors in measured.items():
        first = stage.partition(" of batch ")[0].removesuffix(WITH_DROPOUT)
        changes = [one.get(first, {}) for one in noisy]
        spreads = {
            name: SPREADS * max((one.get(name, 0.0) for one in changes), default=0.0)
            for name in errors
        }
        least = {name: min(spread, _MOST / ROUNDING_FACTOR) for name, spread in spreads.items()}
        if first == GRADIENTS:  # such a gradient is only rounding
            least |= {name: spread for name, spread in spreads.items() if spread >= NOISE}
        grown[stage] = {name: max(error, least[name]) for name, error in errors.items()}
    return grown


def drift(noisy: Trace, trace: Trace, measured: Rounding, parameters: Collection[str]) -> Rounding:
    """Return relative changes by noise in statistics, last outputs, and weights whose gradients are
    only rounding.
    """
    # all names of trained ones
    errors, statistics = rounding(noisy, trace), noisy.after[-1].keys() - parameters
    # Adam divides by the gradient, so a weight drifts even if the gradient is only rounding.
    drifting = statistics | {name for name, error in measured[GRADIENTS].items() if error >= NOISE}
    moved = {
        stage: {name: one for name, one in errors[stage].items() if name in drifting}
        for stage in _AFTER
    }
    return {**moved, MOVED: errors[MOVED]}


def worst_rounding(*roundings: Rounding) -> Rounding:
    """Return, for each array of the first argument, the largest of its roundings.

    A missing one counts as infinity.
    """
    return {
        stage: {
            name: max(one.get(stage, {}).get(name, math.inf) for one in roundings)
            for name in errors
        }
        for stage, errors in roundings[0].items()
    }


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The recordings of both sides, the pairs of names, and the rounding of the reference's arrays
    by stage.
    """

    ours: Recording
    theirs: Recording
    names: NameMap
    rounding: Rounding

    def rounding_of(self, stage: str, name: str, theirs: Arrays, made: np.ndarray) -> float:
        """Return the relative rounding error of the array `made`, built from `theirs` for our array
        `name`.
        """
        errors = self.rounding.get(stage, {})
        sources = [one for one in self.names.sources(name) if one in errors and one in theirs]
        # Our array may be a part of a larger one. It then gets the rounding of the whole.
        off = math.hypot(*(errors[one] * (norm(theirs[one]) or 1.0) for one in sources))
        return off / (norm(made) or 1.0)

    def _lent(self, row: Row, name: str, theirs: Arrays, made: np.ndarray) -> float:
        """Return `rounding_of` our array.

        The result has a maximum unless the array's gradient is only rounding.
        """
        error, errors = (
            self.rounding_of(row.name, name, theirs, made),
            self.rounding.get(row.name, {}),
        )
        whole = max((errors.get(one, 0.0) for one in self.names.sources(name)), default=0.0)
        return error if name in self._rounding_only else min(error, max(whole, row.tolerance))

    @functools.cached_property
    def _rounding_only(self) -> set[str]:
        """The net's parameters whose gradients are zero or mostly rounding errors, such as biases
        before norms.
        """
        theirs = self.theirs.trace.gradients
        limit = _SMALL * math.hypot(*map(norm, theirs.values()))
        small = {
            name: b
            for name, b in self.names.rename(theirs, name_map.GRADIENTS).items()
            if norm(b) <= limit
        }
        return {
            name
            for name, b in small.items()
            if not b.any() or self.rounding_of(GRADIENTS, name, theirs, b) >= NOISE
        }

    @functools.cached_property
    def without_gradient(self) -> set[str]:
        """The net's parameters whose gradients are zero on both sides."""
        ours, theirs = self.ours.trace.gradients, self.names.rename(self.theirs.trace.gradients)
        return {
            name
            for name, b in theirs.items()
            if not b.any() and name in ours and not ours[name].any()
        }

    def _idle(self, name: str, theirs: Arrays, stage: str) -> bool:
        """Return whether a weight has no gradient and is not changed by the reference."""
        start = self.ours.trace.start[name] if stage in _AFTER else 0.0
        return (
            stage in _WEIGHTS and name in self.without_gradient and not (theirs[name] - start).any()
        )

    @functools.cached_property
    def _unsure(self) -> tuple[Arrays, Arrays]:
        """Two masks for each gradient, of elements that are only rounding: on batch 1, and on at
        least one batch.
        """

        def apart(ours: Arrays, theirs: Arrays) -> Arrays:
            masks = {}
            for name, b in self.names.rename(theirs, name_map.GRADIENTS).items():
                if name in ours:
                    size = np.abs(b)
                    small = (size > 0) & (size <= _NOTHING * size.max(initial=0))
                    masks[name] = (
                        small
                        | (np.abs(ours[name] - b) > _OTHER * size)
                        | (name in self._rounding_only)
                    )
            return masks

        a, b = self.ours.trace, self.theirs.trace
        first = apart(a.clipped, b.clipped)
        later = [
            apart(one.gradients, other.gradients)
            for one, other in zip(a.later, b.later, strict=True)
        ]
        return first, {
            name: np.any([mask, *(one[name] for one in later)], axis=0)
            for name, mask in first.items()
        }

    def all_stages(self, order: Sequence[str]) -> list[Stage]:
        """Return the stages from "weights" on.

        `order` lists the net's parameters and statistics in execution order.
        """
        ours, theirs = self.ours.trace, self.theirs.trace
        trained = [name for name in order if name in ours.gradients]
        on_both = [
            name
            for name in trained
            if all(one in theirs.gradients for one in self.names.sources(name))
        ]
        names = {"all": order, "trained": trained, "backward": on_both[::-1]}
        names["rest"] = [name for name in order if name not in ours.gradients]
        settings, set_apart = compare_settings(ours.settings, theirs.settings, self.names)
        absent = {
            # both sides use the recipe's rates
            RATE: ours.rates == theirs.rates == self.theirs.task.rates,
            SETTINGS: not settings,
            ALONE: not (ours.alone and theirs.alone),
            LOSS_ALONE: not (ours.losses_alone and theirs.losses_alone),
            TRAJECTORY: not ours.after,  # an optimizer without a kernel leaves one loss
            MOVED: not ours.after,
            AVERAGE: not (theirs.average or ours.average),
        }
        stages = []
        for row in STAGES:
            if absent.get(row.name):
                continue
            if row.name == SETTINGS:
                stage = Stage(SETTINGS, settings, hints=set_apart)
            elif row.name in (ALONE, LOSS_ALONE):
                stage = self._optimizer_alone() if row.name == ALONE else self._loss_alone()
            elif row.name == MOVED:
                stage = self._state_of_training(row)
            elif row.name == LAST and len(ours.after) == 1:
                stage = Stage(
                    LAST,
                    note="one update does not show how much momentum is kept; give two or more "
                    "updates",
                )
            else:
                stage = self._values(row, names)
            if row.name == LAST:
                stage.name = f"weights after update {max(2, len(ours.after))}"
            elif row.name == GRADIENTS:
                stage.hints += training_notes(self.names, ours.gradients, theirs.gradients)
                stage.failed = "; ".join(stage.hints)
            stages.append(stage)
            if row.name == GRADIENTS:
                batches = [f" of batch {index + 2}" for index in range(len(ours.later))]
                stages += self._on_others(
                    EACH_BATCH,
                    LATER_BATCHES,
                    zip(batches, ours.later, theirs.later, strict=True),
                    names,
                )
        # if both sides made such an update
        dropped = zip([WITH_DROPOUT], ours.dropped, theirs.dropped, strict=False)
        return stages + self._on_others(_DROPPED, WITH_DROPOUT, dropped, names)

    def _on_others(
        self,
        rows: Sequence[Row],
        title: str,
        pairs: Iterable[tuple[str, Trace, Trace]],
        names: Names,
    ) -> list[Stage]:
        """Compare both sides on later batches, or with dropout masks.

        `pairs` has (suffix, our trace, theirs).
        """
        combined = [Stage(row.name + title) for row in rows]
        for suffix, ours, theirs in pairs:
            errors = {
                name.removesuffix(suffix): one
                for name, one in self.rounding.items()
                if name.endswith(suffix)
            }
            sides = replace(self.ours, trace=ours), replace(self.theirs, trace=theirs)
            compared, which = Comparison(*sides, self.names, errors), suffix * (suffix != title)
            for row, stage in zip(rows, combined, strict=True):
                one = compared._values(row, names)
                stage.differences += [
                    replace(item, name=item.name + which) for item in one.differences
                ]
                stage.failed, stage.note = stage.failed or one.failed, stage.note or one.note
        return [sure(stage) for stage in combined if stage.differences or stage.failed]

    def _values(self, row: Row, names: Names) -> Stage:
        return (
            self._arrays(row, names[row.of])
            if row.of
            else self._numbers(row, self._least(row.name))
        )

    def _least(self, name: str) -> dict[str, float]:
        """Return lower limits for the rounding of a stage's numbers, whose measured rounding may be
        small by chance.
        """
        outputs = self.rounding.get(_OUTPUTS, {})
        if name == LOSS:
            return {"loss": outputs.get("update 1", 0.0)}
        if name == NORM:
            return {"norm": self.rounding.get(_ALL_GRADIENTS, {}).get("", 0.0)}
        if name == MOVED:
            return dict.fromkeys(self.theirs.trace.last_outputs, max(outputs.values(), default=0.0))
        if name != TRAJECTORY:
            return {}
        of_losses = self.rounding.get(TRAJECTORY, {})  # rounding grows from update to update
        errors = (max(0.0, error, outputs.get(update, 0.0)) for update, error in of_losses.items())
        return dict(zip(of_losses, itertools.accumulate(errors, max), strict=True))

    def _state_of_training(self, row: Row) -> Stage:
        """Compare the outputs after the updates.

        These outputs show differences in statistics and buffers.
        """
        if not (row.values(self.ours.trace) and row.values(self.theirs.trace)):
            return Stage(MOVED, note="one side has no outputs after the updates; record it again")
        stage = sure(self._values(row, {}))
        if stage.verdict == DIFFERS:
            stage.hints = [
                line for mode, line in self.without_counterpart() if mode == "evaluation"
            ]
        return stage

    def without_counterpart(self) -> list[tuple[str, str]]:
        """Return (mode, text) for each buffer that training changes in the reference, but that the
        net lacks.
        """
        ours = {
            *self.ours.trace.start,
            *itertools.chain(*map(self.names.sources, self.names.parameters)),
        }
        words = "training moves it in the reference; it has no counterpart here, and it changes "
        where = {
            "": "no output",
            "training": "outputs in training mode, so later losses can differ",
        }
        moved = [(name, mode) for name, mode in self.theirs.trace.moved.items() if name not in ours]
        return [
            (mode, f"{name}: {words}{where.get(mode, 'outputs in evaluation mode')}")
            for name, mode in moved
        ]

    def _optimizer_alone(self) -> Stage:
        """Compare how both optimizers change random weights by random gradients, after the first
        and last update.
        """
        theirs = self.theirs.trace
        weights = self.names.rename(
            made_up({name: array.shape for name, array in theirs.gradients.items()})[0]
        )
        stage = Stage(ALONE)
        for update, changes in theirs.alone.items():
            for name, b in self.names.rename(changes).items():
                if name in self.ours.trace.alone[update] and not self.names.parameters[name].added:
                    # Each update rounds a weight to float32; the errors add up as in a random walk.
                    steps = float(update.split()[1]) ** 0.5 * 2.0**-24 * norm(weights[name])
                    error = steps / (norm(b) or 1.0)
                    a = self.ours.trace.alone[update][name]
                    stage.differences.append(
                        difference(f"{name}, {update}", a, b, 1e-3, min(error, CEILING))
                    )
        return stage

    def _loss_alone(self) -> Stage:
        """Compare the losses that both sides compute from the same outputs."""
        ours, given = self.ours.trace.losses_alone, self.theirs.trace.losses_alone
        theirs = {title: loss for title, loss in given.items() if math.isfinite(loss)}
        failed = [title for title in theirs if title not in ours]
        stage = Stage(LOSS_ALONE, failed=f"it fails on {few(failed)} here" if failed else "")
        largest = max(
            float(np.abs(leaf).max(initial=0))
            for leaf in self.theirs.trace.train_outputs[0].values()
        )
        for title, b in theirs.items():
            if title in ours:
                # Where large numbers cancel, the small result keeps the rounding of the large ones.
                error = 2.0**-22 * largest * float(title.rpartition(" ")[2]) / (abs(b) or 1.0)
                stage.differences.append(
                    difference(title, ours[title], b, 1e-5, min(error, CEILING))
                )
        return stage

    def _arrays(self, row: Row, names: Sequence[str]) -> Stage:
        stage = row.name
        if not names:
            return Stage(stage, note="there are none")
        ours, given = row.values(self.ours.trace), row.values(self.theirs.trace)
        theirs = self.names.rename(given, row.what)
        common = [
            name
            for name in names
            if name in ours and name in theirs and not self._idle(name, theirs, stage)
        ]
        if not common:
            return Stage(
                stage, note="one side keeps none" if self.ours.trace.after else "not run here"
            )
        start = self.ours.trace.start
        roundings = [self._lent(row, name, given, theirs[name]) for name in common]
        # A small array may be close to float64 by luck, so each array gets at least the median.
        usual = float(np.median([error for error in roundings if error <= _LENT] or [0.0]))
        whole, largest = (
            math.hypot(*map(norm, theirs.values())),
            self._largest_change(stage, theirs),
        )
        differences = []
        for name, error in zip(common, roundings, strict=True):
            a, b = ours[name], theirs[name]
            # The difference of two float32 weights has an error of half a unit in the last place.
            unit = 2**-24 * norm(start[name]) if stage == CHANGE else 0.0
            size, tolerance = norm(b) or 1.0, row.tolerance
            error = max(error, usual, unit / size)
            if stage in _AFTER and name in self.ours.trace.gradients:
                tolerance = max(tolerance, _OF_CHANGE * norm(b - start[name]) / size)
            if largest and name in (unsure := self._unsure[stage != CHANGE]):
                # Adam changes a weight by up to the learning rate even if the gradient is only
                # rounding.
                a = np.where(unsure[name] & (np.abs(a - b) <= 2 * largest), b, a)
            item = difference(name, a, b, tolerance=tolerance, rounding=error)
            if item.verdict in (UNDECIDED, DIFFERS) and name in self._rounding_only:
                item = replace(item, relative=item.relative * size / (whole or 1.0), rounding=usual)
            elif item.verdict == UNDECIDED and 4 * unit > CEILING * size and whole:
                part = size / whole
                item = replace(
                    item, relative=item.relative * part, rounding=error * part, tolerance=0.0
                )
            differences.append(item)
        return Stage(stage, differences)

    def _largest_change(self, stage: str, values: Arrays) -> float:
        """Return the largest change of a weight up to a stage.

        The recipe's SGD and stages without weights give 0.
        """
        task, start = self.theirs.task, self.ours.trace.start
        if stage not in _WEIGHTS or (task.recipe.optimizer == "sgd" and not task.own_optimizer):
            return 0.0
        names = [name for name in self.ours.trace.gradients if name in values]
        return max(
            float(np.abs(values[name] - (stage != CHANGE) * start[name]).max(initial=0))
            for name in names
        )

    def _numbers(self, row: Row, least: Mapping[str, float]) -> Stage:
        """Compare each output or update of a row.

        `least` has lower limits for the rounding, by output or update.
        """
        stage, given, theirs = row.name, row.values(self.ours.trace), row.values(self.theirs.trace)
        names = paired_outputs(given, theirs)
        if names is None:
            words = [
                ", ".join(f"{name} {list(one.shape)}" for name, one in side.items())
                for side in (given, theirs)
            ]
            return Stage(
                stage,
                failed=f"{words[0] or 'nothing'} here, {words[1] or 'nothing'} in the reference",
            )
        more = [name for name in given if name not in names.values()]
        note = f"here alone: {', '.join(more)}" if more else ""
        errors = self.rounding.get(stage, {})
        roundings = {name: max(errors.get(name, 0.0), least.get(name, 0.0)) for name in theirs}
        items = [
            difference(name, given[names[name]], b, row.tolerance, roundings[name])
            for name, b in theirs.items()
        ]
        # Rounding grows from update to update. Losses are left out if the reference's rounding is
        # too large.
        chaotic = [
            one
            for one in items[2:]
            if stage == TRAJECTORY and one.verdict == UNDECIDED and one.relative >= 0
        ]
        note = (
            f"without {len(chaotic)} losses, the first of {chaotic[0].name}: {chaotic[0].doubt}"
            if chaotic
            else note
        )
        return Stage(stage, [one for one in items if one not in chaotic], note)


def paired_outputs(ours: Arrays, theirs: Arrays) -> dict[str, str] | None:
    """Map the reference's outputs to the net's, by name or else by shape.

    None means that a counterpart is missing.
    """
    if list(theirs) == ["logits"] and len(ours) > 1:  # a tuple against one tensor
        return None
    left, paired = iter([name for name in ours if name not in theirs]), {}
    for name, b in theirs.items():
        own = (
            name
            if name in ours
            else next((one for one in left if ours[one].shape == b.shape), None)
        )
        if own is None or ours[own].shape != b.shape:
            return None
        paired[name] = own
    return paired


def inputs_stage(ours: Sequence[Batch], theirs: Sequence[Batch]) -> Stage:
    """Compare the inputs and labels of both sides bit for bit."""
    differences = []
    for update, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        for which, single in enumerate(("inputs", "labels")):
            a, b = named_leaves(mine[which], single), named_leaves(other[which], single)
            if {name: value.shape for name, value in a.items()} != {
                name: value.shape for name, value in b.items()
            }:
                return Stage(
                    INPUTS, failed=f"update {update + 1}: the {single} have other names or shapes"
                )
            differences += [
                difference(f"{name} of update {update + 1}", a[name], b[name]) for name in b
            ]
    return Stage(INPUTS, differences)
