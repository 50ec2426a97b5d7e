"""What a report shows class by class: precision-recall curves, and a gallery."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from resnet_fn.evaluation.metrics import precision_recall

_POINTS = 101  # of a curve
_CURVES_UP_TO = 100  # classes
_SHOWN, _GALLERY_UP_TO = 3, 30  # images of each end, classes


def precision_recall_curves(positive: np.ndarray, probabilities: np.ndarray) -> list[dict[str, Any]]:
    """For each class its curve "this class or not" over the probability of the class.

    Args:
        positive: bool [N, classes], which samples are of which class.
        probabilities: float32 [N, classes].

    Returns:
        "recall" and "precision" at up to 101 of the thresholds, the highest first; nothing for a class without samples,
        nor for any of more than 100 classes.
    """
    curves: list[dict[str, Any]] = []
    for index in range(probabilities.shape[1]):
        if probabilities.shape[1] > _CURVES_UP_TO or not positive[:, index].any():
            curves.append({"recall": [], "precision": []})
            continue
        precision, recall = precision_recall(positive[:, index], probabilities[:, index])
        places = np.unique(np.linspace(0, len(recall) - 1, _POINTS).astype(int))
        curves.append(
            {
                "recall": [round(value, 6) for value in recall[places].tolist()],
                "precision": [round(value, 6) for value in precision[places].tolist()],
            }
        )
    return curves


def gallery(positive: np.ndarray, doubt: np.ndarray, f1: Sequence[float]) -> dict[int, list[int]]:
    """For each class the samples that the net is surest of, and those that it would least call so.

    Args:
        positive: bool [N, classes], which samples are of which class.
        doubt: [N, classes], or [N, 1]: the smaller, the surer is the net of that class; NaN is the least sure.
        f1: of each class; of more than 30 the weakest are shown.

    Returns:
        Class → places of samples: up to 3 of the smallest doubt, then up to 3 of the largest, the worst last.
    """
    there = np.flatnonzero(positive.any(0))
    doubt = np.broadcast_to(doubt, positive.shape)
    weakest = there[np.argsort(np.array(f1)[there], kind="stable")][:_GALLERY_UP_TO]
    shown = {}
    for index in sorted(weakest.tolist()):
        samples = np.flatnonzero(positive[:, index])
        samples = samples[np.argsort(doubt[samples, index], kind="stable")]
        worst = max(_SHOWN, len(samples) - _SHOWN)
        shown[index] = [*samples[:_SHOWN].tolist(), *samples[worst:].tolist()]
    return shown
