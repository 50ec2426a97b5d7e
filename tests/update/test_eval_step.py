"""Per-sample scores: loss, prediction, rank; a broken net scores nothing."""

import numpy as np
import pytest
from mindspore import Tensor, nn

from resnet_fn.update.eval_step import make_eval_step

pytestmark = pytest.mark.usefixtures("device")


class _Fixed(nn.Cell):
    """The images are the logits."""

    def construct(self, x):
        return x.reshape((x.shape[0], -1))


def test_ranks_ties_and_broken_logits():
    step = make_eval_step(_Fixed())
    logits = np.array([[1, 3, 2], [5, 5, 5], [5, 5, 5], [np.nan, 0, 0], [0, 0, np.inf]], np.float32)
    labels = np.array([2, 0, 2, 0, 2], np.int32)
    result = step(Tensor(logits[:, None, None]), Tensor(labels))
    assert result.rank.asnumpy().tolist() == [1, 0, 2, 3, 3]
    assert result.loss.asnumpy()[0] == pytest.approx(-2 + np.log(np.exp([1, 3, 2]).sum()), rel=1e-6)
