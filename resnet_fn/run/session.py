"""A run while it runs: what it consists of, and how its state goes to a checkpoint and comes back."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.parameters import assign_all, check_finite
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.config.fields import to_dict
from resnet_fn.config.options import RunOptions
from resnet_fn.data.balance import BALANCED
from resnet_fn.run.build import Components
from resnet_fn.run.prefetch import Prefetcher
from resnet_fn.run.progress import Progress
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.waiter import ResultWaiter
from resnet_fn.runtime.workers import Workers
from resnet_fn.telemetry.telemetry import Telemetry


class Pace:
    """The updates of this process since the last epoch's end.

    Attributes:
        began: when that was, by `time.perf_counter`.
        losses: of the updates that were applied.
        seconds: that each update took, but for the process's first.
        compiling: what that one took, if it was among them.
    """

    def __init__(self) -> None:
        self._compiled = False
        self.begin()

    def begin(self) -> None:
        """Start an epoch."""
        self.began, self.compiling = time.perf_counter(), 0.0
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def add(self, loss: float, seconds: float, applied: bool) -> None:
        """Count an update."""
        if applied:
            self.losses.append(loss)
        if self._compiled:
            self.seconds.append(seconds)
        else:
            self._compiled, self.compiling = True, seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """A run while it runs: what each part of the loop needs."""

    components: Components
    progress: Progress
    options: RunOptions
    workers: Workers
    run: RunFolder
    telemetry: Telemetry
    writer: CheckpointWriter
    stop_request: StopRequest
    prefetcher: Prefetcher
    waiter: ResultWaiter
    pace: Pace = dataclasses.field(default_factory=Pace)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do: all updates are done, or the recipe's patience is at its end."""
        progress, patience = self.progress, self.components.recipe.patience
        return progress.update >= self.components.total or 0 < patience <= progress.without_gain


def should_save_at_epoch_end(session: Session) -> bool:
    """Whether an epoch's end gets a checkpoint: with `checkpoint_every`, those that are due, best or last."""
    progress, every = session.progress, session.options.checkpoint_every
    best = progress.best is not None and progress.best["update"] == progress.update
    return not every or progress.update % every == 0 or best or session.is_over


def split_of(options: RunOptions, workers: Workers) -> dict[str, int]:
    """Into how many parts an update is split, as JSON types."""
    return {"workers": workers.size, "micro-batches": options.accumulate}


def split_notes(state: Mapping[str, Any], options: RunOptions, workers: Workers) -> list[str]:
    """What a run that goes on must say where its updates are split otherwise than the checkpoint's."""
    now = split_of(options, workers)
    then = state.get("split", now)
    return [
        f"resuming with {now[name]} {name} instead of {then[name]}: the same samples, but other bits follow; "
        "BatchNorm normalises each part on its own"
        for name in now
        if now[name] != then[name]
    ]


def save(session: Session) -> None:
    """Have rank 0 write the whole state in the background, then remove checkpoints that are no longer kept."""
    if not session.workers.is_main:
        return
    components, progress, options, run = session.components, session.progress, session.options, session.run
    state = {
        **dataclasses.asdict(progress),
        "epoch": progress.update // components.feed.updates_per_epoch,
        "recipe": to_dict(components.recipe),
        "dataset": components.dataset.input.to_dict(),
        "feed": components.feed.reproducibility_key(),
        "split": split_of(options, session.workers),
        "class_weights": list(components.class_weights),
    }
    newest, best = progress.update, progress.best["update"] if progress.best else None

    def prune() -> None:
        run.prune(newest, options.keep_last, options.keep_every, best)

    session.telemetry.flush()
    session.writer.save(run.step(newest), state, prune)


def restore(components: Components, checkpoint: Checkpoint, run: RunFolder) -> Progress:
    """Put a checkpoint's state into the components of a run that goes on from it, exactly."""
    weights, training = components.state
    check_finite({**checkpoint.weights, **checkpoint.training}, checkpoint.path)
    assign_all(weights, checkpoint.weights, checkpoint.path)
    assign_all(training, checkpoint.training, checkpoint.path)
    setting, then = components.recipe.class_weights, checkpoint.state.get("class_weights", [])
    if setting not in ("", BALANCED) and then != list(components.class_weights):
        raise ValueError(
            f"class_weights: {setting} has changed since {checkpoint.path}; put it back, or start another run"
        )
    state, source = checkpoint.state, checkpoint.path.resolve()
    branched_from = state.get("branched_from", "") if source.parent.parent == run.path.resolve() else str(source)
    without_gain = state.get("without_gain", 0)  # earlier checkpoints have no patience
    return Progress(state["update"], state["best"], state["last"], without_gain, branched_from)
