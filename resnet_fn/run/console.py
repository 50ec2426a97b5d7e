"""What a run says: a header before the first update, a line for each epoch, the time that it took."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from resnet_fn.config.fields import show_value
from resnet_fn.evaluation.task import describe
from resnet_fn.models.batchnorm import is_statistic
from resnet_fn.recipes import differences
from resnet_fn.run.session import Session
from resnet_fn.runtime.process import kernel_threads


def header(session: Session, notes: Sequence[str], start: Path | None) -> list[str]:
    """What is about to be computed, with what, and where it is kept.

    Args:
        session: of the run.
        notes: what a user should know about its data.
        start: the checkpoint that it goes on from.
    """
    components, progress, options = session.components, session.progress, session.options
    recipe, dataset, feed = components.recipe, components.dataset, components.feed
    values = sum(p.size for p in components.state.weights if not is_statistic(p.name))
    trained = sum(p.size for p in components.state.weights if p.requires_grad)
    changes = ", ".join(f"{name} {show_value(value) or 'none'}" for name, value in differences(recipe).items())
    threads = f", {_count(kernel_threads(options.threads), 'thread')}" if options.device == "CPU" else ""
    lines = [
        f"net         {recipe.model}, {values:,} parameters{f', {trained:,} of them trained' * (trained < values)}",
        f"data        {recipe.dataset}, {len(dataset.train):,} training and {len(dataset.test):,} test images of "
        f"{_count(len(dataset.classes), 'class', 'classes')}, {recipe.image_size} x {recipe.image_size} pixels",
        f"recipe      {recipe.name}{' with ' * bool(changes)}{changes}",
        f"updates     {components.total:,} of {recipe.batch_size} images, {feed.updates_per_epoch:,} an epoch",
        f"device      {options.device}{threads}, {_count(session.workers.size, 'worker')}",
        f"run folder  {session.run.path}",
        *notes,
        *recipe.notes,
    ]
    if start:
        lines.append(f"resuming after update {progress.update} from {start}")
    if not (session.is_over and progress.is_evaluated):
        return lines
    if progress.update < components.total:
        return [*lines, f"complete: it ended after update {progress.update}"]
    return [*lines, f"complete: all {components.total:,} updates are done"]


def epoch_line(session: Session) -> str:
    """An epoch that has been evaluated, in a line; its clock begins anew."""
    components, progress, pace = session.components, session.progress, session.pace
    assert progress.last is not None
    seconds = time.perf_counter() - pace.began
    parts = [f"training loss {np.mean(pace.losses):.4f}"] if pace.losses else []
    parts.append(describe(progress.last, components.dataset.classes, "test "))
    parts.append(f"learning rate {components.schedule(progress.update - 1):.4g}")
    if pace.seconds:
        parts.append(f"{components.recipe.batch_size * len(pace.seconds) / sum(pace.seconds):.0f} images/s")
    parts.append(f"in {duration(seconds)}")
    left = components.total - progress.update
    if pace.seconds and left:
        parts.append(f"{duration((seconds - pace.compiling) / len(pace.seconds) * left)} left")
    pace.begin()
    return f"epoch {progress.last['epoch'] + 1}/{components.recipe.epochs}: {', '.join(parts)}"


def duration(seconds: float) -> str:
    """ "8.2 s", "3 min 05 s" or "2 h 10 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
