"""A recipe made real: data, net, optimizer and compiled step, built once for training or evaluation."""

import dataclasses
from pathlib import Path

from mindspore import Parameter, ops

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.balance import class_weights, describe, treatment
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.feed import Feed, check_feed, make_feed
from resnet_fn.data.order import split_batch
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.graphs.cache import CompileCache, open_cache
from resnet_fn.models.batchnorm import synchronise
from resnet_fn.models.build import build_net
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.build import make_optimizer
from resnet_fn.update.ema import Ema, make_ema
from resnet_fn.update.eval_step import EvalStep, make_eval_step
from resnet_fn.update.gradients import make_all_reduce
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.noise import Noise, make_noise
from resnet_fn.update.normalise import make_normalise
from resnet_fn.update.schedule import Schedule, make_schedule
from resnet_fn.update.step import TrainStep, accuracy, accuracy_by_class, make_train_step
from resnet_fn.weights.load import read_start, start_from


@dataclasses.dataclass(frozen=True, kw_only=True)
class Components:
    """All that the loop works with.

    Attributes:
        feed: the training samples of every update.
        weights: the net's Parameters, BatchNorm statistics included.
        training: the Parameters of optimizer, scaler and moving average.
        noise: what the net takes beside an update's images.
        total: updates in the run.
        ema: the weights' moving average, which is then what is evaluated.
        compile_cache: what compiles both steps.
        class_weights: what each class weighs in the loss; (): all alike.
        notes: what a user should know about weights and data, a line each.
    """

    recipe: Recipe
    dataset: DataSet
    feed: Feed
    weights: tuple[Parameter, ...]
    training: tuple[Parameter, ...]
    train_step: TrainStep
    noise: Noise
    eval_step: EvalStep
    schedule: Schedule
    total: int
    ema: Ema | None
    compile_cache: CompileCache
    class_weights: tuple[float, ...]
    notes: tuple[str, ...]

    @property
    def state(self) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
        """Weights and training: the whole state on the device, what a checkpoint holds."""
        return self.weights, self.training


def build_components(
    recipe: Recipe, options: RunOptions, workers: Workers, run: Path = Path(), checkpoint: Checkpoint | None = None
) -> Components:
    """Build everything a training run needs; whatever cannot work is refused here, before the first update.

    Args:
        recipe, options, workers: of the run; a recipe that names no model gets its weights'.
        run: its folder, which may hold an earlier check of the image files.
        checkpoint: what it goes on from; its weights take the place of `recipe.weights`, which is not read then.
    """
    split_batch(recipe.batch_size, workers.size, options.accumulate)
    check_sync_batchnorm(recipe, options)
    check_feed(recipe, options.feed)
    recipe, source = (recipe, None) if checkpoint else read_start(recipe)
    runs = [checkpoint.path.parent.parent] if checkpoint else []
    dataset = open_dataset(
        recipe,
        options.data_dir,
        threads=options.data_threads,
        workers=workers,
        scan_cache=options.scan_cache,
        runs=[run, *runs],
        split_of=runs[0] if runs else None,
        progress=options.progress,
        lists=(options.train_list, options.val_list),
    )
    feed = make_feed(dataset, recipe, workers, options.feed)
    net = build_net(recipe, dataset.input)
    notes = [start_from(net, source, recipe, dataset.classes)] if source else []
    all_reduce = make_all_reduce(workers.size)
    if recipe.sync_batchnorm and all_reduce is not None:
        synchronise(net, workers.size, ops.AllReduce(ops.ReduceOp.SUM))
    optimizer = make_optimizer(recipe, net)
    ema = make_ema(recipe, net, feed.updates_per_epoch)
    scaler = _make_scaler(recipe)
    weights = class_weights(recipe.class_weights, dataset.classes, dataset.train.labels)
    rows = treatment(recipe.sampling, weights, len(dataset.classes), dataset.train.labels)
    cache = open_cache(options.compile_cache)
    train_step = make_train_step(
        net,
        make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over, weights),
        optimizer,
        scaler=scaler,
        clip_norm=recipe.clip_norm,
        accumulate=options.accumulate,
        workers=workers.size,
        rank=workers.rank,
        all_reduce=all_reduce,
        ema=ema,
        accuracy=accuracy_by_class if recipe.multi_label else accuracy,
        mode=options.mode,
        prepare=make_normalise(dataset.input) if options.feed == "uint8" else None,
        jit=cache.jit,
    )
    return Components(
        recipe=recipe,
        dataset=dataset,
        feed=feed,
        weights=tuple(net.get_parameters()),
        training=(*optimizer.state, *scaler.state(), *(ema.state if ema else ())),
        train_step=train_step,
        noise=make_noise(recipe, net, workers),
        eval_step=make_eval_step(net, recipe.multi_label, options.mode, cache.jit),
        schedule=make_schedule(recipe, feed.updates_per_epoch),
        total=recipe.epochs * feed.updates_per_epoch,
        ema=ema,
        compile_cache=cache,
        class_weights=weights,
        notes=(*notes, *dataset.notes, *([describe(rows, dataset.classes)] if rows else [])),
    )


def _make_scaler(recipe: Recipe) -> DynamicLossScaler:
    if recipe.precision != "fp16":
        return DynamicLossScaler.off()
    return DynamicLossScaler(recipe.loss_scale, growth_interval=recipe.loss_scale_interval)


def check_sync_batchnorm(recipe: Recipe, options: RunOptions) -> None:
    """Refuse what would make BatchNorm over all workers depend on their number, or what it cannot be computed with.

    Raises:
        ValueError: naming the setting, its value and the fix.
    """
    if recipe.sync_batchnorm and options.accumulate > 1:
        raise ValueError(
            f"accumulate: {options.accumulate} micro-batches are normalised one by one, each with other samples than "
            "on another number of workers, which is what sync_batchnorm is to prevent; give --accumulate 1"
        )
    if recipe.sync_batchnorm and options.mode == "split":
        raise ValueError(
            "mode: 'split' has no sums over workers in compiled functions, and those of sync_batchnorm are there; "
            "give --mode graph"
        )
