"""BatchNorm over two workers, of which the other has the same samples, is BatchNorm over these
samples twice.
"""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops

from resnet_fn.models import create_model
from resnet_fn.models.batchnorm import BatchNorm2d, batchnorm_statistics, synchronise
from resnet_fn.models.parts import freeze

pytestmark = pytest.mark.usefixtures("device")


def double(tensor):
    return tensor * 2.0


def gradients(x, weights, gamma, ranks):
    """A weighed sum of what the cell gives and its gradients, by samples and parameters; then the
    moving statistics.
    """
    cell = BatchNorm2d(3, momentum=0.9)
    ops.assign(cell.gamma, Tensor(gamma))
    cell.set_train(True)
    if ranks > 1:
        synchronise(cell, ranks, double)
    weights = Tensor(weights)

    def weighed(x):
        return (cell(x) * weights).sum()

    value, (of_x, of_parameters) = mindspore.value_and_grad(weighed, 0, cell.trainable_params())(
        Tensor(x)
    )
    return [value, *of_parameters], of_x, [cell.moving_mean, cell.moving_variance]


def test_two_workers_normalise_as_one_with_all_samples():
    rng = np.random.default_rng(0)
    # a mean that E[x²] - E[x]² would not survive
    x = (rng.normal(size=(4, 3, 5, 5)) + 30).astype(np.float32)
    weights, gamma = (rng.normal(size=shape).astype(np.float32) for shape in (x.shape, 3))
    sums, of_x, moving = gradients(
        np.concatenate([x, x]), np.concatenate([weights, weights]), gamma, 1
    )
    own_sums, own_of_x, own_moving = gradients(x, weights, gamma, 2)
    for both, one in zip(sums, own_sums, strict=True):
        np.testing.assert_allclose(2 * one.asnumpy(), both.asnumpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(own_of_x.asnumpy(), of_x.asnumpy()[:4], rtol=1e-4, atol=1e-4)
    for both, one in zip(moving, own_moving, strict=True):
        np.testing.assert_allclose(one.asnumpy(), both.asnumpy(), rtol=1e-5)


def test_evaluation_normalises_with_the_moving_statistics():
    cell = BatchNorm2d(2)
    synchronise(cell, 2, double)
    x = Tensor(np.float32([[[[3.0]], [[5.0]]]]))
    cell.set_train(False)
    np.testing.assert_allclose(cell(x).asnumpy(), x.asnumpy(), rtol=1e-4)  # mean 0, variance 1


class Like(nn.Cell):
    """A cell of another class, with Parameters named as BatchNorm's statistics."""

    def __init__(self, shape, dtype=mindspore.float32, trained=False):
        super().__init__()
        mean = Tensor(np.zeros(shape), dtype)
        self.running_mean = Parameter(mean, name="running_mean", requires_grad=trained)


def test_statistics_are_recognised_by_class_or_name():
    cells = (nn.BatchNorm1d(3), mint.nn.BatchNorm2d(3), Like(3), Like((1, 3, 1, 1)))
    others = (Like(3, mindspore.int32), Like(3, trained=True), nn.BatchNorm2d(3))
    others[-1].use_batch_statistics = False
    names = [
        parameter.name for parameter in batchnorm_statistics(nn.SequentialCell(*cells, *others))
    ]
    expected = ["0.moving_mean", "0.moving_variance", "1.running_mean", "1.running_var"]
    assert names == [*expected, "2.running_mean"]


def test_all_batchnorms_except_frozen_ones_are_synchronised():
    net = create_model("resnet8", num_classes=2, in_channels=1)
    cells = [cell for _, cell in net.cells_and_names() if isinstance(cell, BatchNorm2d)]
    assert {cell.worker_count for cell in cells} == {1}
    freeze(net, "stem")
    synchronise(net, 4, double)
    assert [cell.worker_count for cell in cells] == [1] + 8 * [4]
