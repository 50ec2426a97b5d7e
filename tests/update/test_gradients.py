"""Norms and clipping of gradients. (Of what is not finite: test_exchange, test_step.)"""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.update.gradients import (
    LARGE,
    clip_by_global_norm,
    global_norm,
    squared_norms,
    unscale,
)

pytestmark = pytest.mark.usefixtures("device")


def test_small_norms_and_limit_0_clip_nothing():
    gradients = [Tensor([[0.1, 0.2], [0.3, 0.7]]), Tensor([1.1])]
    before = [gradient.asnumpy().tolist() for gradient in gradients]
    for limit in (1.4, 0):
        clipped = clip_by_global_norm(gradients, global_norm(gradients), limit)
        assert [gradient.asnumpy().tolist() for gradient in clipped] == before


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, 512 * 512 * 9, 25_000_000])
def test_norms_of_large_gradients_are_float64s(size):
    values = np.random.default_rng(size).standard_normal(size, np.float32)
    expected = (values.astype(np.float64) ** 2).sum()
    assert squared_norms([Tensor(values)]).asnumpy()[0] == pytest.approx(expected, rel=3e-6)
    values[size // 2] = np.nan
    assert np.isnan(squared_norms([Tensor(values)]).asnumpy()[0])


def test_unscale_recovers_what_float16_held():
    # 2^-20 would be subnormal in float16
    gradient = Tensor(np.array([2.0**-20 * 2.0**16], np.float16))
    (out,) = unscale([gradient], Tensor(2.0**-16, mindspore.float32))
    assert out.dtype == mindspore.float32
    assert out.asnumpy()[0] == 2.0**-20
