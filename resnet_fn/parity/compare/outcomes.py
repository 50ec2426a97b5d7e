"""Compare which results both sides give when a dropout drops whole paths of a net."""

import math
from collections.abc import Sequence

from resnet_fn.parity.compare.allowed import OUTCOMES, RARE_OUTCOMES
from resnet_fn.parity.trace.data import Outcomes

Pair = tuple[float, float]  # the number of runs in the port and in the reference


def outcomes_are_apart(port: Sequence[Outcomes], reference: Sequence[Outcomes]) -> bool:
    """Return whether results come on one side alone more often than by chance.

    A result that comes s times is on one side alone with the probability p = qˢ + (1 − q)ˢ, where q
    is the port's part of the runs. The product of (1 + 1/p)/2 where it is, and 1/2 where it is not,
    has a mean of 1, so chance makes it as large as `RARE_OUTCOMES` demands only so rarely.
    docs/parity.md#what-is-random
    """
    return any(
        _evidence(_counts(own, other)) > -math.log(RARE_OUTCOMES)
        for own, other in zip(port, reference, strict=False)
        if math.isclose(own.size, other.size, rel_tol=OUTCOMES)
    )


def outcomes_decide(port: Sequence[Outcomes], reference: Sequence[Outcomes]) -> bool:
    """Return whether results would be apart if none of them came on both sides."""
    for own, other in zip(port, reference, strict=False):
        counts = [(count, 0) for *_, count in own.seen] + [(0, count) for *_, count in other.seen]
        if _evidence(counts) > -math.log(RARE_OUTCOMES):
            return True
    return False


def _counts(port: Outcomes, reference: Outcomes) -> list[Pair]:
    """Return how often each result comes on both sides."""
    left = list(reference.seen)
    counts = []
    for part, change, count in port.seen:
        near = [one for one in left if _distance(one, part, change) <= OUTCOMES]
        same = min(near, key=lambda one: _distance(one, part, change), default=None)
        if same:
            left.remove(same)
        counts.append((count, same[2] if same else 0))
    return [*counts, *((0, count) for *_, count in left)]


def _distance(result: tuple[float, float, int], part: float, change: float) -> float:
    return max(abs(result[0] - part), abs(result[1] - change))


def _evidence(counts: Sequence[Pair]) -> float:
    """Return the logarithm of how much more often results come on one side than by chance."""
    port = sum(own for own, _ in counts)
    q = port / max(1, sum(own + other for own, other in counts))
    total = 0.0
    for own, other in counts:
        times = own + other
        if times > 1:  # a result that comes once is always on one side
            by_chance = q**times + (1 - q) ** times
            alone = not own or not other
            total += math.log((1 + alone / by_chance) / 2)
    return total
