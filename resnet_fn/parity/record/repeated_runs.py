"""Run a layer with random dropout several times, compiled as it is trained."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from resnet_fn.config.wording import words_of
from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.limits import REPEATS

_RUNS = 32

_MOST = 256  # as many runs show that a dropout of 5 % or more never drops

_SAME = 1e-6  # relative error up to which two outputs are the same

MakeRun = Callable[[bool], Callable[[], np.ndarray]]


class Runs(NamedTuple):
    """The outputs of several runs of a layer."""

    outputs: Sequence[np.ndarray]  # empty: it does not run alone
    varies: float | None = None  # the part of further runs whose output is not the first one's
    further: int = 0  # how many runs followed the first one
    error: str = ""  # why it does not run compiled, if it runs uncompiled


def repeated(
    make_run: MakeRun,
    compiled: bool,
    share: float,
    is_enough: Callable[[Sequence[np.ndarray]], bool] = lambda outputs: False,
    most: int = _RUNS,
) -> Runs:
    """Run a layer up to `most` times, until outputs vary and are enough.

    If they do not vary, the layer runs until a dropout of the probability `share` would hardly have
    repeated by chance. `make_run(compiled)` returns a function that runs the layer.
    """
    try:
        return _repeated(partial(make_run, compiled), share, is_enough, most)
    except _RunError as error:
        fault = str(error)
    try:
        runs = _repeated(partial(make_run, False), share, is_enough, most)
        return runs._replace(error=fault if compiled else "")
    except _RunError:  # for example, no kernel on this device
        return Runs([])


class _RunError(Exception):
    """A layer does not compile, or does not run."""


@contextlib.contextmanager
def _running() -> Iterator[None]:
    """Mark each error in this block as one of the layer that runs."""
    try:
        yield
    except Exception as error:
        raise _RunError(words_of(error)) from error


def _repeated(
    make_run: Callable[[], Callable[[], np.ndarray]],
    share: float,
    is_enough: Callable[[Sequence[np.ndarray]], bool],
    most: int,
) -> Runs:
    with _running():
        run = make_run()
        outputs = [run()]
    others, further = 0, 0
    # a mask of one number, such as that of LayerDrop, may drop nothing in many runs
    rare = min(share, 1 - share)
    enough = math.log(REPEATS) / math.log1p(-rare) if 0 < rare < 1 else 0
    while further + 1 < most or (not others and further < min(enough, _MOST)):
        with _running():
            last = run()
        first = outputs[0]
        further += 1
        is_other = relative_error(last, first) > _SAME
        others += is_other
        outputs.append(last if is_other else first)  # memory for one of several equal ones
        if others and is_enough(outputs):
            break
    return Runs(outputs, others / further, further)
