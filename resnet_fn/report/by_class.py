"""What a report shows class by class: precision-recall curves, and a gallery."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from resnet_fn.evaluation.metrics import average_precision, precision_recall

_POINTS = 101  # of a curve
_CURVES_UP_TO = 100  # classes
_SHOWN, _GALLERY_UP_TO = 3, 30  # images of each end, classes


def precision_recall_curves(labels: np.ndarray, probabilities: np.ndarray) -> list[dict[str, Any]]:
    """For each class its curve "this class or not" over the probability of the class.

    Args:
        labels: int [N].
        probabilities: float32 [N, classes].

    Returns:
        "average_precision", and "recall" and "precision" at up to 101 of the thresholds (none above 100 classes), the
        highest first. None and nothing for a class without samples.
    """
    curves: list[dict[str, Any]] = []
    for index in range(probabilities.shape[1]):
        positive = labels == index
        if not positive.any():
            curves.append({"average_precision": None, "recall": [], "precision": []})
            continue
        precision, recall = precision_recall(positive, probabilities[:, index])
        places = np.unique(np.linspace(0, len(recall) - 1, _POINTS).astype(int))
        if probabilities.shape[1] > _CURVES_UP_TO:
            places = places[:0]
        curves.append(
            {
                "average_precision": average_precision(precision, recall),
                "recall": [round(value, 6) for value in recall[places].tolist()],
                "precision": [round(value, 6) for value in precision[places].tolist()],
            }
        )
    return curves


def gallery(labels: np.ndarray, loss: np.ndarray, f1: Sequence[float]) -> dict[int, list[int]]:
    """For each class the samples that the net is surest of, and those that it would least call so.

    Args:
        labels: int [N].
        loss: [N], cross-entropy: the smaller, the surer.
        f1: of each class; of more than 30 the weakest are shown.

    Returns:
        Class → places of samples: up to 3 of the smallest loss, then up to 3 of the largest, the worst last.
    """
    there = np.flatnonzero(np.bincount(labels, minlength=len(f1)))
    weakest = there[np.argsort(np.array(f1)[there], kind="stable")][:_GALLERY_UP_TO]
    shown = {}
    for index in sorted(weakest.tolist()):
        samples = np.flatnonzero(labels == index)
        samples = samples[np.argsort(loss[samples], kind="stable")]
        worst = max(_SHOWN, len(samples) - _SHOWN)
        shown[index] = [*samples[:_SHOWN].tolist(), *samples[worst:].tolist()]
    return shown
