"""Scores of a batch against their formulas."""

import numpy as np
import pytest
from mindspore import Tensor, nn
from scipy.special import log_expit, logsumexp

from resnet_fn.evaluation.eval_step import make_eval_step

pytestmark = pytest.mark.usefixtures("device")


class _Fixed(nn.Cell):
    """The images are the logits."""

    def construct(self, x):
        return x.reshape((x.shape[0], -1))


def evaluated(logits, labels):
    """The loss, the prediction and the rank of each sample, as arrays."""
    result = make_eval_step(_Fixed())(Tensor(logits[:, None, None]), Tensor(labels))
    return [column.asnumpy() for column in result[:3]]


def test_ties_rank_by_class_and_nan_ranks_last():
    logits = np.array([[1, 3, 2], [5, 5, 5], [5, 5, 5], [np.nan, 0, 0], [0, 0, np.inf]], np.float32)
    loss, _, rank = evaluated(logits, np.array([2, 0, 2, 0, 2], np.int32))
    assert rank.tolist() == [1, 0, 2, 3, 3]
    assert loss[0] == pytest.approx(logsumexp([1, 3, 2]) - 2, rel=1e-6)


def test_several_classes_are_scored_by_binary_cross_entropy():
    logits = np.array(
        [[1, 3, 2], [-9, 0, 9], [1, 2, 3], [np.nan, 0, 0], [np.inf, 0, 0]], np.float32
    )
    labels = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 0, 0]], np.float32)
    loss, prediction, rank = evaluated(logits, labels)
    losses = -log_expit(np.where(labels > 0, logits, -logits)[:3])
    np.testing.assert_allclose(loss[:3], losses.mean(1), rtol=1e-5)
    assert not np.isfinite(loss[3:]).any()
    assert prediction[:3].tolist() == [1, 2, 2]
    assert rank.tolist() == [0, 0, 0, 3, 3]
