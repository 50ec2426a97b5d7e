"""Metrics of an evaluation, in NumPy: confusion matrix, per-class scores, calibration, worst mistakes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

BINS = 15
_POINTS = 101  # of a curve
_CURVES_UP_TO = 100  # classes
_SHOWN, _GALLERY_UP_TO = 3, 30  # images at each end, classes
SAID_FROM = 0.5  # multi-label: the decision threshold, the lowest probability at which a class counts as predicted


def confusion_matrix(labels: np.ndarray, predictions: np.ndarray, classes: int) -> np.ndarray:
    """Count samples, integers [N] in 0..classes−1, by true class (row) and predicted class (column): int64 [C, C]."""
    places = labels.astype(np.int64) * classes + predictions
    return np.bincount(places, minlength=classes * classes).reshape(classes, classes)


def class_scores(right: np.ndarray, support: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """Compute precision, recall and F1 of each class; 0 for a class that never occurs or is never predicted.

    Of int64 [C], the samples of each class that are predicted as it, all samples of it, and all that are predicted as
    it: "precision", "recall", "f1" float64 [C]; "support" and "predicted" as given.
    """
    right = right.astype(np.float64)
    precision = right / np.maximum(predicted, 1)
    recall = right / np.maximum(support, 1)
    f1 = 2 * right / np.maximum(support + predicted, 1)
    return {"precision": precision, "recall": recall, "f1": f1, "support": support, "predicted": predicted}


def averages(scores: dict[str, np.ndarray], every_class: bool = False) -> dict[str, dict[str, float]]:
    """Average scores over classes that occur, or over `every_class`: "macro", alike, "weighted", by support."""
    there = (scores["support"] + scores["predicted"] > 0) | every_class
    weights = scores["support"] / max(scores["support"].sum(), 1)
    names = ("precision", "recall", "f1")
    return {
        "macro": {name: float(scores[name][there].mean()) if there.any() else 0.0 for name in names},
        "weighted": {name: float((scores[name] * weights).sum()) for name in names},
    }


def calibration(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Compute the expected calibration error (Guo et al., arXiv 1706.04599) of predictions, `right` or wrong, bool [N].

    15 bins of equal width over 0..1, open below and closed above; the first takes 0 too. Returns "error", Σ count/N ·
    |accuracy − confidence|, and "bins", of which an empty one has None as "confidence" and "accuracy".
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
    """Return flat indices of wrong predictions, the most confident first, int64 [≤ limit]; ties keep their order."""
    wrong = np.flatnonzero(~right)
    return wrong[np.argsort(-confidence.flat[wrong], kind="stable")][:limit]


def confused_pairs(labels: np.ndarray, predictions: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (true class, predicted class, count) of each confused pair of integers [N], the most frequent first."""
    wrong = labels != predictions
    pairs, counts = np.unique(np.stack((labels[wrong], predictions[wrong]), 1), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(a, b, count) for (a, b), count in zip(pairs[order].tolist(), counts[order].tolist(), strict=True)]


def precision_recall(positive: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute precision and recall at each score as the threshold, the highest score first.

    `positive` is bool [N], at least one true, `scores` float [N]. Returns float64 [distinct scores] twice, as
    scikit-learn's `precision_recall_curve` without its last point.
    """
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(positive[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # of each score
    return right[last] / (last + 1), right[last] / positive.sum()


def average_precisions(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return each class's average precision, float64 [C]; NaN for a class without samples.

    The area under its precision-recall curve as steps, Σ (R_n − R_n−1) · P_n: scikit-learn's definition. `labels`
    [N, C] are 1 for each class that a sample has, else 0; `probabilities` are [N, C].
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

    At up to 101 of the thresholds, the highest first; empty for a class without samples, and above 100 classes for all.
    """
    curves: list[dict[str, Any]] = [{"recall": [], "precision": []} for _ in range(probabilities.shape[1])]
    for index in np.flatnonzero(positive.any(0) & (len(curves) <= _CURVES_UP_TO)):
        precision, recall = precision_recall(positive[:, index], probabilities[:, index])
        places = np.unique(np.linspace(0, len(recall) - 1, _POINTS).astype(int))
        for name, values in (("recall", recall), ("precision", precision)):
            curves[index][name] = [round(value, 6) for value in values[places].tolist()]
    return curves


def gallery(labels: np.ndarray, doubt: np.ndarray, f1: Sequence[float]) -> dict[int, list[int]]:
    """Select each class's own samples: up to 3 of the smallest doubt, then up to 3 of the largest, the worst last.

    `labels` are classes [N], or 1 for each class of a sample [N, classes]; `doubt`, [N, classes] or [N, 1], is smaller
    for more confidence in that class, NaN the least confident. Of more than 30 classes those of the lowest `f1`.
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

    `positive` is bool [N], `probability` [N] that of the positive class; "predicted" are the samples at or above a
    threshold, "false_alarms" the share of the negatives there.
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
