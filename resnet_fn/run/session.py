"""A run while it runs: built from its recipe, saved to a checkpoint and restored from one."""

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

from mindspore import ops

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.parameters import restore_state
from resnet_fn.checkpoint.run_folder import RunFolder, run_of
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.config.fields import faults, to_dict
from resnet_fn.config.hints import finite_or_null
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.balance import BALANCED, class_weights, describe, treatment
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.feed import Feed, blank_batch, check_feed, make_feed
from resnet_fn.data.order import Batch, split_batch
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.task import task_of
from resnet_fn.graphs.cache import CompileCache, open_cache
from resnet_fn.models import build_net
from resnet_fn.models.batchnorm import synchronise
from resnet_fn.models.inputs import Noise, make_noise
from resnet_fn.run.prefetch import Prefetcher
from resnet_fn.run.progress import Progress, note_evaluation
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers
from resnet_fn.telemetry.norms import LayerNorms
from resnet_fn.telemetry.telemetry import Telemetry
from resnet_fn.update.average import make_average
from resnet_fn.update.eval_step import EvalStep, make_eval_step
from resnet_fn.update.exchange import with_all_reduce
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import make_scaler
from resnet_fn.update.optimizer import make_optimizer
from resnet_fn.update.schedule import Schedule, make_schedule
from resnet_fn.update.state import TrainState, make_state
from resnet_fn.update.step import StepPlan, TrainStep, make_train_step
from resnet_fn.weights.load import read_start, start_from


@dataclasses.dataclass(frozen=True, kw_only=True)
class Components:
    """All that the loop works with.

    Attributes:
        feed: the training samples of every update.
        blank: in the place of an update's share that cannot be read.
        state: all that an update changes on the device, what a checkpoint holds.
        noise: what the net takes beside an update's images.
        total: updates in the run.
        compile_cache: what compiles both steps.
        class_weights: what each class weighs in the loss; (): all alike.
        notes: what a user should know about weights and data, a line each.
    """

    recipe: Recipe
    dataset: DataSet
    feed: Feed
    blank: Batch
    state: TrainState
    train_step: TrainStep
    noise: Noise
    eval_step: EvalStep
    schedule: Schedule
    total: int
    compile_cache: CompileCache
    class_weights: tuple[float, ...]
    notes: tuple[str, ...]


def build_components(
    recipe: Recipe, options: RunOptions, workers: Workers, checkpoint: Checkpoint | None = None
) -> Components:
    """Build everything a training run needs; whatever cannot work is refused here, before the first update.

    Args:
        recipe, options, workers: of the run; a recipe that names no model gets its weights'.
        checkpoint: what it goes on from; its weights take the place of `recipe.weights`, which is not read then.
    """
    split_batch(recipe.batch_size, workers.size, options.accumulate)
    check_feed(recipe, options.feed)
    if wrong := faults(options, recipe=recipe):
        raise ValueError("; ".join(wrong))
    recipe, source = (recipe, None) if checkpoint else read_start(recipe)
    dataset = open_dataset(
        recipe,
        options.data_dir,
        threads=options.data_threads,
        workers=workers,
        check=options.check_files,
        run=checkpoint.path.parent.parent if checkpoint else None,
        progress=options.progress,
        lists=(options.train_list, options.val_list),
    )
    feed = make_feed(dataset, recipe, workers, options.feed)
    net = build_net(recipe, dataset.input)
    notes = [start_from(net, source, recipe, dataset.classes)] if source else []
    if recipe.sync_batchnorm and workers.size > 1:
        synchronise(net, workers.size, ops.AllReduce(ops.ReduceOp.SUM))
    optimizer = make_optimizer(recipe, net)
    state = make_state(net, optimizer, make_scaler(recipe), make_average(recipe, net, feed.updates_per_epoch))
    weights = class_weights(recipe.class_weights, dataset.classes, dataset.train.labels)
    rows = treatment(recipe.sampling, weights, len(dataset.classes), dataset.train.labels)
    task = task_of(recipe.multi_label)
    cache = open_cache(options.compile_cache)
    jit = cache.jit if options.mode == "graph" else None
    train_step = make_train_step(
        net,
        make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over, weights),
        optimizer,
        state=state,
        metric=task.accuracy,
        workers=with_all_reduce(workers),
        plan=StepPlan(recipe.clip_norm, options.accumulate, dataset.input if options.feed == "uint8" else None),
        jit=jit,
    )
    return Components(
        recipe=recipe,
        dataset=dataset,
        feed=feed,
        blank=blank_batch(dataset, recipe, workers, options.feed),
        state=state,
        train_step=train_step,
        noise=make_noise(recipe, net, workers),
        eval_step=make_eval_step(net, task.needs_logits, jit),
        schedule=make_schedule(recipe, feed.updates_per_epoch),
        total=recipe.epochs * feed.updates_per_epoch,
        compile_cache=cache,
        class_weights=weights,
        notes=(*notes, *dataset.notes, *([describe(rows, dataset.classes)] if rows else [])),
    )


