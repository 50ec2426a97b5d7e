import mindspore
import numpy as np
import pytest

from resnet_fn.data.sources import load_digits
from resnet_fn.evaluation import Scores, score, summarise
from resnet_fn.models import create_model
from resnet_fn.step import make_eval_step

pytestmark = pytest.mark.usefixtures("device")


def test_any_batch_size_gives_the_same_counts():
    mindspore.set_seed(3)
    net = create_model("resnet8", num_classes=10, in_channels=1)
    step, digits = make_eval_step(net), load_digits()
    figures = [summarise(score(step, digits, 8, batch_size)) for batch_size in (7, 256, 10_000)]
    assert len({(f["top1"], f["top5"], f["count"]) for f in figures}) == 1
    assert figures[0]["count"] == 360
    np.testing.assert_allclose([f["loss"] for f in figures], figures[0]["loss"], rtol=1e-6)
    assert 0 < figures[0]["top1"] < figures[0]["top5"] < 1


def test_summary_is_the_definition():
    scores = Scores(np.float32([0.5, 1.5, 1.0, 5.0]), np.int32([0, 1, 2, 3]), np.int32([0, 4, 1, 5]))
    assert summarise(scores) == {"loss": 2.0, "top1": 0.25, "top5": 0.75, "count": 4}
