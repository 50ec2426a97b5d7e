"""Metrics against scikit-learn's and their formulas."""

import tracemalloc

import numpy as np
import pytest
import sklearn.metrics as sklearn
from scipy.special import softmax
from sklearn.calibration import calibration_curve

from resnet_fn.evaluation import metrics
from resnet_fn.evaluation.task import (
    ANY_CLASSES,
    ONE_CLASS,
    Scores,
    all_metrics,
    describe_scores,
)


@pytest.fixture(scope="module")
def guesses():
    """Labels, logits of a middling classifier, predictions; class 6 is never there, class 5 never
    predicted.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 500)
    logits = rng.standard_normal((500, 7))
    logits[np.arange(500), labels] += 1.0
    logits[:, 5] -= 100
    return labels, logits, logits.argmax(1)


def check_by_class(ours, labels, predictions, every_class, of=None):
    """The scores of each class and their averages are scikit-learn's."""
    theirs = sklearn.precision_recall_fscore_support(
        labels, predictions, labels=of, zero_division=0
    )
    for name, values in zip(("precision", "recall", "f1", "support"), theirs, strict=True):
        np.testing.assert_allclose(ours[name], values, rtol=1e-12, err_msg=name)
    for kind, values in metrics.averages(ours, every_class).items():
        expected = sklearn.precision_recall_fscore_support(
            labels, predictions, average=kind, zero_division=0
        )
        assert list(values.values()) == pytest.approx(expected[:3], rel=1e-12), kind


def test_class_scores_are_scikit_learns(guesses):
    labels, _, predictions = guesses
    confusion = metrics.confusion_matrix(labels, predictions, 7)
    assert (confusion == sklearn.confusion_matrix(labels, predictions, labels=range(7))).all()
    ours = ONE_CLASS.by_class(Scores(np.float32(0), predictions, np.int32(0)), labels, 7)
    check_by_class(ours, labels, predictions, every_class=False, of=range(7))


def test_calibration_is_scikit_learns(guesses):
    labels, logits, predictions = guesses
    confidence = softmax(logits, axis=1).max(1)
    right = predictions == labels
    ours = metrics.calibration(confidence, right)
    accuracy, mean = calibration_curve(right, confidence, n_bins=metrics.BINS, strategy="uniform")
    filled = [row for row in ours["bins"] if row["count"]]
    np.testing.assert_allclose([row["accuracy"] for row in filled], accuracy, rtol=1e-12)
    np.testing.assert_allclose([row["confidence"] for row in filled], mean, rtol=1e-12)
    counts = np.array([row["count"] for row in filled])
    assert counts.sum() == 500
    assert ours["error"] == pytest.approx((counts / 500 * abs(accuracy - mean)).sum(), rel=1e-12)


def test_mistakes_and_confused_pairs_are_in_order():
    confidence = np.array([0.5, 0.9, 0.9, 0.7, 0.9])
    right = np.array([False, False, True, False, False])
    assert metrics.confident_mistakes(confidence, right, 3).tolist() == [1, 4, 3]
    labels = np.array([0, 0, 1, 1, 1, 1, 1, 1, 1, 2], np.int32)
    predictions = np.array([1, 1, 0, 0, 0, 0, 0, 2, 2, 2], np.int32)
    assert metrics.confused_pairs(labels, predictions) == [(1, 0, 5), (0, 1, 2), (1, 2, 2)]
    assert metrics.confused_pairs(labels, labels) == []


def test_memory_of_a_report_grows_linearly_with_classes():
    """Of 4,000 classes a matrix alone would be 128 MB, of 22,000, as ImageNet-21k has, 4 GB."""
    rng = np.random.default_rng(2)
    classes = 4000
    labels, predictions = (rng.integers(0, classes, 6000, np.int32) for _ in range(2))
    top = np.stack((predictions, np.full(6000, 0.5)), 1)[:, :, None].astype(np.float32)
    scores = Scores(
        np.ones(6000, np.float32), predictions, (labels != predictions).astype(np.int32), top
    )
    names = [str(number) for number in range(classes)]
    tracemalloc.start()
    report = ONE_CLASS.report(scores, labels, names)
    all_metrics(scores, labels, classes)
    assert tracemalloc.get_traced_memory()[1] < 20e6  # the peak
    tracemalloc.stop()
    assert report["confusion"] is None
    pairs = {*zip(labels.tolist(), predictions.tolist(), strict=True)}
    assert len(report["confused"]) == sum(label != said for label, said in pairs)  # all of them


