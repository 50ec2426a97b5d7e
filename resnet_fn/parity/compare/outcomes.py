"""Compare which results both sides give when a dropout drops whole paths of a net."""

import math
from collections.abc import Sequence

from resnet_fn.parity.compare.draws import OUTCOMES, RARE_OUTCOMES
from resnet_fn.parity.trace.data import Outcomes

_Result = tuple[float, float, int]  # of `Outcomes.seen`

_Counts = list[tuple[int, int]]  # how often each result comes in the port and in the reference


def outcomes_are_apart(port: Sequence[Outcomes], reference: Sequence[Outcomes]) -> bool:
    """Return whether results come on one side alone more often than by chance.

    A result that comes s times is on one side alone with the probability p = qˢ + (1 − q)ˢ, where q
    is the port's part of the runs. The product of (1 + 1/p)/2 where it is, and 1/2 where it is not,
    has a mean of 1, so chance makes it as large as `RARE_OUTCOMES` demands only so rarely.
    docs/parity.md#what-is-random
    """
    for own, other in zip(port, reference, strict=False):
        comparable = math.isclose(own.size, other.size, rel_tol=OUTCOMES)
        if comparable and _is_too_rare(_counts(own, other)):
            return True
    return False


def outcomes_decide(port: Sequence[Outcomes], reference: Sequence[Outcomes]) -> bool:
    """Return whether results would be apart if none of them came on both sides."""
    for own, other in zip(port, reference, strict=False):
        counts = [(count, 0) for *_, count in own.seen]
        counts += [(0, count) for *_, count in other.seen]
        if _is_too_rare(counts):
            return True
    return False


def _counts(port: Outcomes, reference: Outcomes) -> _Counts:
    """Return how often each result comes on both sides."""
    left = list(reference.seen)
    counts = []
    for result in port.seen:
        same = _nearest(result, left)
        if same is None:
            counts.append((result[2], 0))
            continue
        left.remove(same)
        counts.append((result[2], same[2]))
    counts += [(0, count) for *_, count in left]
    return counts


def _nearest(result: _Result, others: Sequence[_Result]) -> _Result | None:
    """Return the same result among the other side's, or None."""
    distance = math.inf
    nearest = None
    for other in others:
        part = abs(result[0] - other[0])
        change = abs(result[1] - other[1])
        apart = max(part, change)
        if apart <= OUTCOMES and apart < distance:
            distance = apart
            nearest = other
    return nearest


def _is_too_rare(counts: _Counts) -> bool:
    """Return whether chance puts so many results on one side alone as rarely as `RARE_OUTCOMES`."""
    runs = sum(own + other for own, other in counts)
    runs_of_port = sum(own for own, _ in counts)
    q = runs_of_port / max(1, runs)
    evidence = 0.0
    for own, other in counts:
        times = own + other
        if times < 2:  # a result that comes once is always on one side
            continue
        of_port = q**times
        of_reference = (1 - q) ** times
        factor = 0.5
        if not (own and other):
            factor += 0.5 / (of_port + of_reference)
        evidence += math.log(factor)
    return evidence > -math.log(RARE_OUTCOMES)
