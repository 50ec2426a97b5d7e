import numpy as np
import pytest

from resnet_fn.evaluation.task import ANY_CLASSES, ONE_CLASS, describe_scores

pytestmark = pytest.mark.usefixtures("device")


def test_top_classes_are_the_softmax_in_order():
    logits = np.float32([[0, 1, 1, -2], [np.nan, 1, 0, 0]])
    top = ONE_CLASS.top_classes(logits, 3)
    exponentials = np.exp(np.float64([1, 1, 0, -2]))
    assert top[0].tolist()[:3] == [1, 2, 0]  # equal logits rank by class
    np.testing.assert_allclose(top[0, 3:], exponentials[:3] / exponentials.sum(), rtol=1e-7)
    assert top[1, 3:].tolist() == [0, 0, 0]


def test_top_5_needs_more_than_five_classes():
    metrics = {"loss": 1.5, "top1": 0.5, "top5": 1.0, "count": 4}
    assert describe_scores(metrics, "abcde") == "loss 1.5000, top-1 50.00%"
    assert describe_scores(metrics, "abcdef") == "loss 1.5000, top-1 50.00%, top-5 100.00%"
    assert describe_scores({"loss": 0.5, "map": 0.25, "count": 4}, "abcdef") == "loss 0.5000, mAP 25.00%"


def test_probabilities_of_several_classes_keep_their_digits_at_both_ends():
    logits = np.float32([[0, -80, 30], [np.nan, 1, 0]])
    probabilities = ANY_CLASSES.probabilities(logits)
    np.testing.assert_allclose(probabilities[0], [0.5, np.exp(-80.0), 1 / (1 + np.exp(-30.0))], rtol=1e-12)
    assert probabilities[1].tolist() == [0, 0, 0]
    assert ANY_CLASSES.top_classes(logits, 2)[0].tolist() == [2, 0, np.float32(probabilities[0, 2]), 0.5]
