"""These functions evaluate a checkpoint, or a weight file with a recipe, on a validation set."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from mindspore import nn

from resnet_fn.config.hints import closest
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.agreement import check_settings, check_state
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.input_spec import renamed
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.evaluation.loaded_net import FlipAverage, LoadedNet, load_run, load_weight_file, open_trained_dataset
from resnet_fn.evaluation.scoring import score
from resnet_fn.evaluation.task import Scores, all_metrics, task_of
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers
from resnet_fn.weights.load import other_classes

TTA = ("none", "flip")
_ALL_UP_TO = 20_000_000  # samples · classes (80 MB); above, only probabilities of the likeliest classes are kept


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Holds the scores of a checkpoint on its validation set, and all else that a report needs."""

    trained: LoadedNet  # the net and its checkpoint
    dataset: DataSet  # the data set; its split `test`, the validation set, was scored
    scores: Scores  # scores of each sample, including the likeliest classes; the same on every rank
    options: dict[str, Any]  # "which", "tta"; "ema": whether averaged weights were scored; "image_size" used
    workers: Workers  # this process's rank and the number of workers


def evaluate(checkpoint: str | Path, which: str = "last", **options: Any) -> dict[str, Any]:
    """Evaluate a checkpoint on its validation set; arguments as in `evaluate_in_detail`.

    Returns:
        {"loss", "top1", "top5", "count", "macro_f1"}, rates as fractions of 1, the same on every rank: `all_metrics`.
    """
    detail = evaluate_in_detail(checkpoint, which, **options)
    return all_metrics(detail.scores, detail.dataset.test.labels, len(detail.dataset.classes))


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
    val_list: str = "",
    allow_non_finite: bool = False,
) -> Evaluation:
    """Score a checkpoint's validation set sample by sample, with the checkpoint's net, classes and preprocessing.

    Args:
        checkpoint, which, ema, image_size, device, threads, allow_non_finite: see `load_run`.
        batch_size: samples read at a time, per worker; it does not change the result.
        tta: "flip" averages the logits of each image and its mirror image.
        data_dir: the data set's folder; "": that of training.
        val_list: score the images of this list, see `load_lists`; "": those of training's validation set.

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
    workers = process.start(device, threads)
    check_settings(workers, which=which, tta=tta, ema=ema, image_size=image_size, batch_size=batch_size)
    trained = load_run(checkpoint, which, ema=ema, image_size=image_size, allow_non_finite=allow_non_finite)
    dataset = open_trained_dataset(trained, data_dir, workers, val_list=val_list)
    check_state(workers, trained.net.get_parameters())
    net: nn.Cell = FlipAverage(trained.net) if tta == "flip" else trained.net
    step = make_eval_step(net, with_logits=True)
    scores = score(step, dataset, batch_size, workers, all_classes=keeps_all_classes(dataset))
    options = {"which": which, "tta": tta, "ema": trained.averaged, "image_size": trained.input.image_size}
    return Evaluation(trained, dataset, scores, options, workers)


def keeps_all_classes(dataset: DataSet) -> bool:
    """Return whether the set is small enough that a report keeps the probabilities of all classes."""
    return len(dataset.test) * len(dataset.classes) <= _ALL_UP_TO


def evaluate_weights(
    file: str | Path,
    recipe: Recipe,
    which: str = "last",
    *,
    batch_size: int = 256,
    device: str = "CPU",
    threads: int = 0,
    data_dir: str = "",
    options: RunOptions = RunOptions(),
    allow_non_finite: bool = False,
) -> tuple[Scores, DataSet]:
    """Evaluate a weight file of any project on a recipe's validation set; return the scores and the data set.

    The recipe gives the net, the data and the preprocessing, which a weight file does not hold. Prints the file's path,
    and warns if the file names classes other than the data set's. Errors: see `load_weight_file`.
    """
    workers = process.start(device, threads)
    check_settings(workers, recipe, which=which, check_files=options.check_files, batch_size=batch_size)
    data = {"data_dir": data_dir, "options": options, "workers": workers, "splits": ("test",)}
    trained, dataset, source = load_weight_file(file, recipe, which, allow_non_finite=allow_non_finite, **data)
    check_state(workers, trained.net.get_parameters())
    if workers.is_main:
        print(f"weights     {source.path}", flush=True)
        if other := other_classes(source, dataset.classes):
            names = f"{renamed(source.classes, dataset.classes)}; it is scored as if it had the latter"
            print(f"warning: {source.path}: its last layer is {other}: {names}", file=sys.stderr, flush=True)
    step = make_eval_step(trained.net, task_of(recipe.multi_label).needs_logits)
    return score(step, dataset, batch_size, workers), dataset
