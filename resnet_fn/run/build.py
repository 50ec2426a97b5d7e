"""`build_run` builds all parts of a run from a recipe and options."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import mindspore
from mindspore import nn, ops

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder, earlier_run
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.config.draft import Source
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, check_buildable
from resnet_fn.config.settings import draft_of
from resnet_fn.data.agreement import check_settings, identify
from resnet_fn.data.balance import class_balance, class_weights, describe_balance
from resnet_fn.data.dataset import DataSet, blank_batch
from resnet_fn.data.feed import Feed, check_feed, make_feed
from resnet_fn.data.order import split_batch
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.eval_step import EvalStep, make_eval_step
from resnet_fn.evaluation.task import task_of
from resnet_fn.models import MODELS, build_net, check_model
from resnet_fn.models.batchnorm import synchronise
from resnet_fn.models.inputs import Masks, make_masks
from resnet_fn.models.parts import group_of
from resnet_fn.run.custom_net import watch_first_update
from resnet_fn.run.prefetch import Prefetcher
from resnet_fn.runtime import instructions, process
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers
from resnet_fn.telemetry.norms import LayerNorms
from resnet_fn.telemetry.telemetry import Pace, SilentTelemetry, Telemetry
from resnet_fn.update.average import describe_average, make_average
from resnet_fn.update.exchange import with_all_reduce
from resnet_fn.update.groups import describe_rates, parameter_groups, shown_factor
from resnet_fn.update.loss import Loss, make_loss
from resnet_fn.update.loss_scale import make_scaler
from resnet_fn.update.optimizer import make_fast_optimizer
from resnet_fn.update.schedule import Schedule, check_lengths, make_schedule
from resnet_fn.update.state import TrainState, make_state
from resnet_fn.update.step import (
    StepPlan,
    TrainStep,
    accuracy,
    accuracy_by_class,
    make_train_step,
    no_metric,
)
from resnet_fn.weights.load import read_start, start_from
from resnet_fn.weights.published import describe_random_start


@dataclasses.dataclass
class Progress:
    """Holds a run's progress, which a checkpoint stores beside the tensors."""

    update: int = 0  # updates done
    # the best evaluation: "update", the monitored metric, and "top1" if it exists
    best: dict[str, Any] | None = None
    last: dict[str, Any] | None = None  # the latest evaluation; None before the first
    without_gain: int = 0  # number of evaluations since the last improvement

    @property
    def is_evaluated(self) -> bool:
        """Return whether the net was evaluated after the latest update."""
        return self.last is not None and self.last["update"] == self.update

    def update_best(self, monitor: str, metrics: Mapping[str, Any]) -> None:
        """Record an evaluation as the best if its loss is finite and no earlier evaluation was
        better.
        """
        value = metrics[monitor]
        best = None if self.best is None else self.best[monitor]
        self.without_gain += 1
        if not metrics["loss"] < math.inf:  # infinity or NaN
            return
        if best is None or (value < best if monitor == "loss" else value > best):
            self.without_gain = 0
        elif value != best:  # an equal evaluation becomes the best, but is no improvement
            return
        top1 = {"top1": metrics["top1"]} if "top1" in metrics else {}
        self.best = {**top1, monitor: value, "update": self.update}


@dataclasses.dataclass(frozen=True)
class Custom:
    """Holds the net, the data set and the loss that a caller passes to `fit`."""

    net: nn.Cell
    dataset: DataSet
    loss: Loss | None = None  # (outputs, targets) → mean loss; None: the recipe's loss


