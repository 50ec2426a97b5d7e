"""This module sums feature maps over height and width, and broadcasts values over height and width.

On a CPU, the functions multiply float32 tensors by matrices of ones, because MindSpore's CPU
kernels for sums and broadcasts are slow (docs/benchmarks.md). If `standard` is true, the functions
use MindSpore's own operations.
"""

import functools

import mindspore
import numpy as np
from mindspore import Tensor, ops

_times, _times_transposed = ops.MatMul(), ops.MatMul(transpose_b=True)
_sum, _mean = ops.ReduceSum(keep_dims=True), ops.ReduceMean(keep_dims=True)


@ops.constexpr
@functools.cache
def _ones(count: int) -> Tensor:
    return Tensor(np.ones((count, 1), np.float32))


@ops.constexpr
def _by_products(dtype: mindspore.Type) -> bool:
    return dtype == mindspore.float32 and mindspore.get_current_device().device_target == "CPU"


def total(x: Tensor, standard: bool = False) -> Tensor:
    """Sum x over height and width, from [N, C, H, W] to [N, C, 1, 1]."""
    if standard or not _by_products(x.dtype):
        return _sum(x, (2, 3))
    n, c, height, width = x.shape
    return _times(x.reshape(n * c, height * width), _ones(height * width)).reshape(n, c, 1, 1)


def mean(x: Tensor, standard: bool = False) -> Tensor:
    """Average x over height and width, from [N, C, H, W] to [N, C, 1, 1]."""
    if standard or not _by_products(x.dtype):
        return _mean(x, (2, 3))  # in float16, x's sum may be too large
    return total(x) / (x.shape[2] * x.shape[3])


def broadcast_hw(factor: Tensor, x: Tensor, standard: bool = False) -> Tensor:
    """Return `factor`.

    On a CPU, broadcast a float32 `factor` to the shape of `x`, unless `standard` is True.
    """
    if standard or not _by_products(factor.dtype):
        return factor
    n, c, height, width = x.shape
    if factor.shape[-1] != 1:  # a value for each position
        return ops.broadcast_to(factor, x.shape)
    column = ops.broadcast_to(factor, (n, c, 1, 1)).reshape(n * c, 1)
    return _times_transposed(column, _ones(height * width)).reshape(x.shape)
