"""This module makes and reads the report, a small vector that the workers sum in each update.

The report is a float32 vector of length 3 + number of flags + number of workers. The report
contains, in this order:

    loss: the mean over the whole batch, before the update.
    metric: the mean over the whole batch, before the update.
    workers_without_samples: their number. If it is above 0, no worker applies the update.
    flags: the caller's own numbers, for example the signals that the workers received.
    not_finite: for each worker, 1 if this worker found its loss, gradients or BatchNorm statistics not finite, else 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.runtime.workers import Reduce, Workers
from resnet_fn.update.gradients import Gradients, Parameters, is_finite, map_tensors

MEANS = 2  # loss and metric
_WITHOUT_SAMPLES, _FLAGS = MEANS, MEANS + 1  # places in a report

_depend = ops.Depend()


class Report(NamedTuple):
    """Holds the parts of a report (the small vector that workers sum), as tensors or NumPy
    arrays.
    """

    loss: Any  # scalar
    metric: Any  # scalar
    workers_without_samples: Any  # scalar
    flags: Any  # [k]
    not_finite: Any  # [workers]


def make_flags(more: Sequence[float] | np.ndarray = (), without_samples: bool = False) -> Tensor:
    """Make the argument `flags` of a training step, which sums the flags over the workers.

    Args:
        more: k values of your choice, where k may be 0. `StepResult.report.flags` has their sums.
        without_samples: whether this worker has no samples for the update, so that no worker applies the
            update.

    Returns:
        float32 [1 + k].
    """
    return Tensor(np.array([without_samples, *more], np.float32))


def stack_means(loss: Tensor, metric: Tensor) -> Tensor:
    """Join the loss and the metric to one tensor, float32 [2]."""
    return ops.stack((loss, metric))


def pack(means: Tensor, flags: Tensor, finite: Tensor, one_hot: Tensor) -> Tensor:
    """Make this worker's report (the small vector that the workers sum).

    `means` has the loss and the metric, divided by the number of workers. `finite` (bool scalar) is
    False if this worker has a loss, gradient or statistic that is not finite. `one_hot` is float32
    [workers], with 1 at its rank.
    """
    return ops.concat((means, flags, one_hot * (1.0 - finite.astype(mindspore.float32))))


def unpack(report: Any, workers: int) -> Report:
    """Split a report (the small vector that the workers sum) into its named parts."""
    end = report.shape[0] - workers
    return Report(report[0], report[1], report[_WITHOUT_SAMPLES], report[_FLAGS:end], report[end:])


def all_finite(report: Tensor, norm: Tensor, workers: int) -> Tensor:
    """Return, as a bool scalar tensor, whether loss and `norm` are finite and the report's
    `not_finite` is all 0.
    """
    return ops.logical_and(is_finite(report[0], norm), report[-workers:].sum() == 0)


def all_have_samples(report: Tensor) -> Tensor:
    """Return, as a bool scalar tensor, whether every worker had samples for this update."""
    return report[_WITHOUT_SAMPLES] == 0


def with_all_reduce(workers: Workers) -> Workers:
    """Return a copy of `workers` with a function in the field `all_reduce`, which sums tensors over
    the workers.

    A training step calls `all_reduce`. If there is only one worker, `workers` is returned
    unchanged.
    """
    if workers.size == 1:
        return workers
    # one call for each tensor, which on a CPU is as fast as buckets
    reduce_sum = ops.AllReduce(ops.ReduceOp.SUM)
    blocks = mindspore.get_current_device().device_target == "CPU"

    def all_reduce(tensors: Gradients) -> Gradients:
        # On a CPU, a collective blocks. During the backward pass, each collective would wait for
        # the slowest worker, so all wait for the first layer's gradient, which is ready last. On a
        # card, collectives run during the pass.
        if blocks:
            tensors = map_tensors(ops.partial(_after, tensors[0]), tensors)
        return map_tensors(reduce_sum, tensors)

    return workers._replace(all_reduce=all_reduce)


def _after(event: Tensor, value: Tensor) -> Tensor:
    return _depend(value, event)


def mean_over_workers(
    statistics: Parameters, mean_factor: float, all_reduce: Reduce, after: Tensor
) -> Gradients:
    """Compute the mean of BatchNorm's moving statistics over the workers.

    `mean_factor` is 1 / number of workers.
    """
    if not statistics:
        return ()
    # The sum waits until `after` is computed, because a collective blocks: see `with_all_reduce`.
    addend = _after(after, ops.concat(map_tensors(ops.partial(_scaled, mean_factor), statistics)))
    return ops.split(all_reduce((addend,))[0], [statistic.shape[0] for statistic in statistics])


def _scaled(factor: float, statistic: Parameter) -> Tensor:
    return statistic * factor
