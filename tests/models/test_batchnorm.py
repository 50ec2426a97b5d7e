"""BatchNorm over two workers, of which the other has the same samples, is BatchNorm over these samples twice."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, ops

from resnet_fn.models import create_model
from resnet_fn.models.batchnorm import BatchNorm2d, synchronise

pytestmark = pytest.mark.usefixtures("device")


def double(tensor):
    return tensor * 2.0


def test_two_ranks_are_one_with_their_samples():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(4, 3, 5, 5)) + 30).astype(np.float32)  # a mean that E[x²] - E[x]² would not survive
    weights, gamma = (rng.normal(size=shape).astype(np.float32) for shape in (x.shape, 3))
    results = []
    for ranks in (1, 2):
        cell, copies = BatchNorm2d(3, momentum=0.9), 3 - ranks
        ops.assign(cell.gamma, Tensor(gamma))
        cell.set_train(True)
        if ranks == 2:
            synchronise(cell, 2, double)

        def weighed(x, cell=cell, copies=copies):
            return (cell(x) * Tensor(np.concatenate([weights] * copies))).sum() / copies

        compute = mindspore.jit(mindspore.value_and_grad(weighed, 0, cell.trainable_params()))
        value, (of_x, of_parameters) = compute(Tensor(np.concatenate([x] * copies)))
        moving = (cell.moving_mean, cell.moving_variance)
        results.append([value, of_x[:4] * copies, *of_parameters, *moving])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(two.asnumpy(), one.asnumpy(), rtol=2e-4, atol=2e-5)


def test_evaluation_normalises_with_the_moving_statistics():
    cell = BatchNorm2d(2)
    synchronise(cell, 2, double)
    x = Tensor(np.float32([[[[3.0]], [[5.0]]]]))
    cell.set_train(False)
    np.testing.assert_allclose(cell(x).asnumpy(), x.asnumpy(), rtol=1e-4)  # mean 0, variance 1


def test_all_of_a_net_are_synchronised():
    net = create_model("resnet8", num_classes=2, in_channels=1)
    cells = [cell for _, cell in net.cells_and_names() if isinstance(cell, BatchNorm2d)]
    assert {cell.ranks for cell in cells} == {1}
    synchronise(net, 4, double)
    assert {cell.ranks for cell in cells} == {4}
    assert len(cells) == 9