@dataclasses.dataclass(kw_only=True)
class Run:
    """Holds all parts that the training loop needs."""

    recipe: Recipe  # settings that define the updates
    options: RunOptions  # settings of how updates are computed and recorded
    workers: Workers  # this process's rank and the number of workers
    folder: RunFolder  # the run's folder
    dataset: DataSet
    feed: Feed  # the training samples of every update
    state: TrainState  # all that an update changes on the device
    train_step: TrainStep  # the compiled function of an update
    eval_step: EvalStep  # the compiled function of an evaluation's batch
    masks: Masks  # makes the net's inputs beside images: masks of stochastic depth and dropout
    schedule: Schedule  # the learning rate of every update
    rate_factor: float  # factor of the learning rate in logs and tables: see `shown_factor`
    total: int  # number of updates of the whole run
    class_weights: tuple[float, ...]  # weight of each class in the loss; (): all equal
    # a row for each class, if classes are balanced: see `balance.class_balance`
    class_balance: list[dict[str, float]]
    validation_set: dict[str, Any]  # identifies the validation set, which a resumed run compares
    notes: list[str]  # lines for the run's header
    stop_request: StopRequest  # records the signals that this process gets
    prefetcher: Prefetcher  # prepares the feed's batches, one update ahead
    writer: CheckpointWriter  # writes checkpoints in the background
    norms: LayerNorms  # measures the norms of layers
    # Writes the log and shows progress; silent until the run's folder exists, and on all workers
    # except 0.
    telemetry: Telemetry = dataclasses.field(default_factory=SilentTelemetry)
    # the losses and times of the current epoch
    pace: Pace = dataclasses.field(default_factory=Pace)
    # updates done, best and last evaluation
    progress: Progress = dataclasses.field(default_factory=Progress)
    # update of the newest checkpoint that was loaded or whose save began; rank 0 alone writes it
    saved: int = 0

    @property
    def evaluation_is_due(self) -> bool:
        """Return whether the run has ended an epoch whose evaluation is due and was not made
        yet.
        """
        update = self.progress.update
        epochs, rest = divmod(update, self.feed.updates_per_epoch)
        if update == 0 or rest or self.progress.is_evaluated:
            return False
        return epochs % self.recipe.eval_every == 0 or update == self.total

    @property
    def is_over(self) -> bool:
        """Return whether all updates are done, or the recipe's `patience` is exhausted."""
        return (
            self.progress.update >= self.total
            or 0 < self.recipe.patience <= self.progress.without_gain
        )


