"""Where a net applies dropout, and what was recorded of it there."""

import dataclasses
from collections.abc import Sequence

from resnet_fn.parity.trace.layer import Layer


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """The different results of a layer, or of its first sample, in several runs with a dropout."""

    size: float  # the square without dropout, as a part of the whole output's
    # (the result without dropout in this one, the square of the change, how many runs gave it); the
    # first two as parts of the square without dropout
    seen: tuple[tuple[float, float, int], ...]
    shape: tuple[int, ...] = ()  # of the whole output


@dataclasses.dataclass(frozen=True)
class Drop:
    """A place where a net applies dropout."""

    title: str  # the title of a layer's execution
    share: float  # the dropout probability
    once: bool | None  # whether the layer drops once in each call; None if the layer did not run
    scale: float = 0.0  # the factor of the numbers that are kept; 0 if no mask is used or known
    shape: tuple[int, ...] = ()  # the mask's shape, 1 along axes on which the mask does not depend
    is_branch: bool = False  # whether the mask multiplies what the layer adds to its input
    # the part of several runs, compiled as trained, whose output is not the first one's; None: not
    # measured
    varies: float | None = None
    further: int = 0  # how many runs followed the first one
    # (number, standard error) of each of two numbers of the outputs of the layer `of`, which
    # contains the dropout, under this dropout alone; (): not measured
    response: tuple[tuple[float, float], ...] = ()
    # the results of the same runs, of the whole output and of its first sample
    outcomes: tuple[Outcomes, ...] = ()
    of: str = ""
    error: str = ""  # why the layer does not run compiled; empty if it does
    # whether it drops in evaluation mode, too; None: not measured
    in_evaluation: bool | None = None
    # whether all runs with this dropout alone are finite, or the run without it is not
    finite: bool = True


# a net's dropouts; its executions in training mode without dropout
Dropping = tuple[Sequence[Drop], Sequence[Layer]]
