"""Compare the probability, the mask's shape and the scale of each dropout."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.allowed import DROPOUT_FACTOR_TOLERANCE, SETTINGS_TOLERANCE, within
from resnet_fn.parity.compare.draws import are_apart, never_varies, would_be_apart
from resnet_fn.parity.compare.outcomes import (
    Comparable,
    comparable,
    outcomes_are_apart,
    outcomes_decide,
)
from resnet_fn.parity.compare.rule import TraceRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import SKIPPED, Absent, Stage
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.derived import floats
from resnet_fn.parity.trace.difference import DIFFERS, Difference
from resnet_fn.parity.trace.drop import Drop
from resnet_fn.parity.trace.masks import pair_drops, takes_mask
from resnet_fn.parity.trace.stages import DROPOUT, TRAIN_FORWARD, StageId


@dataclasses.dataclass(frozen=True)
class Dropout(TraceRule):
    """Compares the dropouts of both nets, if there are any."""

    id: StageId = DROPOUT
    tolerance: float = SETTINGS_TOLERANCE  # of probabilities
    factor_tolerance: float = DROPOUT_FACTOR_TOLERANCE  # of what masks multiply by

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if neither net drops anything."""
        stage = self.compare(sides.port, sides.reference, sides.names.layers)
        return None if stage.verdict == SKIPPED else stage

    def compare(self, port: Trace, reference: Trace, names: Mapping[str, str]) -> Stage:
        """Compare the probability, the mask's shape and the scale of each dropout in both nets."""
        if port.drops is None or reference.drops is None:
            missing = "one trace does not contain the net's dropout; record that trace again"
            undecided = missing if port.drops or reference.drops else ""
            return Stage(self.id, undecided=undecided, absent=Absent.NOT_IN_TASK)
        idle = [_idle_probabilities(side.drops or ()) for side in (port, reference)]
        differences: list[Difference] = []
        shares: list[str] = []
        by_share: list[str] = []
        unseen: list[str] = []
        masks: list[str] = []
        paths: list[str] = []
        none = Drop("", 0.0, True)
        for port_drop, reference_drop in pair_drops(port.dropping, reference.dropping, names):
            x = port_drop or none
            y = reference_drop or none
            a = x.share
            b = y.share
            title = x.title or y.title
            alike = _are_alike(x, y, port, reference, names)
            outcomes = _outcomes(x, y, port, reference) if alike else []
            if 0 in (a, b):  # the side with 0 may drop as much in a function
                larger = a or b
                share = round(larger, 6)
                left = idle[a > 0]
                if left[share]:
                    left[share] -= 1
                    a = b = larger
            item = within(self.tolerance).compare(title, a, b)
            differences.append(item)
            if item.verdict == DIFFERS:
                shares.append(f"{title}: {_difference_of_shares(a, b)}")
            elif fault := port_drop and reference_drop and _fault(port_drop, reference_drop, alike):
                masks.append(f"{title}: {fault}")
            elif outcomes_are_apart(outcomes):
                paths.append(f"{title}: {_difference_of_outcomes(x)}")
            elif not x.scale or not y.scale:
                by_share.append(title)
                if not (
                    port_drop
                    and reference_drop
                    and _is_seen(port_drop, reference_drop, alike, outcomes)
                ):
                    unseen.append(title)
            elif fault := _difference_of_masks(x, y, self.factor_tolerance):
                masks.append(f"{title}: {fault}")
        masks += _infinite(port.drops, reference.drops)
        note = ""
        if by_share:
            note = f"without a mask, only the probability is compared: {first_few(by_share)}"
        undecided = ""
        if not masks and _may_be_functions(port, reference, differences):
            undecided = f"{'; '.join(shares)}; where p=0, a function call may apply this dropout"
        else:
            masks += paths
        failed = "; ".join(masks)
        hints = [*shares, *masks]
        stage = Stage(self.id, differences, note, hints, failed, undecided)
        line = [f"dropout of {first_few(unseen)}: what it multiplies by"] if unseen else []
        return dataclasses.replace(stage, absent=Absent.NOT_IN_TASK, not_exercised=line)


def _infinite(port: Sequence[Drop], reference: Sequence[Drop]) -> list[str]:
    """Return a line for each dropout that makes one side alone infinite or NaN."""
    sides = {"the port": port, "the reference": reference}
    infinite = {
        side: [drop.title for drop in drops if not drop.finite] for side, drops in sides.items()
    }
    if all(infinite.values()):
        return []
    return [
        f"{title}: where it drops, {side} alone returns infinity or NaN"
        for side, titles in infinite.items()
        for title in titles
    ]


def _idle_probabilities(drops: Sequence[Drop]) -> Counter[float]:
    """Return how many dropouts with each probability did not run."""
    return Counter(round(drop.share, 6) for drop in drops if drop.once is None)


def _difference_of_shares(port: float, reference: float) -> str:
    difference = f"p={port:g} in the port, {reference:g} in the reference"
    if math.isclose(port, 1 - reference):
        keeps = f"nn.Dropout({reference:g}) keeps {reference:g} in MindSpore"
        difference += f": {keeps}; write nn.Dropout(p={reference:g})"
    return difference


