"""Compare forward passes with random numbers for arrays whose numbers are all equal, and name the
arrays that hide how they are used.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.notes import attribute_names
from resnet_fn.parity.compare.other_runs import OtherRuns
from resnet_fn.parity.compare.rule import RunRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.constants import changed_arrays, left_out, words_of_constants
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.difference import DIFFERS


@dataclasses.dataclass(frozen=True)
class Constants(OtherRuns):
    """Compares on runs in which both sides have the same random numbers for constant arrays."""

    def others(self, sides: Sides) -> Sequence[Sides]:
        """Return the sides of the runs with these numbers."""
        return sides.with_constants

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if it decides nothing (`lines` has the reason)."""
        drawn = drawn_names(sides.reference.run)
        if without_counterpart(drawn, sides.names) or _is_random(sides.port, sides.reference):
            return None
        stage = super().stage(sides)
        if stage is None or not (stage.failed or stage.differences):
            return None
        if stage.verdict != DIFFERS:
            return stage
        hint = f"with random numbers for arrays that are constant at first: {first_few(drawn)}"
        return dataclasses.replace(stage, hints=[*stage.hints, hint])


def _is_random(port: Trace, reference: Trace) -> bool:
    """Return whether a net draws random numbers, so that two of its runs differ."""
    return any(trace.random_eval or trace.random_train for trace in (port, reference))


def drawn_names(run: Run) -> list[str]:
    """Return the arrays that have random numbers in the runs with such numbers."""
    return list(
        dict.fromkeys(
            name for drawn in run.drawn for name in changed_arrays(run.start, drawn.start)
        )
    )


def without_counterpart(drawn: Sequence[str], names: NameMap) -> list[str]:
    """Return the drawn arrays of the reference from which no array of the port is built."""
    return [name for name in drawn if names.first(name) not in names.paired]


def lines(port: Trace, reference: Trace, names: NameMap, stages: Sequence[Stage]) -> Iterator[str]:
    """Yield lines about constant arrays, which hide how they are used, that no run changes."""
    drawn = drawn_names(reference.run)
    compared = {stage.id.mode for stage in stages if stage.id.drawn}
    left = [text for mode, text in _MODES.items() if mode not in compared]
    if drawn and left:
        if missing := without_counterpart(drawn, names):
            why = f"{first_few(missing)} has no counterpart in the port"
        elif not port.run.drawn:
            why = "the port has no record of it"
        elif _is_random(port, reference):
            why = "a net draws random numbers"
        else:
            why = "too much rounding in the reference"
        mode = f", {left[0]}" if len(left) == 1 else ""
        yield f"{words_of_constants(drawn)}{mode}: {why}"
    # if the reference rejects random numbers, it has a line of its own (`Trace.limits`)
    yield from unsaved(port, reference, names)
    rest = left_out(reference.run.start, reference.trainable)
    yield from (f"{name}: always {number:g}" for name, number in rest.items())


def unsaved(port: Trace, reference: Trace, names: NameMap) -> list[str]:
    """Return a line for buffers that the reference saves, but the port keeps elsewhere.

    It names first the port's attributes of the same name.
    """
    saved = []
    for name in reference.run.start:
        if reference.buffers.get(name, False):
            saved.append(name)
    missing = without_counterpart(saved, names)
    if not missing:
        return []
    attributes = attribute_names(port.attributes, names)
    known = {*attributes.values()}
    held = [name for name in missing if name in known]
    rest = [name for name in missing if name not in known]
    parts = []
    if held:
        parts.append(f"{first_few(held)}, which the port has as constant attributes")
    if rest:
        parts.append(first_few(rest))
    return [f"what the reference saves and the port does not: {'; '.join(parts)}"]


_MODES = {"eval": "evaluation mode", "train": "training mode"}


def with_constants(rule: RunRule) -> Constants:
    """Return the rule for runs with the same random numbers for constant arrays on both sides."""
    stage = dataclasses.replace(rule.id, drawn=True)
    return Constants(stage, rule.tolerance, trains=False, rule=rule)
