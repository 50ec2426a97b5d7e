"""BatchNorm's moving statistics become the mean over the workers, in place."""

import numpy as np
import pytest
from mindspore import Parameter, Tensor, jit

from resnet_fn.update.batchnorm import average_batchnorm

pytestmark = pytest.mark.usefixtures("device")


def statistics(seed):
    rng = np.random.default_rng(seed)
    return [rng.random(size).astype(np.float32) for size in (3, 5, 1)]


def test_every_statistic_is_the_mean_of_both_workers():
    """The other worker's share of the sum, which on real workers an all-reduce adds (tests/run/test_loop.py)."""
    own, other = statistics(0), statistics(1)
    parameters = [Parameter(Tensor(value), name=f"s{index}") for index, value in enumerate(own)]
    theirs = Tensor(np.concatenate(other) / 2)

    def add_theirs(tensors):
        return (tensors[0] + theirs,)

    average = average_batchnorm(parameters, 2, add_theirs)

    @jit
    def run(x):
        average()
        return x

    run(Tensor(np.float32([0])))
    for parameter, a, b in zip(parameters, own, other, strict=True):
        np.testing.assert_allclose(parameter.asnumpy(), (a + b) / 2, rtol=1e-6)


def test_one_worker_or_a_net_without_statistics_has_nothing_to_average():
    assert average_batchnorm([Parameter(Tensor(np.float32([1])), name="s")], 1, None) is None
    assert average_batchnorm([], 2, list) is None