class Pace:
    """The updates of this process since the last epoch's end.

    Attributes:
        epochs: lines of the table that have been printed.
        began: when that was, by `time.perf_counter`.
        losses, accuracies: of the updates that were applied.
        seconds: that each update took, but for the process's first.
        compiling: what that one took, if it was among them.
    """

    def __init__(self) -> None:
        self._compiled = False
        self.begin(0)

    def begin(self, epochs: int) -> None:
        """Start an epoch with its evaluation."""
        self.epochs, self.began, self.compiling = epochs, time.perf_counter(), 0.0
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self.seconds: list[float] = []

    def add(self, loss: float, accuracy: float, seconds: float, applied: bool) -> None:
        """Count an update."""
        if applied:
            self.losses.append(loss)
            self.accuracies.append(accuracy)
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
    norms: LayerNorms
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
    dataset, weights = components.dataset, list(components.class_weights)
    state = {
        **finite_or_null(dataclasses.asdict(progress)),
        "epoch": progress.update // components.feed.updates_per_epoch,
        "recipe": to_dict(components.recipe),
        "dataset": dataset.input.to_dict(),
        "feed": components.feed.reproducibility_key(),
        "split": split_of(options, session.workers),
        "class_weights": weights,
        "treatment": treatment(components.recipe.sampling, weights, len(dataset.classes), dataset.train.labels),
    }
    newest, keep = progress.update, {progress.began, *([progress.best["update"]] if progress.best else [])}

    def prune() -> None:
        run.prune(newest, options.keep_last, options.keep_every, keep)

    session.telemetry.flush()
    session.writer.save(run.step(newest), state, prune)


def restore(components: Components, checkpoint: Checkpoint, run: RunFolder) -> Progress:
    """Put a checkpoint's state into the components of a run that goes on from it, exactly."""
    restore_state(components.state, checkpoint)
    setting, then = components.recipe.class_weights, checkpoint.state.get("class_weights", [])
    if setting not in ("", BALANCED) and then != list(components.class_weights):
        raise ValueError(
            f"class_weights: {setting} has changed since {checkpoint.path}; put it back, or start another run"
        )
    state, goes_on = checkpoint.state, run_of(checkpoint.path).resolve() == run.path.resolve()
    branched_from = state.get("branched_from", "") if goes_on else str(checkpoint.path.absolute())
    began = state.get("began", 0) if goes_on else state["update"]
    without_gain = state.get("without_gain", 0)  # earlier checkpoints have no patience
    last = state["last"] and {name: math.nan if value is None else value for name, value in state["last"].items()}
    progress = Progress(state["update"], state["best"], last, without_gain, branched_from, began)
    if progress.last and progress.is_evaluated and progress.best is None:  # the best has gone: this is, if any can be
        note_evaluation(progress, components.recipe.monitor, progress.last)
        progress.without_gain = without_gain
    return progress
