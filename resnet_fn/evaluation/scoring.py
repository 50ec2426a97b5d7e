"""Exact scores: every sample of a split once, the same bits for any number of workers and any batch size."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor

from resnet_fn.data.dataset import DataSet, eval_batches
from resnet_fn.evaluation.metrics import (
    SAID_FROM,
    average_precisions,
    class_scores,
    confusion_matrix,
    mean_average_precision,
    multi_label_scores,
)
from resnet_fn.runtime.signals import raise_if_stopped
from resnet_fn.runtime.workers import Workers, sum_over_ranks
from resnet_fn.update.eval_step import EvalStep

# The net computes this many samples at a time, and each always at the same place among them, whatever the batch size
# and the number of workers: the kernels of a matrix product differ with its shape, and so would the last bits of the
# logits (measured on CPU: [N, 512] by [512, 1000] in blocks of 16 … 480 rows never gives the bits of 960 rows; with 2
# or 3 classes the bits depend on the row too; the number of threads changes nothing).
BLOCK = 64
TOP = 5


class Scores(NamedTuple):
    """Per sample of the split, in its order; each [N].

    Attributes:
        loss: float32, cross-entropy without smoothing; see `EvalResult`.
        prediction: int32, the likeliest class.
        rank: int32, the label's place among the logits: 0 is right, below 5 among the first five. Where a sample has
            any number of classes, how many of all are said wrongly, yes from a probability of SAID_FROM on.
        top: float32 [N, 2, k], the k = min(5, classes) likeliest classes and their probabilities (all 0 where a logit
            is not finite); None where the evaluation step gives no logits.
        probabilities: float32 [N, classes], of all classes; None where they were not asked for.
        areas: float64 [classes], where a sample has any number of classes: see `average_precisions`; else None.
    """

    loss: np.ndarray
    prediction: np.ndarray
    rank: np.ndarray
    top: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    areas: np.ndarray | None = None


def score(
    eval_step: EvalStep,
    dataset: DataSet,
    batch_size: int,
    workers: Workers = Workers(),
    asked: Callable[[], int] = lambda: 0,
    all_classes: bool = False,
) -> Scores:
    """Score every sample of the test split once, sharing the work among the ranks; all ranks get all scores.

    Each rank writes its samples' scores into a row of its own over the whole split; the sum over the ranks is then
    exact, since all but one addend are zero. No mean of means, no padding that counts.

    Args:
        asked: called before each batch and at the end, as often on every rank; the number of a signal to stop for, the
            same on every rank, or 0.
        all_classes: keep the probabilities of all classes too; the evaluation step gives logits. Where a sample has
            any number of classes it does, and they are kept: samples · classes float32 on every rank.

    Raises:
        StoppedError: `asked` gave a signal.
        RuntimeError: a sample was scored twice or not at all.
    """
    split = dataset.test
    several = split.labels.ndim == 2
    all_classes = all_classes or several
    share = -(-len(split) // (BLOCK * workers.size)) * BLOCK
    batches = -(-share // batch_size)
    batch_size = -(-share // batches)  # equal batches: as few filled places as can be
    batch_size = -(-batch_size // BLOCK) * BLOCK
    rows = np.zeros((len(split), 4), np.float32)
    top = np.zeros((len(split), 0), np.float32)
    every = np.zeros((len(split), len(dataset.classes) if all_classes else 0), np.float32)
    for images, labels, indices in eval_batches(split, dataset.input, batch_size, workers, BLOCK):
        raise_if_stopped(asked())
        for start in range(0, batch_size, BLOCK):
            places = indices[start : start + BLOCK]
            real = places >= 0
            result = eval_step(Tensor(images[start : start + BLOCK]), Tensor(labels[start : start + BLOCK]))
            values = [value.asnumpy() for value in result if value is not None]
            rows[places[real], :3] = np.stack(values[:3], 1)[real]
            rows[places[real], 3] += 1
            if result.logits is not None:
                found = top_classes(values[3], several=several)
                top = top if top.shape[1] else np.zeros((len(split), found.shape[1]), np.float32)
                top[places[real]] = found[real]
                if all_classes:
                    every[places[real]] = probabilities_of(values[3], several)[real]
    raise_if_stopped(asked())
    rows = sum_over_ranks(np.concatenate((rows, top), 1), workers)
    every = sum_over_ranks(every, workers) if all_classes else every
    if not (rows[:, 3] == 1).all():
        raise RuntimeError(f"evaluation scored samples {np.flatnonzero(rows[:, 3] != 1)[:5]} not exactly once")
    kept = rows[:, 4:].reshape(len(split), 2, -1) if rows.shape[1] > 4 else None
    rank, areas = rows[:, 2].astype(np.int32), None
    if several:
        areas = average_precisions(split.labels, every)
        rank = np.maximum(rank, ((every >= SAID_FROM) != (split.labels > 0)).sum(1, dtype=np.int32))
    return Scores(rows[:, 0], rows[:, 1].astype(np.int32), rank, kept, every if all_classes else None, areas)


def top_classes(logits: np.ndarray, limit: int = TOP, several: bool = False) -> np.ndarray:
    """The likeliest classes and their probabilities, float32 [n, 2k]: k classes, then k probabilities.

    Equal logits rank by class; where one is not finite, all are equal. Probabilities are those of `probabilities_of`.

    Args:
        logits: [n, classes].
        limit: k is this, or the number of classes where there are fewer.
    """
    probabilities = probabilities_of(logits, several)
    finite = np.isfinite(logits).all(1, keepdims=True)
    order = np.argsort(-np.where(finite, logits.astype(np.float64), 0.0), axis=1, kind="stable")[:, :limit]
    return np.concatenate((order, np.take_along_axis(probabilities, order, 1)), 1).astype(np.float32)


def probabilities_of(logits: np.ndarray, several: bool = False) -> np.ndarray:
    """The softmax of logits [n, classes], in float64; all 0 in a row where one is not finite.

    `several`: a sample has any number of classes, and each probability is a sigmoid of its own.
    """
    exact = logits.astype(np.float64)
    finite = np.isfinite(exact).all(1, keepdims=True)
    exact = np.where(finite, exact, 0.0)
    if several:
        return np.where(finite, np.exp(-np.logaddexp(0, -exact)), 0.0)  # neither end loses digits
    exponentials = np.exp(exact - exact.max(1, keepdims=True))
    return np.where(finite, exponentials / exponentials.sum(1, keepdims=True), 0.0)


def summarise(scores: Scores) -> dict[str, Any]:
    """{"loss", "top1", "top5", "count"}: mean cross-entropy and fractions of 1, summed in sample order in float64.

    Where a sample has any number of classes {"loss", "map", "count"}: the mean average precision of the classes that
    have samples.
    """
    count = len(scores.loss)
    loss = float(scores.loss.astype(np.float64).sum() / count)
    if scores.areas is not None:
        return {"loss": loss, "map": mean_average_precision(scores.areas), "count": count}
    return {
        "loss": loss,
        "top1": float((scores.rank < 1).sum() / count),
        "top5": float((scores.rank < 5).sum() / count),
        "count": count,
    }


def scores_by_class(scores: Scores, labels: np.ndarray, classes: int) -> dict[str, np.ndarray]:
    """Precision, recall, F1 and more of each class: see `class_scores`, `multi_label_scores`."""
    if scores.areas is None:
        return class_scores(confusion_matrix(labels, scores.prediction, classes))
    assert scores.probabilities is not None  # see `score`
    return multi_label_scores(labels, scores.probabilities)


def describe(metrics: Mapping[str, Any], classes: Sequence[str], half: str = "") -> str:
    """What `summarise` gives, in words; top-5 only where there are more classes than five."""
    if "map" in metrics:
        return f"{half}loss {metrics['loss']:.4f}, {half}mAP {metrics['map']:.2%}"
    top5 = f", {half}top-5 {metrics['top5']:.2%}" if len(classes) > TOP else ""
    return f"{half}loss {metrics['loss']:.4f}, {half}top-1 {metrics['top1']:.2%}{top5}"
