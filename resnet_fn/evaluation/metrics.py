"""Metrics of an evaluation are computed here in NumPy: confusion matrix, scores by class, calibration, mistakes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

BINS = 15
_POINTS = 101  # most points of a precision-recall curve
_CURVES_UP_TO = 100  # most classes for which curves are computed
_SHOWN, _GALLERY_UP_TO = 3, 30  # a gallery's best and worst images per class; its most classes
SAID_FROM = 0.5  # multi-label: the decision threshold, the lowest probability at which a class counts as predicted


def confusion_matrix(labels: np.ndarray, predictions: np.ndarray, classes: int) -> np.ndarray:
    """Count samples by true class (row) and predicted class (column), int64 [C, C]; both arguments are integers [N]."""
    places = labels.astype(np.int64) * classes + predictions
    return np.bincount(places, minlength=classes * classes).reshape(classes, classes)


def class_scores(right: np.ndarray, support: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """Compute precision, recall and F1 of each class; 0 for a class that never occurs or is never predicted.

    Arguments, int64 [C]: `right`, the samples of each class predicted correctly; `support`, all samples of the class;
    `predicted`, all samples predicted as the class. Returns "precision", "recall", "f1", float64 [C], and the last two.
    """
    right = right.astype(np.float64)
    precision = right / np.maximum(predicted, 1)
    recall = right / np.maximum(support, 1)
    f1 = 2 * right / np.maximum(support + predicted, 1)
    return {"precision": precision, "recall": recall, "f1": f1, "support": support, "predicted": predicted}


def averages(scores: dict[str, np.ndarray], every_class: bool = False) -> dict[str, dict[str, float]]:
    """Average scores over classes that occur, or all if `every_class`: "macro" equally, "weighted" by support."""
    there = (scores["support"] + scores["predicted"] > 0) | every_class
    weights = scores["support"] / max(scores["support"].sum(), 1)
    names = ("precision", "recall", "f1")
    return {
        "macro": {name: float(scores[name][there].mean()) if there.any() else 0.0 for name in names},
        "weighted": {name: float((scores[name] * weights).sum()) for name in names},
    }


def calibration(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Compute the expected calibration error (Guo et al., arXiv 1706.04599); `confidence` and `right` (bool) are [N].

    The 15 bins of 0..1 have equal width and include their upper end (the first 0, too). Returns "error", Σ count/N ·
    |accuracy − confidence|, and "bins"; "confidence" and "accuracy" of an empty bin are None.
    """
    exact = confidence.astype(np.float64)
    edges = np.linspace(0.0, 1.0, BINS + 1)
    place = np.clip(np.searchsorted(edges, exact, side="left") - 1, 0, BINS - 1)
    rows, error = [], 0.0
    for index in range(BINS):
        inside = place == index
        row: dict[str, Any] = {"from": float(edges[index]), "to": float(edges[index + 1]), "count": int(inside.sum())}
        row |= {"confidence": None, "accuracy": None}
        if row["count"]:
            row |= {"confidence": float(exact[inside].mean()), "accuracy": float(right[inside].mean())}
            error += row["count"] / len(exact) * abs(row["accuracy"] - row["confidence"])
        rows.append(row)
    return {"error": error, "bins": rows}


def confident_mistakes(confidence: np.ndarray, right: np.ndarray, limit: int) -> np.ndarray:
    """Return the flat indices of at most `limit` wrong predictions, the most confident first; ties keep their order."""
    wrong = np.flatnonzero(~right)
    return wrong[np.argsort(-confidence.flat[wrong], kind="stable")][:limit]