def test_mean_average_precision_is_scikit_learns():
    rng = np.random.default_rng(0)
    labels = (rng.random((60, 5)) < [0.5, 0.1, 0.9, 0.3, 0.0]).astype(np.float32)
    probabilities = rng.random((60, 5)).round(1).astype(np.float32)
    areas = metrics.average_precisions(labels, probabilities)
    assert np.isnan(areas[4])  # no sample: it does not count
    expected = sklearn.average_precision_score(labels[:, :4], probabilities[:, :4], average=None)
    np.testing.assert_allclose(areas[:4], expected, rtol=1e-12)
    assert metrics.mean_average_precision(areas) == pytest.approx(expected.mean(), abs=1e-12)
    assert np.isnan(metrics.mean_average_precision(areas[4:]))


def test_scores_of_several_classes_are_each_classs_own():
    labels = np.float32([[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]])
    probabilities = np.float32([[0.9, 0.4, 0.1], [0.5, 0.7, 0.2], [0.6, 0.8, 0.3], [0.1, 0.2, 0.4]])
    scores = ANY_CLASSES.by_class(
        Scores(np.float32(0), np.int32(0), np.int32(0), None, probabilities), labels, 3
    )
    # the absent class counts, as 0
    check_by_class(scores, labels, probabilities >= 0.5, every_class=True)
    assert scores["predicted"].tolist() == [3, 2, 0]


def test_curves_are_scikit_learns_ties_included():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    probabilities = rng.random((90, 4)).round(1).astype(np.float32)  # a step of 0.1: ties
    probabilities[np.arange(90), labels] += np.float32(0.2)
    curves = metrics.precision_recall_curves(np.eye(4)[labels] > 0, probabilities)
    for index in range(3):
        precision, recall, _ = sklearn.precision_recall_curve(
            labels == index, probabilities[:, index]
        )
        np.testing.assert_allclose(curves[index]["precision"][::-1], precision[:-1], atol=1e-6)
        np.testing.assert_allclose(curves[index]["recall"][::-1], recall[:-1], atol=1e-6)
    assert curves[3] == {"recall": [], "precision": []}


def test_a_long_curve_is_thinned_to_101_points():
    labels = np.arange(1000) % 2
    probabilities = np.random.default_rng(1).random((1000, 2)).astype(np.float32)
    curve = metrics.precision_recall_curves(np.eye(2)[labels] > 0, probabilities)[1]
    assert len(curve["recall"]) == len(curve["precision"]) == 101
    assert curve["recall"][-1] == 1.0
    assert curve["precision"][-1] == 0.5
    many = metrics.precision_recall_curves(np.eye(102)[labels] > 0, np.tile(probabilities, 51))
    assert many == [{"recall": [], "precision": []}] * 102


def test_the_gallery_has_each_classs_surest_and_worst():
    labels = np.array([0] * 8 + [1] * 4 + [3])
    loss = np.array([5, 1, 7, 2, 8, 3, 6, 4, 0.4, 0.1, np.nan, 0.3, 9], np.float32)
    shown = metrics.gallery(labels, loss[:, None], [0.5, 0.9, 0.0, 0.1])
    assert shown == {0: [1, 3, 5, 6, 2, 4], 1: [9, 11, 8, 10], 3: [12]}
    many = metrics.gallery(
        np.eye(40, dtype=bool), np.zeros((40, 1)), [1 - k / 40 for k in range(40)]
    )
    assert list(many) == list(range(10, 40))  # the 30 weakest


def test_multi_label_mistakes_are_sorted_by_confidence():
    positive = np.array([[True, False, True], [False, False, True]])
    probabilities = np.float32([[0.125, 0.75, 0.875], [0.25, 0.5, 0.375]])
    scores = Scores(np.ones(2, np.float32), np.int32(0), np.int32(0), probabilities=probabilities)
    wrong = [(0, 0, 0.875), (0, 1, 0.75), (1, 2, 0.625), (1, 1, 0.5)]
    for limit in (9, 2):
        assert ANY_CLASSES.mistakes(scores, positive, limit) == wrong[:limit]
    # each by its own class
    assert metrics.gallery(positive, -probabilities, [0.0, 0.0, 0.0]) == {0: [0], 2: [0, 1]}


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
    assert (
        describe_scores({"loss": 0.5, "map": 0.25, "count": 4}, "abcdef")
        == "loss 0.5000, mAP 25.00%"
    )


def test_extreme_sigmoid_probabilities_keep_their_digits():
    logits = np.float32([[0, -80, 30], [np.nan, 1, 0]])
    probabilities = ANY_CLASSES.probabilities(logits)
    np.testing.assert_allclose(
        probabilities[0], [0.5, np.exp(-80.0), 1 / (1 + np.exp(-30.0))], rtol=1e-12
    )
    assert probabilities[1].tolist() == [0, 0, 0]
    assert ANY_CLASSES.top_classes(logits, 2)[0].tolist() == [
        2,
        0,
        np.float32(probabilities[0, 2]),
        0.5,
    ]
