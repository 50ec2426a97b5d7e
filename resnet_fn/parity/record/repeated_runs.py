"""Run a layer with random dropout several times, compiled as it is trained."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.parity.trace.difference import relative_error

_RUNS = 32

_REPEATS = 1e-6  # relative error up to which two outputs are the same

MakeRun = Callable[[bool], Callable[[], np.ndarray]]


class Runs(NamedTuple):
    """The outputs of several runs of a layer."""

    outputs: Sequence[np.ndarray]  # empty: it does not run alone
    varies: float | None = None  # the part of further runs whose output is not the first one's
    error: str = ""  # why it does not run compiled, if it runs uncompiled


def repeated(
    make_run: MakeRun,
    compiled: bool,
    is_enough: Callable[[Sequence[np.ndarray]], bool] = lambda outputs: False,
) -> Runs:
    """Run a layer up to `_RUNS` times, until outputs vary and are enough.

    `make_run(compiled)` returns a function that runs the layer.
    """
    try:
        return _repeated(make_run(compiled), is_enough)
    except Exception as error:
        fault = f"{type(error).__name__}: {first_line(error)}"
    try:
        runs = _repeated(make_run(False), is_enough)
        return runs._replace(error=fault if compiled else "")
    except Exception:  # for example, no kernel on this device
        return Runs([])


def _repeated(
    run: Callable[[], np.ndarray], is_enough: Callable[[Sequence[np.ndarray]], bool]
) -> Runs:
    outputs = [run()]
    others = 0
    while len(outputs) < _RUNS:
        outputs.append(run())
        first, last = outputs[0], outputs[-1]
        others += first.shape != last.shape or relative_error(last, first) > _REPEATS
        if others and is_enough(outputs):
            break
    return Runs(outputs, others / (len(outputs) - 1))
