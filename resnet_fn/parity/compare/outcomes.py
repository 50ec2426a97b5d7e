"""Compare which results both sides give when a dropout drops whole paths of a net."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from resnet_fn.parity.compare.draws import OUTCOMES, RARE_OUTCOMES
from resnet_fn.parity.trace.drop import Outcomes
from resnet_fn.parity.trace.limits import ROUNDING_FACTOR

_Counts = list[tuple[int, int]]  # how often each result comes in the port and in the reference


class Comparable(NamedTuple):
    """The results of the same part of the output on both sides."""

    port: Outcomes
    reference: Outcomes
    apart: float  # how far one result may be apart


class _Result(NamedTuple):
    """The first two numbers of `Outcomes.seen`, and how many runs of each side gave them."""

    part: float
    change: float
    of_port: int
    of_reference: int


def comparable(
    port: Sequence[Outcomes], reference: Sequence[Outcomes], rounding: float
) -> list[Comparable]:
    """Return the parts of the output that are the same on both sides, and not mostly rounding.

    `rounding` is that of the whole output. The first of a side's outcomes are those of the whole
    output, the second those of its first sample.
    """
    pairs = []
    for sample, (port_outcomes, reference_outcomes) in enumerate(
        zip(port, reference, strict=False)
    ):
        of_part = rounding / math.sqrt(port_outcomes.size)
        if of_part > OUTCOMES or not math.isclose(
            port_outcomes.size, reference_outcomes.size, rel_tol=OUTCOMES
        ):
            continue
        if sample and not _begin_with_samples(port_outcomes.shape, reference_outcomes.shape):
            continue
        pairs.append(
            Comparable(port_outcomes, reference_outcomes, OUTCOMES + ROUNDING_FACTOR * of_part)
        )
    return pairs


def outcomes_are_apart(pairs: Sequence[Comparable]) -> bool:
    """Return whether results come on one side alone more often than by chance.

    A result that comes s times is on one side alone with the probability p = qˢ + (1 − q)ˢ, where q
    is the port's part of the runs. The product of (1 + 1/p)/2 where it is, and 1/2 where it is not,
    has a mean of 1, so chance makes it as large as `RARE_OUTCOMES` demands only so rarely: which
    results are the same does not depend on which side gave them.
    docs/parity.md#what-is-random
    """
    return any(_is_too_rare(_counts(pair)) for pair in pairs)


def outcomes_decide(pairs: Sequence[Comparable]) -> bool:
    """Return whether results would be apart if none of them came on both sides."""
    for pair in pairs:
        counts = [(count, 0) for *_, count in pair.port.seen]
        counts += [(0, count) for *_, count in pair.reference.seen]
        if _is_too_rare(counts):
            return True
    return False


def _begin_with_samples(port: tuple[int, ...], reference: tuple[int, ...]) -> bool:
    """Return whether the first axis is the same one on both sides for sure.

    Of three axes, the first is that of the samples or of the steps.
    """
    if {len(port), len(reference)} <= {1, 2, 4}:
        return True
    return port == reference and port[:1] != port[1:2]


def _counts(pair: Comparable) -> _Counts:
    """Return how often each result comes on both sides.

    The results of both sides are one if they are near, or if a chain of near ones joins them.
    """
    results = [_Result(part, change, count, 0) for part, change, count in pair.port.seen]
    results += [_Result(part, change, 0, count) for part, change, count in pair.reference.seen]
    groups: list[list[_Result]] = []
    for result in results:
        joined = [result]
        others = []
        for group in groups:
            if any(_are_near(result, other, pair.apart) for other in group):
                joined += group
            else:
                others.append(group)
        groups = [*others, joined]
    return [
        (sum(member.of_port for member in group), sum(member.of_reference for member in group))
        for group in groups
    ]


def _are_near(result: _Result, other: _Result, apart: float) -> bool:
    """Return whether two results are not further apart than a part of the largest number."""
    largest = max(1.0, abs(result.part), result.change, abs(other.part), other.change)
    part = abs(result.part - other.part)
    change = abs(result.change - other.change)
    return max(part, change) <= apart * largest


def _is_too_rare(counts: _Counts) -> bool:
    """Return whether chance puts so many results on one side alone as rarely as `RARE_OUTCOMES`."""
    runs = sum(port_count + reference_count for port_count, reference_count in counts)
    runs_of_port = sum(port_count for port_count, _ in counts)
    q = runs_of_port / max(1, runs)
    evidence = 0.0
    for port_count, reference_count in counts:
        times = port_count + reference_count
        if times < 2:  # a result that comes once is always on one side
            continue
        of_port = q**times
        of_reference = (1 - q) ** times
        factor = 0.5
        if not (port_count and reference_count):
            factor += 0.5 / (of_port + of_reference)
        evidence += math.log(factor)
    return evidence > -math.log(RARE_OUTCOMES)
