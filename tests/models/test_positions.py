"""Sums over positions and values spread over them: their equations, their gradients, and no buffers
that stay.
"""

from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.models.positions import broadcast_hw, mean, total

pytestmark = pytest.mark.usefixtures("device")


def normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(3, 4, 1, 1), (1, 4, 5, 6), (3, 1, 1, 1), (4, 1, 1)])
@pytest.mark.parametrize("standard", [False, True])
def test_both_gradients_of_a_broadcast_product_are_right(shape, standard):
    rng = np.random.default_rng(0)
    x, given = normal(rng, 2, 3, 4, 5, 6)
    factor = normal(rng, *shape)

    def weighted(x, factor):
        return (x * broadcast_hw(factor, x, standard) * Tensor(given)).sum()

    of_x, of_factor = mindspore.jit(mindspore.grad(weighted, (0, 1)))(Tensor(x), Tensor(factor))
    np.testing.assert_array_equal(of_x.asnumpy(), np.broadcast_to(factor, x.shape) * given)
    lost = tuple(k for k in range(4) if ((1,) * (4 - len(shape)) + shape)[k] == 1)
    expected = (x.astype(np.float64) * given).sum(lost, keepdims=True).reshape(shape)
    np.testing.assert_allclose(of_factor.asnumpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize(("function", "count"), [(total, 1), (mean, 35)])
def test_sums_and_means_are_those_of_the_positions(function, count, standard):
    rng = np.random.default_rng(0)
    x, given = normal(rng, 3, 4, 5, 7), normal(rng, 3, 4, 1, 1)

    def weighted(x):
        sums = function(x, standard)
        return (sums * Tensor(given)).sum(), sums

    (_, sums), of_x = mindspore.jit(mindspore.value_and_grad(weighted, 0, None, has_aux=True))(
        Tensor(x)
    )
    expected = x.astype(np.float64).sum((2, 3), keepdims=True) / count
    np.testing.assert_allclose(sums.asnumpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_x.asnumpy(), np.broadcast_to(given / count, x.shape), rtol=1e-6)


def test_a_float16_mean_does_not_overflow():
    """A sum of 64 x 64 values of 20 is beyond float16's largest number; their mean is 20."""
    x = Tensor(np.full((1, 2, 64, 64), 20, np.float16))
    assert mean(x).asnumpy().tolist() == [[[[20]], [[20]]]]
    assert broadcast_hw(mean(x), x).shape == (1, 2, 1, 1)


MEMORY = """
import re, sys
import mindspore, numpy as np
from mindspore import Tensor, ops
from resnet_fn.models.positions import broadcast_hw
from resnet_fn.runtime import process

process.start("CPU", 1)
ours = sys.argv[1] == "spread"

@mindspore.jit
def products(x, factor):
    for _ in range(20):
        x = ops.relu(x * (broadcast_hw(factor, x) if ours else factor))
    return x.sum()

products(Tensor(np.ones((8, 64, 64, 64), np.float32)), Tensor(np.ones((8, 64, 1, 1), np.float32))).asnumpy()
print(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
"""


def test_broadcast_products_keep_no_buffers(python):
    """20 products of 8 MiB: MindSpore's own broadcast keeps two buffers for each of them."""
    Path("products.py").write_text(MEMORY)  # a compiled function must have a file
    plain, ours = (int(python("products.py", kind).stdout) for kind in ("plain", "spread"))
    assert plain - ours > 20 * 8 * 1024  # KiB
