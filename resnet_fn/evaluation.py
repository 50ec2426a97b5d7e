"""Exact evaluation: every sample scored once, the same figures for any number of workers and any batch size."""

import dataclasses
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor, nn

from resnet_fn import runtime
from resnet_fn.config import closest
from resnet_fn.data.load import load_dataset
from resnet_fn.data.pipeline import Shard, eval_batches
from resnet_fn.data.scan import check_files
from resnet_fn.data.sources import DataSet, check_labels
from resnet_fn.distributed import Workers, join, sum_over_ranks
from resnet_fn.step import EvalStep, make_eval_step
from resnet_fn.trained import FlipAverage, Trained, load_trained

# The net computes this many samples at a time, whatever the batch size and the number of workers: the kernels of a
# matrix product differ with its shape, and so would the last bits of the logits (measured on CPU: [N, 512] by
# [512, 1000] in blocks of 16 … 480 rows never gives the bits of 960 rows; with one shape, neither a sample's place
# in the block nor the number of threads changes them).
BLOCK = 64
TOP = 5
TTA = ("none", "flip")


class Scores(NamedTuple):
    """Per sample of the split, in its order; each [N].

    Attributes:
        loss: float32, cross-entropy without smoothing.
        prediction: int32, the likeliest class.
        rank: int32, the label's place among the logits: 0 is right, below 5 among the first five.
        top: float32 [N, 2, k], the k = min(5, classes) likeliest classes and their probabilities (all 0 where a logit
            is not finite); None where the evaluation step gives no logits.
    """

    loss: np.ndarray
    prediction: np.ndarray
    rank: np.ndarray
    top: np.ndarray | None = None


