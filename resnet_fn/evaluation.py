"""Exact evaluation: every sample scored once, the same figures for any number of workers and any batch size."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor

from resnet_fn import runtime
from resnet_fn.checkpoint import assign_all
from resnet_fn.config import Recipe, recipe_from_dict
from resnet_fn.data.load import load_dataset
from resnet_fn.data.pipeline import Shard, eval_batches
from resnet_fn.data.scan import check_files
from resnet_fn.data.sources import DataSet, check_labels
from resnet_fn.distributed import Workers, join, sum_over_ranks
from resnet_fn.ema import evaluated_weights
from resnet_fn.job import build_net
from resnet_fn.migrate.weights import load_weights
from resnet_fn.run_folder import find_checkpoint
from resnet_fn.step import EvalStep, make_eval_step


class Scores(NamedTuple):
    """Per sample of the split, in its order: loss float32, prediction and rank of the label int32; each [N]."""

    loss: np.ndarray
    prediction: np.ndarray
    rank: np.ndarray


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
    rows = np.zeros((4, len(split)), np.float32)
    for images, labels, indices in eval_batches(
        split, dataset, image_size, batch_size, Shard(workers.rank, workers.size)
    ):
        result = eval_step(Tensor(images), Tensor(labels))
        real = indices >= 0
        for row, values in enumerate(result):
            rows[row, indices[real]] = values.asnumpy()[real]
        rows[3, indices[real]] += 1
    rows = sum_over_ranks(rows, workers)
    if not (rows[3] == 1).all():
        raise RuntimeError(f"evaluation scored samples {np.flatnonzero(rows[3] != 1)[:5]} not exactly once")
    return Scores(rows[0], rows[1].astype(np.int32), rows[2].astype(np.int32))


def summarise(scores: Scores) -> dict[str, Any]:
    """{"loss", "top1", "top5", "count"}: mean cross-entropy and fractions of 1, summed in sample order in float64."""
    count = len(scores.loss)
    return {
        "loss": float(scores.loss.astype(np.float64).sum() / count),
        "top1": float((scores.rank < 1).sum() / count),
        "top5": float((scores.rank < 5).sum() / count),
        "count": count,
    }


def evaluate_weights(
    file: str | Path,
    recipe: Recipe,
    *,
    batch_size: int = 256,
    device: str = "CPU",
    threads: int = 0,
    data_dir: str = "",
) -> dict[str, Any]:
    """Evaluate a bare weight file, of any project (`read_weights`), on a recipe's test set.

    A weight file knows neither its data nor their preprocessing: both, and the net, are the recipe's.

    Args:
        file: the weights; the last layer has the data set's classes.
        recipe: of which net, data set and evaluation size count.
        batch_size, device, threads, data_dir: as in `evaluate`.

    Returns, raises: as `evaluate`; WeightsError where the file does not fit the net.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: {batch_size} is too small; give 1 or more")
    runtime.start(device, threads)
    workers = join(device)
    dataset = load_dataset(recipe, data_dir, workers=workers.size)
    dataset, _ = check_files(dataset, recipe.on_bad_sample, [], workers, progress=False, halves=("test",))
    check_labels(dataset.test, len(dataset.classes), "test set")
    net = build_net(recipe, dataset)
    load_weights(net, file)
    return summarise(score(make_eval_step(net), dataset, recipe.evaluation_size, batch_size, workers))


def evaluate(
    checkpoint: str | Path,
    which: str = "last",
    *,
    batch_size: int = 256,
    device: str = "CPU",
    threads: int = 0,
    data_dir: str = "",
) -> dict[str, Any]:
    """Evaluate a checkpoint on its test set. Net, classes and preprocessing are the checkpoint's own.

    Args:
        checkpoint: a run folder or a checkpoint folder.
        which: of a run folder, the "last" or the "best" checkpoint.
        batch_size: samples at a time, per worker; it does not change the result.
        device, threads: see `RunOptions`.
        data_dir: where the data set lies; "": where it lay in training.

    Returns:
        {"loss", "top1", "top5", "count"}, fractions of 1; the same on every rank.

    Raises:
        CheckpointError: no intact checkpoint there, or it does not fit its own recipe.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: {batch_size} is too small; give 1 or more")
    runtime.start(device, threads)
    workers = join(device)
    found = find_checkpoint(Path(checkpoint), which)
    recipe = recipe_from_dict(found.state["recipe"])
    dataset = load_dataset(recipe, data_dir or found.state["dataset"].get("data_dir", ""), workers=workers.size)
    run = found.path.parent.parent
    dataset, _ = check_files(dataset, recipe.on_bad_sample, [run], workers, progress=False, halves=("test",))
    if list(dataset.classes) != found.state["dataset"]["classes"]:
        raise ValueError(f"{found.path}: was trained on other classes than the data set {recipe.dataset} has now")
    check_labels(dataset.test, len(dataset.classes), "test set")
    net = build_net(recipe, dataset)
    assign_all(tuple(net.get_parameters()), evaluated_weights(found.weights, found.training), found.path)
    return summarise(score(make_eval_step(net), dataset, recipe.evaluation_size, batch_size, workers))
