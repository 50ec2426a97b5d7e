"""Compare the arrays of both sides, stage by stage."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.parity.compare.notes import training_notes
from resnet_fn.parity.compare.optimizer_settings import compare_settings
from resnet_fn.parity.compare.stage import Stage, sure
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import Rounding, Run, Trace
from resnet_fn.parity.trace.difference import CEILING, DIFFERS, UNDECIDED, difference, norm
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.stages import (
    AFTER,
    ALL_GRADIENTS,
    ALONE,
    AVERAGE,
    CHANGE,
    EACH_BATCH,
    GRADIENTS,
    INPUTS,
    LAST,
    LATER_BATCHES,
    LOSS,
    LOSS_ALONE,
    MOVED,
    NOISE,
    NORM,
    OF_CHANGE,
    OUTPUTS,
    RATE,
    SETTINGS,
    SMALL_GRADIENT,
    STAGES,
    TRAJECTORY,
    WEIGHT_STAGES,
    WITH_DROPOUT,
    WITH_MASKS,
    Row,
)
from resnet_fn.parity.trace.tree import Arrays, Batch, named_leaves, paired_outputs

# A gradient's element is only rounding if both sides differ by more than _OTHER of the element, or
# if the element is below _NOTHING of the largest.
_OTHER, _NOTHING = 0.01, 1e-6

_LENT = 1e-4  # arrays with more rounding do not count in the median

Names = Mapping[str, Sequence[str]]  # `Row.of` ("all", "trained", …) → our parameters' names


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

    ours: Trace
    theirs: Trace
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
        theirs = self.theirs.run.gradients
        limit = SMALL_GRADIENT * math.hypot(*map(norm, theirs.values()))
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
        ours, theirs = self.ours.run.gradients, self.names.rename(self.theirs.run.gradients)
        return {
            name
            for name, b in theirs.items()
            if not b.any() and name in ours and not ours[name].any()
        }

    def _idle(self, name: str, theirs: Arrays, stage: str) -> bool:
        """Return whether a weight has no gradient and is not changed by the reference."""
        start = self.ours.run.start[name] if stage in AFTER else 0.0
        return (
            stage in WEIGHT_STAGES
            and name in self.without_gradient
            and not (theirs[name] - start).any()
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

        a, b = self.ours.run, self.theirs.run
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
        ours, theirs = self.ours.run, self.theirs.run
        trained = [name for name in order if name in ours.gradients]
        on_both = [
            name
            for name in trained
            if all(one in theirs.gradients for one in self.names.sources(name))
        ]
        names = {"all": order, "trained": trained, "backward": on_both[::-1]}
        names["rest"] = [name for name in order if name not in ours.gradients]
        settings, set_apart = compare_settings(
            self.ours.optimizer_settings, self.theirs.optimizer_settings, self.names
        )
        absent = {
            # both sides use the recipe's rates
            RATE: ours.rates == theirs.rates == self.theirs.task.rates,
            SETTINGS: not settings,
            ALONE: not (self.ours.optimizer_alone and self.theirs.optimizer_alone),
            LOSS_ALONE: not (self.ours.losses_alone and self.theirs.losses_alone),
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
        return stages + self._on_others(WITH_MASKS, WITH_DROPOUT, dropped, names)

    def _on_others(
        self,
        rows: Sequence[Row],
        title: str,
        pairs: Iterable[tuple[str, Run, Run]],
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
            sides = replace(self.ours, run=ours), replace(self.theirs, run=theirs)
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
        outputs = self.rounding.get(OUTPUTS, {})
        if name == LOSS:
            return {"loss": outputs.get("update 1", 0.0)}
        if name == NORM:
            return {"norm": self.rounding.get(ALL_GRADIENTS, {}).get("", 0.0)}
        if name == MOVED:
            return dict.fromkeys(self.theirs.run.last_outputs, max(outputs.values(), default=0.0))
        if name != TRAJECTORY:
            return {}
        of_losses = self.rounding.get(TRAJECTORY, {})  # rounding grows from update to update
        errors = (max(0.0, error, outputs.get(update, 0.0)) for update, error in of_losses.items())
        return dict(zip(of_losses, itertools.accumulate(errors, max), strict=True))

    def _state_of_training(self, row: Row) -> Stage:
        """Compare the outputs after the updates.

        These outputs show differences in statistics and buffers.
        """
        if not (row.values(self.ours.run) and row.values(self.theirs.run)):
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
            *self.ours.run.start,
            *itertools.chain(*map(self.names.sources, self.names.parameters)),
        }
        words = "training moves it in the reference; it has no counterpart here, and it changes "
        where = {
            "": "no output",
            "training": "outputs in training mode, so later losses can differ",
        }
        moved = [(name, mode) for name, mode in self.theirs.run.moved.items() if name not in ours]
        return [
            (mode, f"{name}: {words}{where.get(mode, 'outputs in evaluation mode')}")
            for name, mode in moved
        ]

    def _optimizer_alone(self) -> Stage:
        """Compare how both optimizers change random weights by random gradients, after the first
        and last update.
        """
        theirs = self.theirs.run
        weights = self.names.rename(
            made_up({name: array.shape for name, array in theirs.gradients.items()})[0]
        )
        stage = Stage(ALONE)
        for update, changes in self.theirs.optimizer_alone.items():
            for name, b in self.names.rename(changes).items():
                if (
                    name in self.ours.optimizer_alone[update]
                    and not self.names.parameters[name].added
                ):
                    # Each update rounds a weight to float32; the errors add up as in a random walk.
                    steps = float(update.split()[1]) ** 0.5 * 2.0**-24 * norm(weights[name])
                    error = steps / (norm(b) or 1.0)
                    a = self.ours.optimizer_alone[update][name]
                    stage.differences.append(
                        difference(f"{name}, {update}", a, b, 1e-3, min(error, CEILING))
                    )
        return stage

    def _loss_alone(self) -> Stage:
        """Compare the losses that both sides compute from the same outputs."""
        ours, given = self.ours.losses_alone, self.theirs.losses_alone
        theirs = {title: loss for title, loss in given.items() if math.isfinite(loss)}
        failed = [title for title in theirs if title not in ours]
        stage = Stage(LOSS_ALONE, failed=f"it fails on {few(failed)} here" if failed else "")
        largest = max(
            float(np.abs(leaf).max(initial=0)) for leaf in self.theirs.run.train_outputs[0].values()
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
        ours, given = row.values(self.ours.run), row.values(self.theirs.run)
        theirs = self.names.rename(given, row.what)
        common = [
            name
            for name in names
            if name in ours and name in theirs and not self._idle(name, theirs, stage)
        ]
        if not common:
            return Stage(
                stage, note="one side keeps none" if self.ours.run.after else "not run here"
            )
        start = self.ours.run.start
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
            if stage in AFTER and name in self.ours.run.gradients:
                tolerance = max(tolerance, OF_CHANGE * norm(b - start[name]) / size)
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
        task, start = self.theirs.task, self.ours.run.start
        if stage not in WEIGHT_STAGES or (not task.optimizer.is_adaptive):
            return 0.0
        names = [name for name in self.ours.run.gradients if name in values]
        return max(
            float(np.abs(values[name] - (stage != CHANGE) * start[name]).max(initial=0))
            for name in names
        )

    def _numbers(self, row: Row, least: Mapping[str, float]) -> Stage:
        """Compare each output or update of a row.

        `least` has lower limits for the rounding, by output or update.
        """
        stage, given, theirs = row.name, row.values(self.ours.run), row.values(self.theirs.run)
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
