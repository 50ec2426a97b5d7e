"""A run while it runs, and its parts, built from the recipe."""

import dataclasses
from typing import Any

from mindspore import ops

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import check_together
from resnet_fn.data.balance import class_weights, describe, treatment
from resnet_fn.data.dataset import DataSet, blank_batch
from resnet_fn.data.feed import Feed, check_feed, make_feed
from resnet_fn.data.order import Batch, split_batch
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.task import task_of
from resnet_fn.graphs.cache import CompileCache, open_cache
from resnet_fn.models import build_net
from resnet_fn.models.batchnorm import synchronise
from resnet_fn.models.inputs import Noise, make_noise
from resnet_fn.recipes.schedule import Schedule, make_schedule
from resnet_fn.run.prefetch import Prefetcher
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers
from resnet_fn.telemetry.norms import LayerNorms
from resnet_fn.telemetry.telemetry import Pace, Telemetry
from resnet_fn.update.average import make_average
from resnet_fn.update.eval_step import EvalStep, make_eval_step
from resnet_fn.update.exchange import with_all_reduce
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import make_scaler
from resnet_fn.update.optimizer import make_fast_optimizer
from resnet_fn.update.state import TrainState, make_state
from resnet_fn.update.step import StepPlan, TrainStep, make_train_step
from resnet_fn.weights.load import read_start, start_from


@dataclasses.dataclass(frozen=True, kw_only=True)
class Components:
    """The parts that a run is built of.

    Attributes:
        feed: the training samples of every update.
        blank: a batch to use in place of one that cannot be read.
        state: all that an update changes on the device, and that a checkpoint holds.
        noise: the net's further inputs, beside images.
        total: updates in the run.
        class_weights: the classes' weights in the loss; (): all equal.
        notes: lines about weights and data for the run's header.
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
    """Build everything that a training run needs; whatever cannot work raises a ValueError, before the first update.

    A recipe that names no model gets that of its weights. `recipe.weights` is not read if there is a checkpoint.
    """
    split_batch(recipe.batch_size, workers.size, options.accumulate)
    check_feed(recipe, options.feed)
    check_together(recipe, options)
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
    optimizer = make_fast_optimizer(recipe, net)
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


@dataclasses.dataclass
class Progress:
    """Where a run stands: what a checkpoint carries beside the tensors.

    Attributes:
        update: updates done.
        best: {"top1", "update"} (no top1 where images have any number of classes) and what the recipe monitors, of the
            best evaluation; None before the first.
        last: the latest evaluation, None before the first.
        without_gain: evaluations since the last improvement.
        branched_from: the checkpoint of another run that this one began with; "": it began at update 0.
        began: that checkpoint's update.
    """

    update: int = 0
    best: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    without_gain: int = 0
    branched_from: str = ""
    began: int = 0

    @property
    def is_evaluated(self) -> bool:
        """Whether the last evaluation was of this state."""
        return self.last is not None and self.last["update"] == self.update


@dataclasses.dataclass(frozen=True)
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
        """Whether all updates are done, or the recipe's patience is exhausted."""
        progress, patience = self.progress, self.components.recipe.patience
        return progress.update >= self.components.total or 0 < patience <= progress.without_gain
