"""The card's pool is a CPU's, with its gradient."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, ops

from resnet_fn.models.resnet import MaxPool2d

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("size", [8, 9])
def test_a_card_pools_what_a_cpu_does(size):
    """What a CPU does is torch's: tests/parity/reference/test_nets.py."""
    rng = np.random.default_rng(size)
    x = rng.normal(size=(2, 3, size, size)).astype(np.float32)
    # windows where all is 0 after the ReLU: the border's zero may win, and has no gradient to lose
    x[0, 0] = -1.0
    out = -(-size // 2)
    weights = Tensor(rng.normal(size=(2, 3, out, out)).astype(np.float32))

    def results(standard):
        pool = MaxPool2d()
        assert not pool.standard  # on a CPU
        pool.standard = standard

        def weighed(x):
            pooled = pool(ops.relu(x))
            return (pooled * weights).sum(), pooled

        (_, pooled), gradient = mindspore.jit(mindspore.value_and_grad(weighed, 0, has_aux=True))(
            Tensor(x)
        )
        return pooled.asnumpy(), gradient.asnumpy()

    (ours, our_gradient), (cards, card_gradient) = results(False), results(True)
    assert (ours == cards).all()
    np.testing.assert_allclose(card_gradient, our_gradient, atol=1e-6)
