"""Curves against scikit-learn, and which images stand for a class."""

import numpy as np

from resnet_fn.evaluation.metrics import gallery, precision_recall_curves, wrong_statements


def of_class(labels, classes):
    return labels[:, None] == np.arange(classes)


def test_curves_are_scikit_learns_ties_included():
    import sklearn.metrics as sklearn

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    probabilities = rng.random((90, 4)).round(1).astype(np.float32)  # a step of 0.1: ties
    probabilities[np.arange(90), labels] += np.float32(0.2)
    curves = precision_recall_curves(of_class(labels, 4), probabilities)
    for index in range(3):
        precision, recall, _ = sklearn.precision_recall_curve(labels == index, probabilities[:, index])
        np.testing.assert_allclose(curves[index]["precision"][::-1], precision[:-1], atol=1e-6)
        np.testing.assert_allclose(curves[index]["recall"][::-1], recall[:-1], atol=1e-6)
    assert curves[3] == {"recall": [], "precision": []}


def test_a_long_curve_keeps_its_ends_and_101_points():
    labels = np.arange(1000) % 2
    probabilities = np.random.default_rng(1).random((1000, 2)).astype(np.float32)
    curve = precision_recall_curves(of_class(labels, 2), probabilities)[1]
    assert len(curve["recall"]) == len(curve["precision"]) == 101
    assert curve["recall"][-1] == 1.0
    assert curve["precision"][-1] == 0.5
    many = precision_recall_curves(of_class(labels, 102), np.tile(probabilities, 51))
    assert many == [{"recall": [], "precision": []}] * 102


def test_the_gallery_is_the_surest_and_the_worst_of_each_class():
    labels = np.array([0] * 8 + [1] * 4 + [3])
    loss = np.array([5, 1, 7, 2, 8, 3, 6, 4, 0.4, 0.1, np.nan, 0.3, 9], np.float32)
    shown = gallery(of_class(labels, 4), loss[:, None], [0.5, 0.9, 0.0, 0.1])
    assert shown == {0: [1, 3, 5, 6, 2, 4], 1: [9, 11, 8, 10], 3: [12]}
    many = gallery(np.eye(40, dtype=bool), np.zeros((40, 1)), [1 - k / 40 for k in range(40)])
    assert list(many) == list(range(10, 40))  # the 30 weakest


def test_wrong_statements_are_classes_said_or_not_said_the_most_confident_first():
    positive = np.array([[True, False, True], [False, False, True]])
    probabilities = np.float32([[0.125, 0.75, 0.875], [0.25, 0.5, 0.375]])
    known = np.array([True, True])
    found = wrong_statements(positive, probabilities, known, 9)
    assert found == [(0, 0, 0.875), (0, 1, 0.75), (1, 2, 0.625), (1, 1, 0.5)]
    assert wrong_statements(positive, probabilities, known, 2) == found[:2]
    assert gallery(positive, -probabilities, [0.0, 0.0, 0.0]) == {0: [0], 2: [0, 1]}  # each by its own class


def test_a_row_whose_logits_are_not_finite_says_nothing_with_confidence():
    positive, probabilities = (
        np.array([[True, True], [True, False], [True, False]]),
        np.float32([[0, 0], [0, 0], [0.25, 0]]),
    )
    found = wrong_statements(positive, probabilities, np.array([False, True, True]), 9)
    assert found == [(1, 0, 1.0), (2, 0, 0.75), (0, 0, 0.0), (0, 1, 0.0)]  # a finite 0 is as sure as can be
