"""In each update, the workers sum gradients, BatchNorm's statistics and a small vector, the report.

The report is float32 [3 + flags + workers]; only this module packs and unpacks it:

    0              loss, the mean over the whole batch, before the update
    1              metric, the mean over the whole batch, before the update
    2              withheld: the number of workers without samples for this update; above 0, nothing is updated
    3 …            flags: the caller's numbers, summed (the signals that the workers received)
    the last       not finite: 1 for each worker whose own loss, gradients (of several workers: the first layer's) or
                   BatchNorm statistics were not finite

The report is summed right after the gradients, so that all workers take the same decision in the same update.
NaN and infinity survive the sum; the last entries show which workers had them. `step.py` lists all collectives.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.runtime.workers import Reduce, Workers
from resnet_fn.update.gradients import Gradients, is_finite, map_tensors

MEANS = 2  # loss and metric
_WITHHELD, _FLAGS = MEANS, MEANS + 1  # places of withheld and of the first flag

_depend = ops.Depend()


class Report(NamedTuple):
    """Holds an update's report unpacked: three scalars, flags [k], not_finite [workers]; tensors or NumPy arrays."""

    loss: Any
    metric: Any
    withheld: Any
    flags: Any
    not_finite: Any


def make_flags(more: Sequence[float] | np.ndarray = (), withheld: bool = False) -> Tensor:
    """Make a worker's part of the report before an update, which is summed over the workers: float32 [1 + k].

    `more` are k numbers; `withheld`: this worker has no samples (a file cannot be read), and no worker may update.
    """
    return Tensor(np.array([withheld, *more], np.float32))


def stack_means(loss: Tensor, metric: Tensor) -> Tensor:
    """Join loss and metric to float32 [2], inside jit."""
    return ops.stack((loss, metric))


def pack(means: Tensor, flags: Tensor, finite: Tensor, one_hot: Tensor) -> Tensor:
    """Make this worker's report, inside jit.

    `means` are loss and metric, divided by the number of workers; `flags` come from `make_flags`. `finite`, a bool
    scalar, is whether this worker's own numbers are finite. `one_hot`, float32 [workers], is 1 at this worker's place.
    """
    return ops.concat((means, flags, one_hot * (1.0 - finite.astype(mindspore.float32))))


def unpack(report: Any, workers: int) -> Report:
    """Split a summed report, a tensor or array, into its named parts."""
    end = report.shape[0] - workers
    return Report(report[0], report[1], report[_WITHHELD], report[_FLAGS:end], report[end:])


def all_finite(report: Tensor, norm: Tensor, workers: int) -> Tensor:
    """Return whether loss, gradients (by their norm) and all workers' own numbers are finite, inside jit."""
    return ops.logical_and(is_finite(report[0], norm), report[-workers:].sum() == 0)


def none_withheld(report: Tensor) -> Tensor:
    """Return whether all workers had their samples: bool scalar, inside jit."""
    return report[_WITHHELD] == 0


def with_all_reduce(workers: Workers) -> Workers:
    """Return `workers` with the function `all_reduce` that a step needs; a single worker is returned unchanged.

    Each tensor is summed by its own call, which on a CPU is as fast as buckets. A collective blocks on a CPU: during
    the backward pass each would wait for the slowest worker. So all collectives wait for the first layer's gradient,
    which is ready last. On a card the collectives overlap with the backward pass.
    """
    if workers.size == 1:
        return workers
    reduce_sum = ops.AllReduce(ops.ReduceOp.SUM)
    blocks = mindspore.get_current_device().device_target == "CPU"

    def all_reduce(tensors: Gradients) -> Gradients:
        if blocks:
            tensors = map_tensors(ops.partial(_after, tensors[0]), tensors)
        return map_tensors(reduce_sum, tensors)

    return workers._replace(all_reduce=all_reduce)


def _after(event: Tensor, value: Tensor) -> Tensor:
    return _depend(value, event)


def mean_over_workers(
    statistics: Sequence[Parameter], mean_factor: float, all_reduce: Reduce, after: Tensor
) -> Gradients:
    """Compute the mean of BatchNorm's moving statistics over the workers, inside jit; () if there are none.

    Each worker has normalised its own samples; with the means, all workers' nets are equal, bit for bit.
    `mean_factor` is 1 / workers. The sum waits for the tensor `after`: see `with_all_reduce`.
    """
    if not statistics:
        return ()
    addend = _after(after, ops.concat(map_tensors(ops.partial(_scaled, mean_factor), statistics)))
    return ops.split(all_reduce((addend,))[0], [statistic.shape[0] for statistic in statistics])


def _scaled(factor: float, statistic: Parameter) -> Tensor:
    return statistic * factor
