"""BatchNorm's moving statistics become the mean over the workers, in place."""

import numpy as np
import pytest
from mindspore import Parameter, Tensor, jit
from mindspore.ops import assign
from resnet_fn.update.batchnorm import average_batchnorm, batchnorm_statistics, keeper

from resnet_fn.models import create_model

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

    average, _ = average_batchnorm(parameters, 2, add_theirs)

    @jit
    def run(x):
        average(x)
        return x

    run(Tensor(np.float32([0])))
    for parameter, a, b in zip(parameters, own, other, strict=True):
        np.testing.assert_allclose(parameter.asnumpy(), (a + b) / 2, rtol=1e-6)


def test_one_worker_or_a_net_without_statistics_has_nothing_to_average():
    assert average_batchnorm([Parameter(Tensor(np.float32([1])), name="s")], 1, None) == (None, None)
    assert average_batchnorm([], 2, list) == (None, None)


def test_outside_the_sum_is_made_between_share_and_average():
    own, other = statistics(0), statistics(1)
    parameters = [Parameter(Tensor(value), name=f"o{index}") for index, value in enumerate(own)]
    average, share = average_batchnorm(parameters, 2, list, outside=True)
    average(share() + Tensor(np.concatenate(other) / 2))
    for parameter, a, b in zip(parameters, own, other, strict=True):
        np.testing.assert_allclose(parameter.asnumpy(), (a + b) / 2, rtol=1e-6)


def test_what_was_kept_comes_back_to_the_bit():
    values = statistics(0)
    parameters = [Parameter(Tensor(value), name=f"k{index}") for index, value in enumerate(values)]
    keep, put_back = keeper(parameters)
    keep()
    for parameter in parameters:
        assign(parameter, parameter * np.nan)
    put_back()
    assert [parameter.asnumpy().tobytes() for parameter in parameters] == [value.tobytes() for value in values]


def test_frozen_weights_and_frozen_batchnorms_have_no_statistics_that_move():
    net = create_model("resnet8", num_classes=3)
    moving = [p.name for p in net.get_parameters() if p.name.rsplit(".", 1)[-1] in ("moving_mean", "moving_variance")]
    assert [p.name for p in batchnorm_statistics(net)] == moving
    net.conv1.weight.requires_grad = False
    net.bn1.gamma.requires_grad = net.bn1.beta.requires_grad = False
    assert [p.name for p in batchnorm_statistics(net)] == moving
    net.bn1.use_batch_statistics = False
    assert [p.name for p in batchnorm_statistics(net)] == [name for name in moving if not name.startswith("bn1.")]
