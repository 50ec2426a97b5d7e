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
    total = report(0, make_flags([0, 0], without_samples=True)) + report(
        1, make_flags([0, 0]), False
    )
    total = total + report(2, make_flags([0, 1]))
    for parts in (unpack(total, 3), unpack(total.asnumpy(), 3)):
        assert (float(parts.loss), float(parts.metric), float(parts.workers_without_samples)) == (
            3.0,
            1.5,
            1.0,
        )
        assert parts.flags.tolist() == [0, 1]
        assert parts.not_finite.tolist() == [0, 1, 0]
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
    sizes = (3, 5, 1)
    ours, theirs = (
        [np.random.default_rng(s).random(size).astype(np.float32) for size in sizes] for s in (0, 1)
    )
    parameters = tuple(
        Parameter(Tensor(value), name=f"s{index}") for index, value in enumerate(ours)
    )
    share = Tensor(np.concatenate(theirs) / 2)

    def add_share(tensors):
        return (tensors[0] + share,)

    @jit
    def run(x):
        return mean_over_workers(parameters, 0.5, add_share, x)

    means = run(Tensor(np.float32([0])))
    for mean, parameter, a, b in zip(means, parameters, ours, theirs, strict=True):
        np.testing.assert_allclose(mean.asnumpy(), (a + b) / 2, rtol=1e-6)
        assert parameter.asnumpy().tobytes() == a.tobytes()