def _fault(port: Drop, reference: Drop, alike: bool) -> str:
    """Return what is wrong with how the port drops, or an empty string.

    `alike` is whether what both change must be the same.
    """
    if port.error:
        return f"it does not compile in the port ({port.error})"
    if never_varies(port, reference):
        return (
            "drops the same in every call in the port: a condition leaves it out, or numbers of "
            "NumPy or `random` are drawn once, when a function is compiled; draw with an "
            "operation, such as ops.bernoulli"
        )
    if never_varies(reference, port):
        return "drops the same in every call in the reference, but not in the port"
    if {port.in_evaluation, reference.in_evaluation} == {True, False}:
        side = "the port" if port.in_evaluation else "the reference"
        return f"drops in evaluation mode, too, in {side} alone"
    if not alike:
        return ""
    for what, a, b in zip(_RESPONSES, port.response, reference.response, strict=False):
        if are_apart(a, b):
            side = f"{a[0]:.3g} in the port, {b[0]:.3g} in the reference"
            return f"{what} of {port.of or 'the net'} is {side}, with this dropout alone"
    return ""


def _are_alike(
    port_drop: Drop, reference_drop: Drop, port: Trace, reference: Trace, names: Mapping[str, str]
) -> bool:
    """Return whether both dropouts were measured in the same layer, or in the net, and change the
    same there.

    What one side drops by one rate, the other may drop by two, each of which was measured alone.
    """
    if port_drop.of or reference_drop.of:
        have_same_layer = names.get(port_drop.of) == reference_drop.of
    else:
        have_same_layer = _sizes_of_outputs(port) == _sizes_of_outputs(reference)
    return have_same_layer and _count_alike(port_drop, port) == _count_alike(
        reference_drop, reference
    )


def _sizes_of_outputs(side: Trace) -> list[int]:
    """Return how many floats each output has, in ascending order: one net may return more."""
    outputs = side.run.train_outputs[:1]
    return sorted(array.size for arrays in outputs for array in floats(arrays).values())


def _outcomes(
    port_drop: Drop, reference_drop: Drop, port: Trace, reference: Trace
) -> list[Comparable]:
    """Return the results of two dropouts that are alike, as far as right ones must be the same."""
    if takes_mask(port_drop) and takes_mask(reference_drop):  # stages with dropout show more
        return []
    if "fp16" in (port.plan.precision, reference.plan.precision):
        return []
    rounding = max(_rounding(port_drop.of, port), _rounding(reference_drop.of, reference))
    return comparable(port_drop.outcomes, reference_drop.outcomes, rounding)


def _count_alike(drop: Drop, side: Trace) -> int:
    """Return how many dropouts have this one's rate in the layer in which it was measured."""
    inside = (f"{drop.of} ", f"{drop.of}.") if drop.of else ""
    alike = [other for other in side.drops or () if other.share == drop.share]
    return sum(f"{other.title} ".startswith(inside) for other in alike)


def _rounding(name: str, side: Trace) -> float:
    """Return the rounding of a layer's output in training mode, or of the net's outputs."""
    if name:
        return max(
            (layer.output_rounding for layer in side.dropping[1] if layer.name == name), default=0
        )
    errors = [*side.rounding.get(TRAIN_FORWARD, {}).values()]
    errors += side.kernels.get(TRAIN_FORWARD, {}).values()
    return max(errors, default=0)


def _difference_of_outcomes(port: Drop) -> str:
    return (
        f"where it drops or keeps whole paths, {port.of or 'the net'} returns other numbers "
        "than in the reference, with this dropout alone: compare what both multiply by"
    )


def _is_seen(port: Drop, reference: Drop, alike: bool, outcomes: Sequence[Comparable]) -> bool:
    """Return whether runs would show another factor of what is kept, or were not made here, because
    another layer of the same class was measured.
    """
    if port.varies is None and reference.varies is None:
        return True
    if not alike:
        return False
    if outcomes_decide(outcomes):
        return True
    changes = [drop.response[1] for drop in (port, reference) if drop.response]
    return len(changes) == 2 and would_be_apart(*changes)


_RESPONSES = (
    "the mean output, as a part of the output without dropout,",
    "the mean square change of the output, as a part of the output's square,",
)


def _difference_of_masks(port: Drop, reference: Drop, factor_tolerance: float) -> str:
    if math.prod(port.shape) != math.prod(reference.shape):
        return f"drops {_words(port.shape)} in the port, {_words(reference.shape)} in the reference"
    if not math.isclose(port.scale, reference.scale, rel_tol=factor_tolerance):
        factors = f"{port.scale:g} in the port, {reference.scale:g} in the reference"
        return f"multiplies what it keeps by {factors}"
    return ""


def _may_be_functions(port: Trace, reference: Trace, differences: Sequence[Difference]) -> bool:
    """Return whether function calls may apply what one side's layers do not drop."""
    functions: list[object] = [port.random_train, reference.random_train]
    for side in (port, reference):
        functions += [drop.once is False for drop in side.drops or ()]
    wrong = [item for item in differences if item.verdict == DIFFERS]
    if not wrong or not any(functions):
        return False
    return all(0 in (item.port, item.reference) for item in wrong)


def _words(shape: tuple[int, ...]) -> str:
    """Describe what a mask of this shape drops, for example "channels (a mask [4, 8, 1, 1])"."""
    axes = set(shape[1:])
    kind = "channels"
    if 1 not in axes:
        kind = "elements"
    elif axes == {1}:
        kind = "samples" if shape[0] > 1 else "the whole batch"
    return f"{kind} (a mask {list(shape)})"
