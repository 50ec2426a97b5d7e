"""`Task` evaluates predictions of one class for each image, or of several classes (multi-label),
with NumPy only.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.evaluation import metrics

TOP = 5
_MATRIX_UP_TO = 1000  # classes; the confusion matrix of 22,000 classes would be 5 GB of JSON


class Scores(NamedTuple):
    """The scores of N samples, in the order of the validation set."""

    loss: np.ndarray  # float32 [N], usually cross-entropy without smoothing
    prediction: np.ndarray  # int32 [N], the likeliest class
    # int32 [N], 0 if the prediction is right. One class an image: the number of classes that rank
    # before the label. Multi-label: the number of classes that are predicted wrongly.
    rank: np.ndarray
    # float32 [N, 2, k], the k ≤ 5 likeliest classes and their probabilities (0 if a logit is not
    # finite)
    top: np.ndarray | None = None  # None if the evaluation step returns no logits
    probabilities: np.ndarray | None = None  # float32 [N, classes]; None if they were not kept
    # float64 [classes], the average precisions; only for multi-label
    areas: np.ndarray | None = None

    @property
    def task(self) -> "Task":
        """Return the task of these scores, either `ONE_CLASS` or `ANY_CLASSES`."""
        return ONE_CLASS if self.areas is None else ANY_CLASSES

    @property
    def every(self) -> np.ndarray:
        """Return `probabilities`, which must not be None."""
        assert self.probabilities is not None
        return self.probabilities


class Task:
    """Evaluates nets that predict one class for each image."""

    metric, title = "top1", "top-1"  # the main metric's name in events, and in texts
    needs_logits = False  # whether scoring needs all logits
    every_class = False  # whether averages count classes that never occur
    output = "logits"  # the meaning of an exported net's output
    wrong_by = "rank"  # the name of `Scores.rank` in the report

    def positive(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Return bool [N, classes], which is True for the true classes of each sample."""
        return labels[:, None] == np.arange(classes)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Convert logits [n, classes] to float64 probabilities, which are 0 if a logit of the row
        is not finite.
        """
        finite = np.isfinite(logits).all(1, keepdims=True)
        return np.where(
            finite, self._probabilities(np.where(finite, logits.astype(np.float64), 0.0)), 0.0
        )

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        return exponentials / exponentials.sum(1, keepdims=True)

    def top_classes(self, logits: np.ndarray, limit: int = TOP) -> np.ndarray:
        """Return float32 [n, 2k] with the k ≤ `limit` likeliest classes of each row, and then their
        k probabilities.
        """
        finite = np.isfinite(logits).all(1, keepdims=True)
        order = np.argsort(-np.where(finite, logits, 0.0), axis=1, kind="stable")[:, :limit]
        return np.concatenate(
            (order, np.take_along_axis(self.probabilities(logits), order, 1)), 1
        ).astype(np.float32)

    def complete(self, scores: Scores, labels: np.ndarray) -> Scores:
        """For a multi-label task, compute `areas` and `rank` from all samples.

        Otherwise, return `scores` unchanged.
        """
        return scores

    def summarise(self, scores: Scores) -> dict[str, float]:
        """Return the metrics of this task without the loss, as fractions of 1."""
        return {f"top{k}": float((scores.rank < k).mean()) for k in (1, TOP)}

    def by_class(self, scores: Scores, labels: np.ndarray, classes: int) -> dict[str, np.ndarray]:
        """Return precision, recall and F1 of each class (see `metrics.class_scores`)."""
        right = labels[labels == scores.prediction]
        return metrics.class_scores(
            *(np.bincount(x, minlength=classes) for x in (right, labels, scores.prediction))
        )

    def predicted(self, scores: Scores, index: int) -> np.ndarray:
        """Return the predicted classes of sample `index` in ascending order."""
        return scores.prediction[index : index + 1]

    def doubt(self, scores: Scores) -> np.ndarray:
        """Return how unsure the net is of the true class, [N, 1], or (multi-label) of each class,
        [N, classes].
        """
        return scores.loss[:, None]

    def of_class(self, scores: Scores, index: int, label: int) -> tuple[float, bool]:
        """Return the probability of `label`, a true class of the sample, and whether the net
        predicts this class.
        """
        return float(np.exp(-np.float64(scores.loss[index]))), bool(scores.rank[index] < 1)

    def mistakes(
        self, scores: Scores, labels: np.ndarray, limit: int
    ) -> list[tuple[int, int, float]]:
        """Return the most confident mistakes as (sample, wrongly predicted or missed class,
        confidence).
        """
        confidence = _confidence(scores)
        indices = metrics.confident_mistakes(confidence, scores.rank < 1, limit).tolist()
        return [
            (index, int(scores.prediction[index]), float(confidence[index])) for index in indices
        ]

    def report(self, scores: Scores, labels: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
        """Return report entries that depend on the task.

        Entries that do not apply to the scores are empty or None.
        """
        small = len(classes) <= _MATRIX_UP_TO
        pairs = metrics.confused_pairs(labels, scores.prediction)[: 20 if small else None]
        matrix = None
        if small:
            matrix = metrics.confusion_matrix(labels, scores.prediction, len(classes)).tolist()
        return {
            "calibration": metrics.calibration(_confidence(scores), scores.rank < 1),
            "confusion": matrix,
            "confused": [
                {"label": classes[a], "prediction": classes[b], "count": count}
                for a, b, count in pairs
            ],
        }


class _AnyClasses(Task):
    """Evaluates multi-label nets, which predict any number of classes for each image."""

    metric = "map"
    title = "mAP"
    needs_logits = every_class = True
    output = "logits; the sigmoid of a logit is the probability of the class"
    wrong_by = "wrong"

    def positive(self, labels: np.ndarray, classes: int) -> np.ndarray:
        return labels > 0

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        return np.exp(-np.logaddexp(0, -logits))  # exact for large positive and negative logits

    def complete(self, scores: Scores, labels: np.ndarray) -> Scores:
        wrong = ((scores.every >= metrics.SAID_FROM) != (labels > 0)).sum(1, dtype=np.int32)
        return scores._replace(
            rank=np.maximum(scores.rank, wrong),
            areas=metrics.average_precisions(labels, scores.every),
        )

    def summarise(self, scores: Scores) -> dict[str, float]:
        assert scores.areas is not None
        return {"map": metrics.mean_average_precision(scores.areas)}

    def by_class(self, scores: Scores, labels: np.ndarray, classes: int) -> dict[str, np.ndarray]:
        positive = labels > 0
        predicted = scores.every >= metrics.SAID_FROM
        return metrics.class_scores(
            (positive & predicted).sum(0), positive.sum(0), predicted.sum(0)
        )

    def predicted(self, scores: Scores, index: int) -> np.ndarray:
        return np.flatnonzero(scores.every[index] >= metrics.SAID_FROM)

    def doubt(self, scores: Scores) -> np.ndarray:
        return -scores.every

    def of_class(self, scores: Scores, index: int, label: int) -> tuple[float, bool]:
        probability = float(scores.every[index, label])
        return probability, probability >= metrics.SAID_FROM

    def mistakes(
        self, scores: Scores, labels: np.ndarray, limit: int
    ) -> list[tuple[int, int, float]]:
        # The loss, a mean over classes, is not finite if one logit is not; the confidence is then
        # 0.
        finite = np.isfinite(scores.loss)[:, None]
        positive = labels > 0
        confidence = np.where(positive, 1 - scores.every, scores.every).astype(np.float64) * finite
        indices = metrics.confident_mistakes(
            confidence, positive == (scores.every >= metrics.SAID_FROM), limit
        ).tolist()
        return [
            (*divmod(index, labels.shape[1]), float(confidence.flat[index])) for index in indices
        ]

    def report(self, scores: Scores, labels: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
        return {"calibration": None, "confusion": None, "confused": []}


ONE_CLASS = Task()
ANY_CLASSES = _AnyClasses()


def task_of(multi_label: object) -> Task:
    """Return the task for the setting `multi_label` of a recipe."""
    return ANY_CLASSES if multi_label else ONE_CLASS


def _confidence(scores: Scores) -> np.ndarray:
    assert scores.top is not None
    return scores.top[:, 1, 0]


def summarise(scores: Scores) -> dict[str, Any]:
    """Compute the metrics of an evaluation.

    Args:
        scores: the result of `score`.

    Returns:
        A dict with "loss", "top1", "top5" and "count". For a multi-label net, "map" (mean average
        precision) replaces "top1" and "top5". "top1", "top5" and "map" are in 0..1.
    """
    return {
        "loss": float(scores.loss.astype(np.float64).mean()),
        **scores.task.summarise(scores),
        "count": len(scores.loss),
    }


def all_metrics(scores: Scores, labels: np.ndarray, classes: int) -> dict[str, Any]:
    """Return the results of `summarise` with "macro_f1", or only loss and count if `classes` is
    0.
    """
    results = summarise(scores)
    if not classes:  # targets that `resnet_fn.fit` was given are no classes
        return {name: results[name] for name in ("loss", "count")}
    by_class = scores.task.by_class(scores, labels, classes)
    averages = metrics.averages(by_class, scores.task.every_class)
    return {**results, "macro_f1": averages["macro"]["f1"]}


def describe_scores(results: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Return the results of `summarise` as text, without top-5 if there are at most five
    classes.
    """
    titles = {"top1": "top-1", "map": "mAP"} | ({"top5": "top-5"} if len(classes) > TOP else {})
    rates = [f"{title} {results[name]:.2%}" for name, title in titles.items() if name in results]
    return ", ".join((f"loss {results['loss']:.4f}", *rates))
