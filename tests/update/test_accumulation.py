"""Micro-batches: which rows each has, and that their sums are the whole batch's. (Of whole updates: test_step.py.)"""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, ops
from resnet_fn.update.accumulation import make_source, rows

pytestmark = pytest.mark.usefixtures("device")


def test_rows_follow_each_other_in_each_tensor_of_a_tuple():
    images, labels = Tensor(np.arange(12.0, dtype=np.float32).reshape(6, 2)), Tensor(np.arange(6, dtype=np.int32))
    assert rows(labels, 1, 3).asnumpy().tolist() == [2, 3]
    part = rows((images, labels), 2, 3)
    assert part[0].asnumpy().tolist() == [[8, 9], [10, 11]]
    assert part[1].asnumpy().tolist() == [4, 5]


def as_it_is(function):
    return function


@pytest.mark.parametrize("compiled", [mindspore.jit, as_it_is])
def test_sums_begin_at_zero_in_each_update(compiled):
    weight = Parameter(Tensor(np.ones(2, np.float32)), name="weight")
    count = Parameter(Tensor(np.float32(0)), name="count")

    def keep_statistics():
        ops.assign_add(count, Tensor(np.float32(1)))

    def micro_batch(images, labels):
        return images.sum(0), ((labels * weight).sum(0),)

    add_all, source = make_source((weight,), 2, keep_statistics, micro_batch, False, compiled)
    for update in (1, 2):
        add_all(Tensor(np.float32([[1, 2], [3, 4]])), Tensor(np.float32([[5, 6], [7, 8]])))
        means, (gradient,) = source(Tensor(np.float32(0.1)))
        assert (means.asnumpy().tolist(), gradient.asnumpy().tolist()) == ([4, 6], [12, 14])
        assert count.asnumpy() == update  # once an update, whatever the micro-batches
