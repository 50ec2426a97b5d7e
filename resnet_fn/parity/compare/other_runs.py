"""Compare a stage's arrays once more: on further batches, and with dropout masks."""

import dataclasses
from collections.abc import Sequence

from resnet_fn.parity.compare.rule import Rule, RunRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import (
    SKIPPED,
    Absent,
    Stage,
    with_note,
    without_undecided,
)
from resnet_fn.parity.compare.ties import by_either_decision
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace.stages import EVERY_LATER, StageId

# Of several runs without numbers, the first reason here counts: one is undecided, so all are.
_ABSENT = (Absent.NOT_READ, Absent.CHAOTIC, Absent.TOO_SHORT, Absent.NOT_IN_TASK)


@dataclasses.dataclass(frozen=True)
class OtherRuns(Rule):
    """Compares with the rule of a stage, on other runs that begin with the same weights."""

    rule: RunRule = dataclasses.field(kw_only=True)

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison of all these runs, or None if nothing was compared."""
        combined = Stage(self.id, absent=Absent.NOT_IN_TASK)  # there may be no such runs
        rule = dataclasses.replace(self.rule, tolerance=self.tolerance)
        for other in self.others(sides):
            stage = by_either_decision(rule.compare, other)
            of_batch = [
                dataclasses.replace(item, id=dataclasses.replace(item.id, batch=other.batch))
                for item in stage.differences
            ]
            combined = dataclasses.replace(
                combined,
                differences=[*combined.differences, *of_batch],
                failed=combined.failed or stage.failed,
                undecided=combined.undecided or stage.undecided,
                note=combined.note or stage.note,
                absent=min(combined.absent, stage.absent, key=_ABSENT.index),
                too_small=[*combined.too_small, *stage.too_small],
            )
        if combined.verdict == SKIPPED:
            return None
        if combined.undecided and combined.differences:  # other batches decide
            combined = dataclasses.replace(with_note(combined, combined.undecided), undecided="")
        return without_undecided(combined)

    def others(self, sides: Sides) -> Sequence[Sides]:
        """Return the sides of each of these runs."""
        return sides.with_masks if self.id.masked else sides.later

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the result as the rule changes it."""
        return self.rule.with_workers(stage, workers)


def on_later_batches(rule: RunRule) -> OtherRuns:
    """Return the rule for all further batches together."""
    stage = dataclasses.replace(rule.id, batch=EVERY_LATER)
    return _on_other_runs(stage, rule)


def with_masks(rule: RunRule) -> OtherRuns:
    """Return the rule for an update with the same dropout masks on both sides."""
    stage = dataclasses.replace(rule.id, masked=True)
    return _on_other_runs(stage, rule)


def _on_other_runs(stage: StageId, rule: RunRule) -> OtherRuns:
    # `trains` stays True, also of outputs in evaluation mode: what a net draws there is looked at
    # by `NetOutputs.stage` alone, which other runs do not call
    return OtherRuns(stage, rule.tolerance, names_beyond=rule.names_beyond, rule=rule)
