"""The card's pool is a CPU's, with its gradient."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, ops
from numpy.lib.stride_tricks import sliding_window_view

from resnet_fn.models.resnet import MaxPool2d

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("size", [8, 9])
def test_a_card_pools_what_a_cpu_does(size):
    rng = np.random.default_rng(size)
    x = rng.normal(size=(2, 3, size, size)).astype(np.float32)
    # windows where all is 0 after the ReLU: the border's zero may win, and has no gradient to lose
    x[0, 0] = -1.0
    out = -(-size // 2)
    weights = Tensor(rng.normal(size=(2, 3, out, out)).astype(np.float32))
    results = []
    for standard in (False, True):
        pool = MaxPool2d()
        assert not pool.standard  # on a CPU
        pool.standard = standard

        @mindspore.jit
        def forward_and_gradient(x, pool=pool):
            def weighed(x):
                pooled = pool(ops.relu(x))
                return (pooled * weights).sum(), pooled

            return mindspore.value_and_grad(weighed, 0, has_aux=True)(x)

        (_, pooled), gradient = forward_and_gradient(Tensor(x))
        results.append((pooled.asnumpy(), gradient.asnumpy()))
    (ours, our_gradient), (cards, card_gradient) = results
    assert (ours == cards).all()
    np.testing.assert_allclose(card_gradient, our_gradient, atol=1e-6)
    padded = np.pad(np.maximum(x, 0), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    assert (ours == windows.max((-2, -1))).all()
