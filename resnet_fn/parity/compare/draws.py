"""How far two draws of random numbers may be apart: initial values, and outputs under dropout.

No rounding is involved, only chance. docs/parity.md, "Initial values" and "What is random", has the
formulas.
"""

import math

import numpy as np

from resnet_fn.parity.trace.drop import Drop
from resnet_fn.parity.trace.limits import REPEATS

MOST_STANDARD_ERRORS = 6.0
"""The moments of initial values may differ by so many standard errors: 500 comparisons fail by
chance once in a million runs. docs/parity.md#initial-values
"""

CONSTANTS_TOLERANCE = 1e-6
"""The mean of numbers that are all equal may differ by this. docs/parity.md#initial-values"""

CHANCE = 1e-5
"""The fraction of an array's numbers that may be equal in two draws by chance.
docs/parity.md#initial-values
"""

MOST_BY_CHANCE = 1e-9
"""Rows that are constant by chance have at least this probability. docs/parity.md#initial-values
"""

ORTHOGONAL = 1e-4
"""The largest cosine of two orthogonal rows. docs/parity.md#initial-values"""

LEAST_DEPENDENCE = 1 / 3
"""Mean squared cosines of an array's slices differ if they are apart by this part of the larger one,
and by `MOST_STANDARD_ERRORS`. docs/parity.md#initial-values
"""

LEAST_RESPONSE = 0.03
"""Means of outputs under dropout differ if they are apart by this part of the larger one, and by
`MOST_STANDARD_ERRORS`. docs/parity.md#what-is-random
"""

OUTCOMES = 1e-3
"""How far the same result of dropped paths may be apart, as a part of the output's square, or of
the result if that is larger; rounding is added. docs/parity.md#what-is-random
"""

RARE_OUTCOMES = 2e-9
"""What chance does so rarely differs: a result of dropped paths that one side alone gives. It is
the probability of six standard errors. docs/parity.md#what-is-random
"""

_DRAWS = 3
"""The fewest numbers of a mask that is measured on ones, which have so many channels or more
samples. docs/parity.md#what-is-random"""


def never_varies(drop: Drop, other: Drop) -> bool:
    """Return whether a dropout repeats in all runs and its counterpart does not, and chance does
    not explain that. docs/parity.md#what-is-random
    """
    if drop.varies != 0 or not other.varies:
        return False
    rare = min(drop.share, 1 - drop.share)
    if other.further >= drop.further:  # it did not stop at the first run that varied
        rare = max(rare, other.varies / 2)
    numbers = max(math.prod(drop.shape), math.prod(other.shape))  # the layer may have no mask
    draws = min(numbers, _DRAWS)  # of each run
    by_chance: float = (1 - rare) ** (drop.further * draws)
    return by_chance <= REPEATS


def are_apart(port: tuple[float, float], reference: tuple[float, float]) -> bool:
    """Return whether two means, each with its standard error, differ by more than chance."""
    apart = abs(port[0] - reference[0])
    error = math.hypot(port[1], reference[1])
    largest = max(abs(port[0]), abs(reference[0]))
    return apart > max(MOST_STANDARD_ERRORS * error, LEAST_RESPONSE * largest)


def would_be_apart(port: tuple[float, float], reference: tuple[float, float]) -> bool:
    """Return whether a difference of half the larger of two means would be more than chance."""
    error = math.hypot(port[1], reference[1])
    return MOST_STANDARD_ERRORS * error <= max(port[0], reference[0]) / 2


def mean_of_draws(count: int) -> float:
    """Return the allowed difference of the means of two draws, in standard deviations."""
    return MOST_STANDARD_ERRORS * math.sqrt(2 / count)


def deviation_of_draws(count: int) -> float:
    """Return the allowed relative difference of the standard deviations of two draws."""
    return min(mean_of_draws(count) / 2**0.5, 0.9)


def kurtosis_of_draws(count: int) -> float:
    """Return the allowed difference of the kurtosis of two draws."""
    return MOST_STANDARD_ERRORS * math.sqrt(48 / count)


def has_heavy_tails(count: int, kurtosis: float) -> bool:
    """Return whether a draw's kurtosis is too large for a normal distribution."""
    return kurtosis > 3 + MOST_STANDARD_ERRORS * math.sqrt(24 / count)


def moments_of_heavy_tails(*draws: np.ndarray) -> tuple[float, float]:
    """Return the allowed differences of standard deviation (as a fraction) and kurtosis of two
    draws with heavy tails, whose standard errors are larger than a normal distribution's.
    """
    deviation = kurtosis = 0.0
    for draw in draws:
        centred = draw - draw.mean()
        z = centred / centred.std()
        squares = z * z
        fourth = float(np.square(squares).mean())
        deviation += (fourth - 1) / 4 / z.size
        # how much each number changes the kurtosis
        part = squares * squares - 2 * fourth * squares - 4 * float((squares * z).mean()) * z
        kurtosis += float(part.var()) / z.size
    return MOST_STANDARD_ERRORS * math.sqrt(deviation), MOST_STANDARD_ERRORS * math.sqrt(kurtosis)


def without_tails(draw: np.ndarray) -> np.ndarray:
    """Return a draw without its numbers furthest from the median.

    As many large numbers as `MOST_STANDARD_ERRORS` squared may be in one draw and not in the other.
    """
    count = min(int(MOST_STANDARD_ERRORS**2), draw.size // 10)
    places = np.argpartition(np.abs(draw - np.median(draw)), draw.size - count - 1)
    return draw[places[: draw.size - count]]


def distribution_of_draws(count: int) -> float:
    """Return the allowed largest difference of the distribution functions of two draws.

    By Kolmogorov and Smirnov, as probable as `MOST_STANDARD_ERRORS` of a normal distribution.
    """
    return math.sqrt(-math.log(math.erfc(MOST_STANDARD_ERRORS / 2**0.5) / 2) / count)
