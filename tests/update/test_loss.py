import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.update.loss import cross_entropy

pytestmark = pytest.mark.usefixtures("device")


def log_softmax(logits):
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_equals_the_equation(smoothing):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(7, 5)) * 3, rng.integers(0, 5, 7)
    targets = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
    expected = -(targets * log_softmax(logits)).sum(1).mean()
    got = cross_entropy(Tensor(logits.astype(np.float32)), Tensor(labels.astype(np.int32)), smoothing)
    assert got.asnumpy() == pytest.approx(expected, rel=1e-6)


def test_soft_labels_are_sparse_ones_when_one_hot():
    rng = np.random.default_rng(1)
    logits, labels = Tensor(rng.normal(size=(4, 3)).astype(np.float32)), np.array([0, 2, 1, 1], np.int32)
    sparse = cross_entropy(logits, Tensor(labels), 0.1).asnumpy()
    soft = cross_entropy(logits, Tensor(np.eye(3, dtype=np.float32)[labels]), 0.1).asnumpy()
    assert soft == pytest.approx(sparse, rel=1e-6)


def test_float16_logits_lose_nothing_in_the_loss():
    # exp(-12) vanishes beside 1 in float16 (the loss would be 0), not in float32.
    loss = cross_entropy(Tensor(np.array([[12.0, 0.0]], np.float16)), Tensor(np.array([0], np.int32)))
    assert loss.asnumpy() == pytest.approx(np.log1p(np.exp(-12.0)), rel=0.1)
