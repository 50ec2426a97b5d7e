"""A recipe made real: data, net, optimizer and compiled step, built once for training or evaluation."""

import dataclasses
from pathlib import Path

from mindspore import Parameter

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.feed import Feed, make_feed
from resnet_fn.data.order import split_batch
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.models.build import build_net
from resnet_fn.models.resnet import ResNet
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.ema import Ema, moving_average
from resnet_fn.update.eval_step import EvalStep, make_eval_step
from resnet_fn.update.gradients import make_all_reduce
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import Optimizer, momentum_sgd, weight_decay_groups
from resnet_fn.update.optimizer_layerwise import lamb, lars
from resnet_fn.update.schedule import Schedule, make_schedule
from resnet_fn.update.step import TrainStep, make_train_step
from resnet_fn.weights.load import load_weights


@dataclasses.dataclass(frozen=True)
class Components:
    """All that the loop works with.

    Attributes:
        weights: the net's Parameters, BatchNorm statistics included.
        training: the Parameters of optimizer and scaler; with `weights` the whole state on the device.
        total: updates in the run.
        ema: the weights' moving average, which is then what is evaluated.
    """

    recipe: Recipe
    dataset: DataSet
    data: Feed
    weights: tuple[Parameter, ...]
    training: tuple[Parameter, ...]
    train_step: TrainStep
    eval_step: EvalStep
    schedule: Schedule
    total: int
    ema: Ema | None


def build_components(recipe: Recipe, options: RunOptions, workers: Workers, fresh: bool = True) -> Components:
    """Build everything a training run needs; whatever cannot work is refused here, before the first update.

    A run that goes on (not `fresh`) takes its weights from a checkpoint, and does not read `recipe.weights`.
    """
    split_batch(recipe.batch_size, workers.size, options.accumulate)
    dataset = open_dataset(
        recipe,
        options.data_dir,
        threads=options.data_threads,
        workers=workers,
        caches=[Path(folder) for folder in (options.out_dir, options.resume) if folder],
        progress=options.progress,
    )
    data = make_feed(dataset, recipe, workers)
    net = build_net(recipe, dataset.input)
    if fresh and recipe.weights:
        load_weights(net, recipe.weights, recipe.reset_head)
    optimizer = make_optimizer(recipe, net)
    ema = make_ema(recipe, net, data.updates_per_epoch)
    scaler = (
        DynamicLossScaler(recipe.loss_scale, growth_interval=recipe.loss_scale_interval)
        if recipe.precision == "fp16"
        else DynamicLossScaler.off()
    )
    loss = make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over)
    train_step = make_train_step(
        net,
        loss,
        optimizer,
        scaler=scaler,
        clip_norm=recipe.clip_norm,
        accumulate=options.accumulate,
        workers=workers.size,
        rank=workers.rank,
        all_reduce=make_all_reduce(workers.size),
        ema=ema,
    )
    total = recipe.epochs * data.updates_per_epoch
    return Components(
        recipe=recipe,
        dataset=dataset,
        data=data,
        weights=tuple(net.get_parameters()),
        training=(*optimizer.state, *scaler.state(), *(ema.state if ema else ())),
        train_step=train_step,
        eval_step=make_eval_step(net),
        schedule=recipe_schedule(recipe, data.updates_per_epoch),
        total=total,
        ema=ema,
    )


def make_optimizer(recipe: Recipe, net: ResNet) -> Optimizer:
    """The recipe's optimizer for a net."""
    groups = weight_decay_groups(net, recipe.weight_decay, recipe.decay_all)
    if recipe.optimizer == "lars":
        return lars(groups, recipe.momentum, recipe.trust_coefficient)
    if recipe.optimizer == "lamb":
        return lamb(groups, recipe.momentum)
    return momentum_sgd(groups, recipe.momentum, recipe.nesterov)


def make_ema(recipe: Recipe, net: ResNet, updates_per_epoch: int) -> Ema | None:
    """The recipe's moving average of a net, if it has one."""
    if not recipe.ema:
        return None
    start = round(recipe.ema_start * updates_per_epoch)
    return moving_average(tuple(net.get_parameters()), recipe.ema, recipe.ema_every, start)


def recipe_schedule(recipe: Recipe, updates_per_epoch: int) -> Schedule:
    """The recipe's learning rate as a function of the update number; epochs become updates here and nowhere else."""
    return make_schedule(
        recipe.schedule,
        total=recipe.epochs * updates_per_epoch,
        warmup=round(recipe.warmup_epochs * updates_per_epoch),
        peak=recipe.learning_rate,
        floor=recipe.min_learning_rate,
        milestones=[round(epoch * updates_per_epoch) for epoch in recipe.milestones],
        factor=recipe.milestone_factor,
    )
