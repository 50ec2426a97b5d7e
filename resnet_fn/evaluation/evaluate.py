"""These functions evaluate a checkpoint or a weight file on a validation set."""

import dataclasses
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.run_folder import locate
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.options import RunOptions
from resnet_fn.config.printing import warn
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.wording import counted
from resnet_fn.data.agreement import check_settings, check_state
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.input_spec import renamed
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.evaluation.loaded_net import (
    FlipAverage,
    LoadedNet,
    load_run,
    load_weight_file,
    open_trained_dataset,
)
from resnet_fn.evaluation.scoring import score
from resnet_fn.evaluation.task import Scores, all_metrics, task_of
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers
from resnet_fn.weights.load import other_classes

_TTA = ("none", "flip")
# samples · classes; above, a report has only probabilities of the likeliest classes
_ALL_UP_TO = 20_000_000


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of evaluating a checkpoint."""

    trained: LoadedNet  # the net and its checkpoint
    dataset: DataSet  # the data set, whose split `test` was scored
    scores: Scores  # the scores of each sample of this split, the same on every worker
    # "tta", "image_size", "ema": whether averaged weights were scored; for a run folder also "which"
    options: dict[str, Any]
    workers: Workers  # this worker's rank and the number of workers


def evaluate(checkpoint: str | Path, which: str = "last", **options: Any) -> dict[str, Any]:
    """Evaluate a checkpoint on its validation set.

    Args:
        checkpoint: a run folder or a checkpoint folder.
        which: whether the "last" or the "best" checkpoint of a run folder is evaluated.
        options: keyword arguments of `evaluate_in_detail`.

    Returns:
        A dict with "loss", "top1", "top5", "count" and "macro_f1", the same on every worker. For a
        multi-label net, "map" (mean average precision) replaces "top1" and "top5". "top1", "top5",
        "macro_f1" and "map" are in 0..1.
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
    """Score each sample of a checkpoint's validation set, or of other images.

    Args:
        checkpoint, which, ema, image_size, device, threads, allow_non_finite: see `load_run`.
        batch_size: approximate number of samples that a worker reads at a time. From 64 on, scores
            do not depend on the batch size. Below 64, the net also computes this many samples at a
            time, which needs less memory. Then the last bits of the scores can differ.
        tta: "flip" averages the logits of each image and its mirror image. "none" scores only the
            image.
        data_dir: folder of the data set, or a folder with other images in class folders, which are
            all scored. If empty, the data set is read from the same folder as in training.
        val_list: file with a list of the images to score. If empty, the training run's validation
            set is scored.

    Raises:
        CheckpointError: no checkpoint is intact, the checkpoint does not fit its recipe, or `ema`
            is True and the checkpoint has no averaged weights.
        ValueError: an argument or the data set is invalid, or a sample cannot be read.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: {batch_size} is too small; give 1 or more")
    if image_size < 0:
        raise ValueError(
            f"image_size: {image_size} is negative; give pixels, or 0 for the recipe's size"
        )
    if tta not in _TTA:
        raise ValueError(f"tta: {tta!r} is unknown; {suggest_name(tta, _TTA)}")
    workers = process.start(device, threads)
    check_settings(
        workers, which=which, tta=tta, ema=ema, image_size=image_size, batch_size=batch_size
    )
    trained = load_run(
        checkpoint, which, ema=ema, image_size=image_size, allow_non_finite=allow_non_finite
    )
    dataset = open_trained_dataset(trained, data_dir, workers, val_list=val_list)
    check_state(workers, trained.net.get_parameters())
    net = FlipAverage(trained.net) if tta == "flip" else trained.net
    step = make_eval_step(net, with_logits=True)
    scores = score(step, dataset, batch_size, workers, all_classes=keeps_all_classes(dataset))
    size = trained.input.image_size
    options = {"tta": tta, "ema": trained.averaged, "image_size": size}
    if not locate(Path(checkpoint))[1]:  # a run folder, in which `which` chose the checkpoint
        options = {"which": which, **options}
    return Evaluation(trained, dataset, scores, options, workers)


def describe_test(dataset: DataSet) -> str:
    """Return what the split `test` holds, for example "8 images in pictures/test"."""
    kind = "validation image" if dataset.validates and not dataset.input.val_list else "image"
    number = counted(len(dataset.test), kind)
    if dataset.input.val_list:
        return f"{number} of {dataset.input.val_list}"
    return f"{number} in {dataset.test.root}" if isinstance(dataset.test, FileSplit) else number


def keeps_all_classes(dataset: DataSet) -> bool:
    """Return whether the data set is small enough to keep the probabilities of all classes."""
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
    """Evaluate weights on the validation set of a recipe, with the preparation of images that the
    weights bring.

    Settings that the user chose for the recipe are kept, for example `eval_size`.
    """
    workers = process.start(device, threads)
    check_settings(
        workers, recipe, which=which, check_files=options.check_files, batch_size=batch_size
    )
    trained, dataset, source = load_weight_file(
        file,
        recipe,
        which,
        allow_non_finite=allow_non_finite,
        data_dir=data_dir,
        options=options,
        workers=workers,
    )
    check_settings(workers, trained.recipe)  # each worker read its own file
    check_state(workers, trained.net.get_parameters())
    if workers.is_main and (other := other_classes(source, dataset.classes)):
        warn(
            f"{source.path}: the last layer is {other}, "
            f"{renamed(source.classes, dataset.classes)}; "
            "the net is scored with the data set's classes"
        )
    step = make_eval_step(trained.net, task_of(recipe.multi_label).needs_logits)
    return score(step, dataset, batch_size, workers), dataset
