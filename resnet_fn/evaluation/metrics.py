"""These functions compute the metrics of an evaluation with NumPy."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

BINS = 15
_POINTS = 101  # most points of a precision-recall curve
_CURVES_UP_TO = 100  # most classes for which curves are computed
# best (and worst) images of a class in a gallery; most classes in a gallery
_SHOWN = 3
_GALLERY_UP_TO = 30
SAID_FROM = 0.5  # multi-label: lowest probability of a predicted class


def confusion_matrix(labels: np.ndarray, predictions: np.ndarray, classes: int) -> np.ndarray:
    """Count the samples of each true class (row) and predicted class (column), int64 [classes,
    classes].
    """
    cells = labels.astype(np.int64) * classes + predictions
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def class_scores(
    right: np.ndarray, support: np.ndarray, predicted: np.ndarray
) -> dict[str, np.ndarray]:
    """Compute precision, recall and F1 of each class. The arguments are numbers of samples, int64
    [classes].

    `support` counts the samples of a class, `predicted` the predictions of the class, `right` the
    correct predictions.
    """
    return {
        "precision": right / np.maximum(predicted, 1),
        "recall": right / np.maximum(support, 1),
        "f1": 2 * right / np.maximum(support + predicted, 1),
        "support": support,
        "predicted": predicted,
    }


def averages(
    scores: dict[str, np.ndarray], every_class: bool = False
) -> dict[str, dict[str, float]]:
    """Compute the mean precision, recall and F1 over the classes, unweighted ("macro") and weighted
    by support.
    """
    # macro: without classes that never occur
    occurring = (scores["support"] + scores["predicted"] > 0) | every_class
    weights = scores["support"] / max(scores["support"].sum(), 1)
    names = ("precision", "recall", "f1")
    return {
        "macro": {
            name: float(scores[name][occurring].mean()) if occurring.any() else 0.0
            for name in names
        },
        "weighted": {name: float((scores[name] * weights).sum()) for name in names},
    }


def calibration(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Compute the expected calibration error (Guo et al., arXiv 1706.04599) with 15 bins of equal
    width.

    The error is the mean of |accuracy − confidence| over the bins, weighted by the number of
    samples in each bin. Both arguments have shape [N]. A confidence at the border of two bins
    counts in the lower bin. An empty bin has confidence and accuracy None.
    """
    exact = confidence.astype(np.float64)
    edges = np.linspace(0.0, 1.0, BINS + 1)
    bin_of = np.clip(np.searchsorted(edges, exact, side="left"), 1, BINS)
    rows = []
    error = 0.0
    for index in range(BINS):
        inside = bin_of == index + 1
        count = int(inside.sum())
        mean = accuracy = None
        if count:
            mean = float(exact[inside].mean())
            accuracy = float(right[inside].mean())
            error += count / len(exact) * abs(accuracy - mean)
        rows.append(
            {
                "from": float(edges[index]),
                "to": float(edges[index + 1]),
                "count": count,
                "confidence": mean,
                "accuracy": accuracy,
            }
        )
    return {"error": error, "bins": rows}


def confident_mistakes(confidence: np.ndarray, right: np.ndarray, limit: int) -> np.ndarray:
    """Return at most `limit` wrong predictions as indices of `confidence.flat`, with the most
    confident first.
    """
    wrong = np.flatnonzero(~right)
    return wrong[np.argsort(-confidence.flat[wrong], kind="stable")][:limit]


def confused_pairs(labels: np.ndarray, predictions: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (true class, predicted class, count) for wrong predictions, with the most frequent
    pair first. Of equally frequent pairs, the smaller classes come first.
    """
    pairs = zip(labels.tolist(), predictions.tolist(), strict=True)
    wrong = Counter(sorted((label, other) for label, other in pairs if label != other))
    return [(label, other, count) for (label, other), count in wrong.most_common()]


def precision_recall(positive: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute precision and recall with each distinct score as the threshold, from the highest to
    the lowest.
    """
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(positive[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # last place of each score
    return right[last] / (last + 1), right[last] / positive.sum()


def average_precisions(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Compute the average precision of each class, float64 [classes], with NaN for a class without
    samples.

    As in scikit-learn, the average precision is Σ (R_n − R_n−1) · P_n over the points of the
    precision-recall curve, with recall R_n and precision P_n at point n.
    """
    areas = np.full(labels.shape[1], np.nan)
    for index in np.flatnonzero((labels > 0).any(0)):
        precision, recall = precision_recall(labels[:, index] > 0, probabilities[:, index])
        areas[index] = (np.diff(recall, prepend=0.0) * precision).sum()
    return areas


def mean_average_precision(areas: np.ndarray) -> float:
    """Return the mean of `areas`, the average precisions of the classes.

    NaN values are left out.
    """
    finite = areas[~np.isnan(areas)]
    return math.fsum(finite) / len(finite) if len(finite) else float("nan")


def precision_recall_curves(
    positive: np.ndarray, probabilities: np.ndarray
) -> list[dict[str, Any]]:
    """Compute each class's precision-recall curve (empty without samples).

    Above 100 classes, all curves are empty.
    """
    curves: list[dict[str, Any]] = [
        {"recall": [], "precision": []} for _ in range(probabilities.shape[1])
    ]
    for index in np.flatnonzero(positive.any(0) & (len(curves) <= _CURVES_UP_TO)):
        precision, recall = precision_recall(positive[:, index], probabilities[:, index])
        shown = np.unique(np.linspace(0, len(recall) - 1, _POINTS).astype(int))
        for name, values in (("recall", recall), ("precision", precision)):
            curves[index][name] = [round(value, 6) for value in values[shown].tolist()]
    return curves


def gallery(labels: np.ndarray, doubt: np.ndarray, f1: Sequence[float]) -> dict[int, list[int]]:
    """Select up to 30 classes with the lowest `f1`, and up to 6 samples of each selected class.

    Returns {class: samples}. Up to 3 samples have the smallest `doubt` of the class, and up to 3
    have the largest. The samples of a class are sorted by increasing doubt, where NaN counts as the
    largest doubt.
    """
    occurring = np.unique(labels) if labels.ndim == 1 else np.flatnonzero((labels > 0).any(0))
    doubt = np.broadcast_to(doubt, (len(labels), len(f1)))
    weakest = occurring[np.argsort(np.array(f1)[occurring], kind="stable")][:_GALLERY_UP_TO]
    shown = {}
    for index in sorted(weakest.tolist()):
        samples = np.flatnonzero(labels == index if labels.ndim == 1 else labels[:, index] > 0)
        samples = samples[np.argsort(doubt[samples, index], kind="stable")]
        worst = max(_SHOWN, len(samples) - _SHOWN)
        shown[index] = [*samples[:_SHOWN].tolist(), *samples[worst:].tolist()]
    return shown
