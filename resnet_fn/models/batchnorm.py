"""This module has a BatchNorm over the samples of all workers, because `nn.SyncBatchNorm` has no
CPU kernel.
"""

from collections.abc import Callable
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, mint, nn, ops

from resnet_fn.models.positions import broadcast_hw, total

_assign, _sum = ops.Assign(), ops.ReduceSum(keep_dims=True)
BATCHNORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    mint.nn.BatchNorm1d,
    mint.nn.BatchNorm2d,
    mint.nn.BatchNorm3d,
    mint.nn.SyncBatchNorm,
)
# names in nn and mint.nn
_STATISTICS = ("moving_mean", "moving_variance", "running_mean", "running_var")


class BatchNorm2d(nn.BatchNorm2d):
    """Normalises like `nn.BatchNorm2d`, over the samples of this worker or of all workers.

    The method is algorithm 1 of Ioffe and Szegedy, arXiv 1502.03167. All workers must have the same
    number of samples.
    """

    worker_count = 1  # number of workers whose samples are normalised together in training
    # sums a tensor over these workers; its gradient must be the sum of the gradients
    all_reduce: Any = None

    def construct(self, x: Tensor) -> Tensor:
        """Normalise float32 features of shape [N, C, H, W]."""
        if self.worker_count == 1 or not self.training:
            return super().construct(x)
        n, _, height, width = x.shape
        count = n * height * width * self.worker_count
        mean = self.all_reduce(_sum(total(x), 0)) / count  # [1, C, 1, 1]
        centred = x - broadcast_hw(mean, x)
        variance = self.all_reduce(_sum(total(centred * centred), 0)) / count
        self._move(self.moving_mean, mean)
        # unbiased, as in PyTorch
        self._move(self.moving_variance, variance * (count / (count - 1)))
        scale = self.gamma.reshape(1, -1, 1, 1) * ops.rsqrt(variance + self.eps)
        return centred * broadcast_hw(scale, x) + broadcast_hw(self.beta.reshape(1, -1, 1, 1), x)

    def _move(self, moving: Tensor, value: Tensor) -> None:
        # `self.momentum` is the new value's weight, because nn.BatchNorm2d stores 1 minus its
        # argument.
        _assign(
            moving,
            moving * (1.0 - self.momentum) + ops.stop_gradient(value).reshape(-1) * self.momentum,
        )


def synchronise(net: nn.Cell, worker_count: int, all_reduce: Callable[[Tensor], Tensor]) -> None:
    """Switch all `BatchNorm2d` layers of a net, except frozen ones, to normalisation over all
    workers' samples.
    """
    for _, cell in net.cells_and_names():
        if isinstance(cell, BatchNorm2d) and cell.use_batch_statistics is not False:
            cell.worker_count, cell.all_reduce = worker_count, all_reduce


def is_statistic(path: str) -> bool:
    """Return whether `path` is the name of a BatchNorm's moving mean or variance."""
    return path.rsplit(".", 1)[-1] in _STATISTICS


def batchnorm_statistics(net: nn.Cell) -> tuple[Parameter, ...]:
    """Return the moving means and variances of a net's BatchNorms that are not frozen.

    A cell of another class counts as a BatchNorm if it has float32 [channels] Parameters with the
    names of BatchNorm's statistics that are not trained.
    """
    statistics: dict[int, Parameter] = {}
    frozen: set[int] = set()
    for _, cell in net.cells_and_names():
        if getattr(cell, "use_batch_statistics", None) is False:
            frozen |= {id(parameter) for parameter in cell.get_parameters(expand=False)}
        for leaf, parameter in cell.parameters_and_names(expand=False):
            is_one = isinstance(cell, BATCHNORMS) or _is_like_theirs(parameter)
            if leaf in _STATISTICS and is_one:
                statistics[id(parameter)] = parameter
    return tuple(parameter for key, parameter in statistics.items() if key not in frozen)


def _is_like_theirs(parameter: Parameter) -> bool:
    is_vector = parameter.dtype == mindspore.float32 and len(parameter.shape) == 1
    return is_vector and not parameter.requires_grad
