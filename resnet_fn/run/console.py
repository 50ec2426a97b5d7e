"""These functions make the lines that a run prints: a header, a table row for each epoch, and the
best result.
"""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.declaration import BALANCED, CUSTOM
from resnet_fn.config.values import show_value
from resnet_fn.config.wording import counted, first_few
from resnet_fn.data.dataset import Arrays
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.evaluation.task import task_of
from resnet_fn.models.batchnorm import is_statistic
from resnet_fn.recipes import differences
from resnet_fn.run.build import Run
from resnet_fn.runtime.console import background_note, wrapped
from resnet_fn.runtime.process import kernel_threads

# titles of the metrics' columns
_TITLES = {"top1": "val top-1", "map": "val mAP", "macro_f1": "macro F1"}


def header(run: Run, start: Path | None) -> list[str]:
    """Return the lines to print before the first update.

    `start` is the checkpoint from which the run resumes.
    """
    recipe = run.recipe
    dataset = run.dataset
    options = run.options
    progress = run.progress
    values = sum(math.prod(p.shape) for p in run.state.weights if not is_statistic(p.name))
    trained = sum(math.prod(p.shape) for p in run.state.weights if p.requires_grad)
    changes = ", ".join(
        f"{name} {show_value(value) or 'none'}" for name, value in differences(recipe).items()
    )
    threads = f", {counted(kernel_threads(0), 'thread')}" if options.device == "CPU" else ""
    uses_all = recipe.sampling == BALANCED or recipe.repeats > 1
    rest = 0 if uses_all else len(dataset.train) % recipe.batch_size
    size = f"{recipe.image_size}x{recipe.image_size}"
    if isinstance(dataset.train, Arrays):
        size = f"inputs {dataset.train.images.dtype} {list(dataset.train.images.shape[1:])}"
    what = "sample" if recipe.dataset == CUSTOM else "image"
    classes = ""
    if dataset.classes:
        names = f" ({first_few(dataset.classes)})" if recipe.of_files else ""
        classes = f"{counted(len(dataset.classes), 'class', 'classes')}{names}, "
    left_out = f"; each epoch leaves out {counted(rest, what)}" * bool(rest)
    lines = [
        f"net         {recipe.model}, {values:,} "
        f"parameters{f', {trained:,} of them trained' * (trained < values)}",
        f"data        {recipe.dataset}: {_images(run, what)}, {classes}{size}",
        f"recipe      {recipe.name}{' with ' * bool(changes)}{changes}",
        f"updates     {run.total:,} of {counted(recipe.batch_size, what)}, "
        f"{run.feed.updates_per_epoch:,} an epoch{left_out}",
        f"device      {options.device}{threads}, {counted(run.workers.size, 'worker')}",
        f"run folder  {run.folder.path}",
    ]
    if background := background_note():
        lines.append(f"background  {background}")
    lines += [*run.notes, *recipe.notes]
    if start:
        lines.append(f"resuming after update {progress.update} from {start}")
    if run.is_over and progress.is_evaluated:
        early = progress.update < run.total
        done = (
            f"the run ended after update {progress.update}"
            if early
            else f"all {run.total:,} updates are done"
        )
        lines.append(f"complete: {done}")
    return [part for line in lines for part in wrapped(line, indent=12)]


def _images(run: Run, what: str) -> str:
    """Return the numbers of training and validation images, and the folders or lists with files."""
    train = run.dataset.train
    test = run.dataset.test
    options = run.options
    sources = ("", "")
    if options.val_list:
        sources = (options.train_list, options.val_list)
    elif isinstance(train, FileSplit) and isinstance(test, FileSplit):
        sources = (train.root, test.root)
    within = [f" in {folder}" if folder else "" for folder in sources]
    first = f"{len(train):,} training"
    if sources[0] != sources[1]:
        first = f"{counted(len(train), f'training {what}')}{within[0]}"
    return f"{first} and {counted(len(test), f'validation {what}')}{within[1]}"


def epoch_lines(run: Run) -> list[str]:
    """Return the table row of the epoch that has ended, and clear its losses and times in
    `run.pace`. Above the first row are the titles.
    """
    recipe = run.recipe
    progress = run.progress
    pace = run.pace
    scores = progress.last if progress.last and progress.is_evaluated else {}
    seconds = time.perf_counter() - pace.began
    left = run.total - progress.update
    rate = recipe.batch_size * len(pace.seconds) / sum(pace.seconds) if pace.seconds else 0
    to_come = (seconds - pace.compiling) / len(pace.seconds) * left if pace.seconds and left else 0
    metrics = (recipe.monitor, task_of(recipe.multi_label).metric) if run.dataset.classes else ()
    names = [name for name in dict.fromkeys(metrics) if name in _TITLES]
    rows = [
        ("epoch", 7, f"{progress.update // run.feed.updates_per_epoch}/{recipe.epochs}"),
        ("train loss", 10, f"{np.mean(pace.losses):.4f}" if pace.losses else "-"),
        *(
            [("train acc", 9, f"{np.mean(pace.accuracies):.2%}" if pace.losses else "-")]
            if run.dataset.classes
            else []
        ),
        ("val loss", 8, f"{scores['loss']:.4f}" if scores else "-"),
        *((_TITLES[name], 9, f"{scores[name]:.2%}" if scores else "-") for name in names),
        ("lr", 8, f"{run.schedule(progress.update - 1) * run.rate_factor:.3g}"),
        ("images/s", 8, f"{rate:.0f}" if rate else "-"),
        ("time", 6, clock(seconds)),
        ("left", 6, clock(to_come) if to_come else "-"),
    ]
    lines = [" ".join(cell.rjust(width) for _, width, cell in rows)]
    if not pace.epochs:
        lines.insert(0, " ".join(title.rjust(width) for title, width, _ in rows))
    pace.begin(pace.epochs + 1)
    return lines


def describe_best(monitor: str, best: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """Describe the best and the last evaluation, for example "best top-1 97.50% (update 110), last
    97.22%".
    """
    name = _TITLES.get(monitor, monitor).removeprefix("val ")
    best_value, last_value = (
        f"{row[monitor]:{'.4f' if monitor == 'loss' else '.2%'}}" for row in (best, last)
    )
    return f"best {name} {best_value} (update {best['update']}), last {last_value}"


def clock(seconds: float) -> str:
    """Format a time in seconds, for example "0:08", "12:05" or "2h10"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}h{minutes % 60:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
