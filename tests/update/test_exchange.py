"""The report that workers sum in each update."""

import numpy as np
import pytest
from mindspore import Parameter, Tensor, jit

from resnet_fn.update.exchange import (
    all_finite,
    all_have_samples,
    make_flags,
    mean_over_workers,
    pack,
    unpack,
)

pytestmark = pytest.mark.usefixtures("device")


def report(rank, flags, finite=True):
    """One of three workers'."""
    means = Tensor(np.float32([0.5, 0.25]) * (rank + 1))
    one_hot = Tensor(np.eye(3, dtype=np.float32)[rank])
    return pack(means, flags, Tensor(finite), one_hot)


def test_all_workers_read_the_same_of_their_sum():
    total = report(0, make_flags([0, 0], without_samples=True))
    total = total + report(1, make_flags([0, 0]), False) + report(2, make_flags([0, 1]))
    for summed in (total, total.asnumpy()):
        parts = [part.tolist() for part in unpack(summed, 3)]
        assert parts == [3.0, 1.5, 1.0, [0, 1], [0, 1, 0]]
    # One worker is not finite, the sum of the losses and the norm are: as on a card that saturates.
    one = Tensor(np.float32(1))
    infinite = Tensor(np.float32(np.inf))
    assert not all_finite(total, one, 3).asnumpy()
    assert not all_have_samples(total).asnumpy()
    good = report(0, make_flags([0, 1])) + report(1, make_flags([5, 0]))
    assert all_finite(good, one, 3).asnumpy()  # flags are no fault
    assert not all_finite(good, infinite, 3).asnumpy()
    assert not all_finite(good + Tensor(np.float32([np.inf, *[0] * 7])), one, 3).asnumpy()
    assert all_have_samples(good).asnumpy()


def test_every_statistic_is_the_mean_of_both_workers():
    """The other worker's share of the sum, which on real workers an all-reduce adds
    (tests/run/test_loop.py).
    """
    ours = [[1.0, 2.0, 3.0], [4.0, 5.0], [6.0]]
    parameters = tuple(Parameter(Tensor(value), name=f"s{len(value)}") for value in ours)
    share = Tensor([3.0, 4.0, 5.0, 6.0, 7.0, 8.0]) / 2

    def add_share(tensors):
        return (tensors[0] + share,)

    @jit
    def run(x):
        return mean_over_workers(parameters, 0.5, add_share, x)

    means = run(Tensor([0.0]))
    assert [mean.asnumpy().tolist() for mean in means] == [[2, 3, 4], [5, 6], [7]]
    assert [parameter.asnumpy().tolist() for parameter in parameters] == ours