def score(
    eval_step: EvalStep, dataset: DataSet, image_size: int, batch_size: int, workers: Workers = Workers()
) -> Scores:
    """Score every sample of the test split once, sharing the work among the ranks; all ranks get all scores.

    Each rank writes its samples' scores into a row of its own over the whole split; the sum over the ranks is then
    exact, since all but one addend are zero. No mean of means, no padding that counts.

    Raises:
        RuntimeError: a sample was scored twice or not at all.
    """
    split = dataset.test
    most = -(-len(split) // workers.size)
    batches = -(-most // batch_size)
    batch_size = -(-most // batches)  # equal batches: as few filled places as can be
    batch_size = -(-batch_size // BLOCK) * BLOCK
    rows = np.zeros((len(split), 4), np.float32)
    waiter = runtime.ResultWaiter()
    top = np.zeros((len(split), 0), np.float32)
    for images, labels, indices in eval_batches(
        split, dataset, image_size, batch_size, Shard(workers.rank, workers.size)
    ):
        for start in range(0, batch_size, BLOCK):
            places = indices[start : start + BLOCK]
            real = places >= 0
            result = eval_step(Tensor(images[start : start + BLOCK]), Tensor(labels[start : start + BLOCK]))
            values = waiter.fetch([value for value in result if value is not None], time.perf_counter())
            rows[places[real], :3] = np.stack(values[:3], 1)[real]
            rows[places[real], 3] += 1
            if result.logits is not None:
                found = top_classes(values[3])
                top = top if top.shape[1] else np.zeros((len(split), found.shape[1]), np.float32)
                top[places[real]] = found[real]
    rows = sum_over_ranks(np.concatenate((rows, top), 1), workers)
    if not (rows[:, 3] == 1).all():
        raise RuntimeError(f"evaluation scored samples {np.flatnonzero(rows[:, 3] != 1)[:5]} not exactly once")
    kept = rows[:, 4:].reshape(len(split), 2, -1) if rows.shape[1] > 4 else None
    return Scores(rows[:, 0], rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32), kept)


def top_classes(logits: np.ndarray, most: int = TOP) -> np.ndarray:
    """The likeliest classes and their probabilities, float32 [n, 2k]: k classes, then k probabilities.

    Equal logits rank by class. The softmax is computed in float64; where a logit is not finite, probabilities are 0.

    Args:
        logits: [n, classes].
        most: k is this, or the number of classes where there are fewer.
    """
    exact = logits.astype(np.float64)
    finite = np.isfinite(exact).all(1, keepdims=True)
    exact = np.where(finite, exact, 0.0)
    exponentials = np.exp(exact - exact.max(1, keepdims=True))
    probabilities = np.where(finite, exponentials / exponentials.sum(1, keepdims=True), 0.0)
    order = np.argsort(-exact, axis=1, kind="stable")[:, :most]
    return np.concatenate((order, np.take_along_axis(probabilities, order, 1)), 1).astype(np.float32)


def summarise(scores: Scores) -> dict[str, Any]:
    """{"loss", "top1", "top5", "count"}: mean cross-entropy and fractions of 1, summed in sample order in float64."""
    count = len(scores.loss)
    return {
        "loss": float(scores.loss.astype(np.float64).sum() / count),
        "top1": float((scores.rank < 1).sum() / count),
        "top5": float((scores.rank < 5).sum() / count),
        "count": count,
    }


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A checkpoint scored on its test set: all that a report needs.

    Attributes:
        trained: the net and where it came from.
        dataset: the data set whose test split was scored.
        scores: per sample, with the likeliest classes.
        options: what was asked for beside the checkpoint: "which", "tta", "ema", "image_size".
        workers: this process's place; all hold the same scores.
    """

    trained: Trained
    dataset: DataSet
    scores: Scores
    options: dict[str, Any]
    workers: Workers


def evaluate(checkpoint: str | Path, which: str = "last", **options: Any) -> dict[str, Any]:
    """Evaluate a checkpoint on its test set.

    Args:
        checkpoint, which, options: see `evaluate_in_detail`.

    Returns:
        {"loss", "top1", "top5", "count"}, fractions of 1; the same on every rank.
    """
    return summarise(evaluate_in_detail(checkpoint, which, **options).scores)


def evaluate_in_detail(
    checkpoint: str | Path,
    which: str = "last",
    *,
    batch_size: int = 256,
    device: str = "CPU",
    threads: int = 0,
    tta: str = "none",
    ema: bool | None = None,
    image_size: int = 0,
    data_dir: str = "",
) -> Evaluation:
    """Score a checkpoint's test set sample by sample. Net, classes and preprocessing are the checkpoint's own.

    Args:
        checkpoint: a run folder or a checkpoint folder.
        which: of a run folder, the "last" or the "best" checkpoint.
        batch_size: samples read at a time, per worker; it does not change the result.
        device, threads: see `RunOptions`.
        tta: "flip" averages the logits of each image and its mirror image.
        ema: score the averaged weights; False: the weights themselves; None: averaged ones where there are any.
        image_size: height and width that the net sees; 0 for the recipe's own.
        data_dir: where the data set lies; "": where it lay in training.

    Raises:
        CheckpointError: no intact checkpoint there, or it does not fit its own recipe.
        ValueError: a value that cannot be, naming the fix.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: {batch_size} is too small; give 1 or more")
    if image_size < 0:
        raise ValueError(f"image_size: {image_size} is negative; give pixels, or 0 for the recipe's own")
    if tta not in TTA:
        raise ValueError(f"tta: {tta!r} is unknown; {closest(tta, TTA)}")
    runtime.start(device, threads)
    workers = join(device)
    trained = load_trained(checkpoint, which, ema=ema, image_size=image_size)
    dataset = load_test_set(trained, data_dir, workers)
    net: nn.Cell = FlipAverage(trained.net) if tta == "flip" else trained.net
    size = trained.recipe.evaluation_size
    scores = score(make_eval_step(net, with_logits=True), dataset, size, batch_size, workers)
    options = {"which": which, "tta": tta, "ema": trained.averaged, "image_size": size}
    return Evaluation(trained, dataset, scores, options, workers)


def load_test_set(trained: Trained, data_dir: str = "", workers: Workers = Workers()) -> DataSet:
    """The data set that a checkpoint was trained on, if it still is the same one.

    Args:
        trained: see `load_trained`.
        data_dir: where the set lies; "": where it lay in training.
        workers: they share the check of image files.

    Raises:
        ValueError: its classes have changed, a label is outside them, or a file is bad.
    """
    recipe, run = trained.recipe, trained.checkpoint.path.parent.parent
    dataset = load_dataset(recipe, data_dir or trained.input.get("data_dir", ""), workers=workers.size)
    dataset, _ = check_files(dataset, recipe.on_bad_sample, [run], workers, progress=False, halves=("test",))
    if tuple(dataset.classes) != trained.classes:
        raise ValueError(
            f"{trained.checkpoint.path}: was trained on other classes than the data set {trained.recipe.dataset} "
            "has now; give the checkpoint's own data set"
        )
    check_labels(dataset.test, len(dataset.classes), "test set")
    return dataset