def confused_pairs(labels: np.ndarray, predictions: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (true class, predicted class, count) for wrong predictions, the most frequent pair first."""
    wrong = labels != predictions
    pairs, counts = np.unique(np.stack((labels[wrong], predictions[wrong]), 1), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(a, b, count) for (a, b), count in zip(pairs[order].tolist(), counts[order].tolist(), strict=True)]


def precision_recall(positive: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute precision and recall with each distinct score as the threshold, the highest first.

    `positive` is bool [N], at least one true, `scores` float [N]. Returns float64 [distinct scores] twice, as
    scikit-learn's `precision_recall_curve` without its last point.
    """
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(positive[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # last place of each score
    return right[last] / (last + 1), right[last] / positive.sum()


def average_precisions(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return each class's average precision, float64 [C]; NaN for a class without samples.

    It is Σ (R_n − R_n−1) · P_n over the steps of the precision-recall curve, as in scikit-learn. `labels` [N, C] are 1
    for each class that a sample has, else 0; `probabilities` are [N, C].
    """
    areas = np.full(labels.shape[1], np.nan)
    for index in np.flatnonzero((labels > 0).any(0)):
        precision, recall = precision_recall(labels[:, index] > 0, probabilities[:, index])
        areas[index] = (np.diff(recall, prepend=0.0) * precision).sum()
    return areas


def mean_average_precision(areas: np.ndarray) -> float:
    """Return the mean of `average_precisions` over the classes that have samples; NaN if none has."""
    finite = areas[~np.isnan(areas)]
    return math.fsum(finite) / len(finite) if len(finite) else float("nan")


def precision_recall_curves(positive: np.ndarray, probabilities: np.ndarray) -> list[dict[str, Any]]:
    """Compute each class's precision-recall curve; `positive` bool, `probabilities` float32, both [N, classes].

    A curve has at most 101 points, the highest threshold first; it is empty without samples, or above 100 classes.
    """
    curves: list[dict[str, Any]] = [{"recall": [], "precision": []} for _ in range(probabilities.shape[1])]
    for index in np.flatnonzero(positive.any(0) & (len(curves) <= _CURVES_UP_TO)):
        precision, recall = precision_recall(positive[:, index], probabilities[:, index])
        places = np.unique(np.linspace(0, len(recall) - 1, _POINTS).astype(int))
        for name, values in (("recall", recall), ("precision", precision)):
            curves[index][name] = [round(value, 6) for value in values[places].tolist()]
    return curves


def gallery(labels: np.ndarray, doubt: np.ndarray, f1: Sequence[float]) -> dict[int, list[int]]:
    """Select from each class's samples up to 3 with the smallest doubt, then up to 3 with the largest, the worst last.

    `labels` are classes [N], or [N, classes] with 1 for each class of a sample. `doubt`, [N, classes] or [N, 1], is
    small where the net is confident of that class; NaN counts as largest. Of more than 30 classes, the 30 with the
    lowest `f1` are taken.
    """
    there = np.unique(labels) if labels.ndim == 1 else np.flatnonzero((labels > 0).any(0))
    doubt = np.broadcast_to(doubt, (len(labels), len(f1)))
    weakest = there[np.argsort(np.array(f1)[there], kind="stable")][:_GALLERY_UP_TO]
    shown = {}
    for index in sorted(weakest.tolist()):
        samples = np.flatnonzero(labels == index if labels.ndim == 1 else labels[:, index] > 0)
        samples = samples[np.argsort(doubt[samples, index], kind="stable")]
        worst = max(_SHOWN, len(samples) - _SHOWN)
        shown[index] = [*samples[:_SHOWN].tolist(), *samples[worst:].tolist()]
    return shown


def threshold_table(positive: np.ndarray, probability: np.ndarray) -> list[dict[str, float | int]]:
    """Compute the scores of two classes at the decision thresholds 0.05, 0.1, …, 0.95; 0 where there are no samples.

    `positive` is bool [N], `probability`, float [N], that of the positive class. "predicted" counts the samples at or
    above the threshold; "false_alarms" is the share of all negative samples that are among them.
    """
    rows: list[dict[str, float | int]] = []
    for threshold in (number / 20 for number in range(1, 20)):
        taken = probability >= threshold
        scores = class_scores((taken & positive).sum(), positive.sum(), taken.sum())
        false_alarms = (taken & ~positive).sum() / max((~positive).sum(), 1)
        rows.append(
            {
                "threshold": threshold,
                **{name: scores[name].item() for name in ("predicted", "precision", "recall", "f1")},
                "false_alarms": float(false_alarms),
                "accuracy": float((taken == positive).mean()),
            }
        )
    return rows