# Long: the parts of a run, in the only order in which they can be made.
def build_run(
    recipe: Recipe,
    options: RunOptions,
    workers: Workers,
    folder: RunFolder,
    stop_request: StopRequest,
    checkpoint: Checkpoint | None = None,
    custom: Custom | None = None,
) -> Run:
    """Build all parts of a run at update 0. `restore` loads `checkpoint` into the run later.

    The file `recipe.weights` is not read if `checkpoint` or `custom` is given. If the recipe names
    no model, this weights file determines the model. `custom` replaces the recipe's net and data.
    `custom.loss`, if any, replaces the recipe's loss.
    """
    # options that the user chose and that have no effect are an error
    draft_of(recipe, RunOptions()).complete(options.chosen_values(), resumes=bool(checkpoint))
    split_batch(recipe.batch_size, workers.size, options.accumulate)
    check_feed(recipe, options.feed)
    source = None
    demanded = set() if checkpoint else _demanded(recipe)
    if not custom and not checkpoint:
        recipe, source = read_start(recipe)
        check_buildable(recipe)
        check_model(recipe.model)  # before the data set, which can take minutes to read
        check_settings(workers, recipe)  # each worker read its own file
    dataset = (
        custom.dataset
        if custom
        else open_dataset(
            recipe,
            options=options,
            workers=workers,
            run=folder.path if checkpoint else None,
            weights_of=earlier_run(recipe.weights, recipe) if source else None,
            classes=checkpoint.state["dataset"]["classes"] if checkpoint else (),
        )
    )
    custom_loss = custom.loss if custom else None
    feed = make_feed(dataset, recipe, workers, options.feed)
    total = recipe.epochs * feed.updates_per_epoch
    too_short = check_lengths(recipe, feed.updates_per_epoch, demanded)
    blank = blank_batch(
        dataset, recipe.batch_size // workers.size, recipe.image_size, recipe.mixes, options.feed
    )
    saved = checkpoint.state["class_weights"] if checkpoint else ()
    labels = dataset.train.labels
    weights = class_weights(recipe.class_weights, dataset.classes, labels, recipe.sampling, saved)
    balance = class_balance(recipe.sampling, weights, len(dataset.classes), labels)
    _choose_instructions(recipe, options, workers, checkpoint, custom is not None)
    net = custom.net if custom else build_net(recipe, dataset.input)
    if recipe.sync_batchnorm and workers.size > 1:
        synchronise(net, workers.size, ops.AllReduce(ops.ReduceOp.SUM))
    first = start_from(net, source, recipe, dataset.classes, demanded) if source else []
    if recipe.dataset == "imagefolder" and not (source or checkpoint):
        first = describe_random_start(recipe.model, len(dataset.train))
    masks = make_masks(recipe, net, workers)
    factors = {parameter.name: factor for parameter, _, factor in parameter_groups(recipe, net)}
    rates = describe_rates(recipe.learning_rate, factors)
    optimizer = make_fast_optimizer(recipe, net)
    scaler = make_scaler(recipe.precision, recipe.loss_scale, recipe.loss_scale_interval)
    average = make_average(net, recipe, feed.updates_per_epoch)
    state = make_state(net, optimizer, scaler, average)
    lines = (
        describe_balance(balance, dataset.classes) if balance else "",
        f"rates       {rates}" if rates else "",
        describe_average(average, recipe.ema, total) if average else "",
    )
    metric = accuracy_by_class if recipe.multi_label else accuracy
    jit = mindspore.jit if options.mode == "graph" else None
    train_step = make_train_step(
        net,
        custom_loss
        or make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over, weights),
        optimizer,
        state=state,
        metric=metric if dataset.classes else no_metric,
        workers=with_all_reduce(workers),
        plan=StepPlan(
            recipe.clip_norm,
            options.accumulate,
            dataset.input if options.feed == "uint8" else None,
        ),
        jit=jit,
    )
    if custom:
        train_step = watch_first_update(train_step, net, workers, compiled=jit is not None)
    return Run(
        recipe=recipe,
        options=options,
        workers=workers,
        folder=folder,
        dataset=dataset,
        feed=feed,
        state=state,
        train_step=train_step,
        eval_step=make_eval_step(net, task_of(recipe.multi_label).needs_logits, jit, custom_loss),
        masks=masks,
        schedule=make_schedule(recipe, feed.updates_per_epoch),
        rate_factor=shown_factor(factors.values()),
        total=total,
        class_weights=weights,
        class_balance=balance,
        validation_set=identify(dataset.test),
        notes=[*first, *dataset.notes, *too_short, *filter(None, lines)],
        stop_request=stop_request,
        prefetcher=Prefetcher(feed, total, blank),
        writer=CheckpointWriter(state if workers.is_main else None),
        norms=LayerNorms(
            state.trained,
            options.norms_every,
            (lambda name: name.split(".")[0]) if custom else group_of,
        ),
    )


def _demanded(recipe: Recipe) -> set[str]:
    """Return the settings that the user chose by flags or keywords, not in a recipe file.

    A run writes its recipe file without knowing which settings the next run's data or weights make
    useless, so that these are no mistake there.
    """
    return {name for name, source in recipe.chosen.items() if source is not Source.FILE}


def _choose_instructions(
    recipe: Recipe,
    options: RunOptions,
    workers: Workers,
    checkpoint: Checkpoint | None,
    is_custom: bool,
) -> None:
    """Choose how convolutions are computed on a CPU, before the net is built, and compare the
    choice between the workers.
    """
    if process.started["device"] != "CPU":
        return
    before = None
    if checkpoint:
        layout = checkpoint.state["parallel_layout"]
        before = instructions.Choice(
            layout.get("convolutions", instructions.STANDARD),
            layout.get(process.REASON, "as in the checkpoint"),
        )
    is_simple = not is_custom and (recipe.precision, options.mode) == ("fp32", "graph")
    # a convolution with groups is never a product
    can_be_products = is_simple and MODELS[recipe.model].groups == 1
    instructions.choose_for(recipe.model if can_be_products else "", before)
    check_settings(workers)
