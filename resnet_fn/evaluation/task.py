"""What an image is labelled with: one class, or any number of them. All that differs between the two stands here.

NumPy alone: commands ask for a task's words before they load MindSpore.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from resnet_fn.evaluation import metrics

if TYPE_CHECKING:
    from mindspore import Tensor

TOP = 5


class Scores(NamedTuple):
    """Per sample of the split, in its order; each [N].

    Attributes:
        loss: float32, cross-entropy without smoothing; see `EvalResult`.
        prediction: int32, the likeliest class.
        rank: int32, 0 where the sample is right. One class: the label's place among the logits, below 5 among the first
            five. Any number: how many of all classes are said wrongly, yes from a probability of SAID_FROM on.
        top: float32 [N, 2, k], the k = min(5, classes) likeliest classes and their probabilities (all 0 where a logit
            is not finite); None where the evaluation step gives no logits.
        probabilities: float32 [N, classes], of all classes; None where they were not asked for.
        areas: float64 [classes], for any number of classes: see `average_precisions`; else None.
    """

    loss: np.ndarray
    prediction: np.ndarray
    rank: np.ndarray
    top: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    areas: np.ndarray | None = None

    @property
    def task(self) -> "Task":
        """What its samples are labelled with."""
        return ONE_CLASS if self.areas is None else ANY_CLASSES

    @property
    def every(self) -> np.ndarray:
        """`probabilities`, which any number of classes always has."""
        assert self.probabilities is not None
        return self.probabilities


class Task:
    """One class an image: how labels are compared with logits, and what results are called.

    Attributes:
        metric, title: the result that runs are compared by, in events and in words.
        needs_logits: whether scores are made of all logits.
        every_class: whether averages count classes that never occur.
        output: what a file with the net says of its output.
        wrong_by: what `Scores.rank` counts.
    """

    metric, title = "top1", "top-1"
    needs_logits = every_class = False
    output = "logits"
    wrong_by = "rank"

    @property
    def accuracy(self) -> "Callable[[Tensor, Tensor], Tensor]":
        """The training step's share of right answers, of logits and labels."""
        from resnet_fn.update.step import accuracy

        return accuracy

    def positive(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Which samples are of which class, bool [N, classes]."""
        return labels[:, None] == np.arange(classes)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities of logits [n, classes], float64; all 0 in a row where one is not finite."""
        finite = np.isfinite(logits).all(1, keepdims=True)
        return np.where(finite, self._probabilities(np.where(finite, logits.astype(np.float64), 0.0)), 0.0)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        return exponentials / exponentials.sum(1, keepdims=True)

    def top_classes(self, logits: np.ndarray, limit: int = TOP) -> np.ndarray:
        """The k = min(limit, classes) likeliest classes of logits [n, classes], then their probabilities.

        Float32 [n, 2k]. Equal logits rank by class; where one is not finite, all are equal.
        """
        finite = np.isfinite(logits).all(1, keepdims=True)
        order = np.argsort(-np.where(finite, logits.astype(np.float64), 0.0), axis=1, kind="stable")[:, :limit]
        return np.concatenate((order, np.take_along_axis(self.probabilities(logits), order, 1)), 1).astype(np.float32)

    def complete(self, scores: Scores, labels: np.ndarray) -> Scores:
        """Scores of a whole split, with what only all logits tell."""
        return scores

    def summarise(self, scores: Scores) -> dict[str, float]:
        """The results beside the loss, fractions of 1."""
        return {f"top{k}": float((scores.rank < k).sum() / len(scores.rank)) for k in (1, TOP)}

    def describe(self, results: Mapping[str, Any], classes: int, half: str) -> str:
        """The same in words."""
        top5 = f", {half}top-5 {results['top5']:.2%}" if classes > TOP else ""
        return f"{half}top-1 {results['top1']:.2%}{top5}"

    def by_class(self, scores: Scores, labels: np.ndarray, classes: int) -> dict[str, np.ndarray]:
        """Precision, recall, F1 and more of each class: see `metrics.class_scores`."""
        return metrics.class_scores(metrics.confusion_matrix(labels, scores.prediction, classes))

    def averages(self, scores: Scores, labels: np.ndarray, classes: int) -> dict[str, dict[str, float]]:
        """The averages of `by_class` over the classes: see `metrics.averages`."""
        return metrics.averages(self.by_class(scores, labels, classes), self.every_class)

    def shown(self, classes: int, top: int, threshold: float) -> tuple[int, float]:
        """How many classes a prediction names at most, and from which probability on."""
        return top, 0.0

    def wrong_flags(self, top: int | None, threshold: float | None, doubt: bool) -> list[tuple[object, str]]:
        """Flags of `predict` that mean nothing here, as for `cli.refuse`."""
        return [(threshold, "--threshold: this net's images have one class; give --top instead")]

    def predicted(self, scores: Scores, index: int) -> np.ndarray:
        """The classes that a sample is taken for, ascending."""
        return scores.prediction[index : index + 1]

    def doubt(self, scores: Scores) -> np.ndarray:
        """[N, classes] or [N, 1]: the smaller, the surer is the net of that class."""
        return scores.loss[:, None]

    def of_class(self, scores: Scores, index: int, label: int) -> tuple[float, bool]:
        """The probability of a class that a sample has, and whether the net says so."""
        return float(np.exp(-np.float64(scores.loss[index]))), bool(scores.rank[index] < 1)

    def mistakes(self, scores: Scores, labels: np.ndarray, limit: int) -> list[tuple[int, int, float]]:
        """The most confident mistakes: sample, the class that it is said to be, or not to be, and the confidence."""
        confidence = _confidence(scores)
        places = metrics.confident_mistakes(confidence, scores.rank < 1, limit).tolist()
        return [(place, int(scores.prediction[place]), float(confidence[place])) for place in places]

    def report(self, scores: Scores, labels: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
        """A report's "thresholds", "calibration", "confusion" and "confused"; nothing where they mean nothing."""
        confusion = metrics.confusion_matrix(labels, scores.prediction, len(classes))
        of_two = len(classes) == 2 and scores.probabilities is not None
        pairs = metrics.confused_pairs(confusion, 20)
        return {
            "thresholds": metrics.threshold_table(labels == 1, scores.every[:, 1]) if of_two else [],
            "calibration": metrics.calibration(_confidence(scores), scores.rank < 1),
            "confusion": confusion.tolist(),
            "confused": [{"label": classes[a], "prediction": classes[b], "count": count} for a, b, count in pairs],
        }


class _AnyClasses(Task):
    """Any number of classes an image: what is otherwise."""

    metric, title = "map", "mAP"
    needs_logits = every_class = True
    output = "logits, of which each class's sigmoid is its probability"
    wrong_by = "wrong"

    @property
    def accuracy(self) -> "Callable[[Tensor, Tensor], Tensor]":
        from resnet_fn.update.step import accuracy_by_class

        return accuracy_by_class

    def positive(self, labels: np.ndarray, classes: int) -> np.ndarray:
        return labels > 0

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        return np.exp(-np.logaddexp(0, -logits))  # neither end loses digits

    def complete(self, scores: Scores, labels: np.ndarray) -> Scores:
        wrong = ((scores.every >= metrics.SAID_FROM) != (labels > 0)).sum(1, dtype=np.int32)
        areas = metrics.average_precisions(labels, scores.every)
        return scores._replace(rank=np.maximum(scores.rank, wrong), areas=areas)

    def summarise(self, scores: Scores) -> dict[str, float]:
        assert scores.areas is not None
        return {"map": metrics.mean_average_precision(scores.areas)}

    def describe(self, results: Mapping[str, Any], classes: int, half: str) -> str:
        return f"{half}mAP {results['map']:.2%}"

    def by_class(self, scores: Scores, labels: np.ndarray, classes: int) -> dict[str, np.ndarray]:
        return metrics.multi_label_scores(labels, scores.every)

    def shown(self, classes: int, top: int, threshold: float) -> tuple[int, float]:
        return classes, threshold

    def wrong_flags(self, top: int | None, threshold: float | None, doubt: bool) -> list[tuple[object, str]]:
        return [
            (top, "--top: this net's images have any number of classes; give --threshold instead"),
            (doubt, "--sort doubt is of the likeliest class alone; leave it out"),
        ]

    def predicted(self, scores: Scores, index: int) -> np.ndarray:
        return np.flatnonzero(scores.every[index] >= metrics.SAID_FROM)

    def doubt(self, scores: Scores) -> np.ndarray:
        return -scores.every

    def of_class(self, scores: Scores, index: int, label: int) -> tuple[float, bool]:
        own = float(scores.every[index, label])
        return own, own >= metrics.SAID_FROM

    def mistakes(self, scores: Scores, labels: np.ndarray, limit: int) -> list[tuple[int, int, float]]:
        finite = np.isfinite(scores.loss)  # the mean over all classes: NaN or infinite if one logit is
        return metrics.wrong_statements(labels > 0, scores.every, finite, limit)

    def report(self, scores: Scores, labels: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
        return {"thresholds": [], "calibration": None, "confusion": None, "confused": []}


ONE_CLASS, ANY_CLASSES = Task(), _AnyClasses()


def task_of(multi_label: object) -> Task:
    """The task of a recipe, by its setting."""
    return ANY_CLASSES if multi_label else ONE_CLASS


def task_of_labels(labels: np.ndarray) -> Task:
    """The task of a split: its labels are int32 [N] of one class, float32 [N, classes] of any number."""
    return task_of(labels.ndim == 2)


def _confidence(scores: Scores) -> np.ndarray:
    """The probability of each sample's prediction, float32 [N]; 0 where a logit is not finite."""
    if scores.top is None:
        raise ValueError("report: the evaluation kept no probabilities; make its step with with_logits=True")
    return scores.top[:, 1, 0]


def summarise(scores: Scores) -> dict[str, Any]:
    """{"loss", "top1", "top5", "count"}: mean cross-entropy and fractions of 1, summed in sample order in float64.

    Where a sample has any number of classes {"loss", "map", "count"}: see `mean_average_precision`.
    """
    count = len(scores.loss)
    loss = float(scores.loss.astype(np.float64).sum() / count)
    return {"loss": loss, **scores.task.summarise(scores), "count": count}


def monitored(scores: Scores, labels: np.ndarray, classes: int) -> dict[str, Any]:
    """`summarise`, and "macro_f1": all that a recipe can monitor."""
    return {**summarise(scores), "macro_f1": scores.task.averages(scores, labels, classes)["macro"]["f1"]}


def describe(results: Mapping[str, Any], classes: Sequence[str], half: str = "") -> str:
    """What `summarise` gives, in words; top-5 only where there are more classes than five."""
    task = task_of("map" in results)
    return f"{half}loss {results['loss']:.4f}, {task.describe(results, len(classes), half)}"
