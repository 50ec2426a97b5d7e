"""Turn a recipe into the plan of a comparison: the updates that both sides make."""

from collections.abc import Sequence

from resnet_fn.config.optimizers import OPTIMIZER_SETTINGS
from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.trace.plan import (
    AveragePlan,
    LossPlan,
    NetPlan,
    OptimizerPlan,
    Plan,
    check_batches,
)
from resnet_fn.parity.trace.tree import Batch, map_tree
from resnet_fn.update.schedule import make_schedule


def plan_of(
    recipe: Recipe,
    batches: Sequence[Batch],
    accumulate: int = 1,
    seed: int = 0,
    custom_loss: bool = False,
    custom_optimizer: bool = False,
) -> Plan:
    """Return the plan of a comparison.

    The recipe's whole learning-rate schedule is compressed into the updates. The moving average has
    no warm-up, because torch's average, with which the ladder compares, has none.

    Args:
        recipe: the settings of optimizer, loss, clipping, schedule, moving average and precision.
        batches: one pair (inputs, labels) for each update; lists of arrays count as tuples.
        accumulate: the number of micro-batches in each update.
        seed: the seed of random numbers that replace initial values.
        custom_loss: whether a function of the user's replaces the recipe's loss.
        custom_optimizer: whether a function of the user's replaces the recipe's optimizer.

    Raises:
        ValueError: batches are wrong, or the ladder does not compare one of the settings.
    """
    changed = {
        name: value
        for name, declared in recipe.declarations.items()
        if (value := getattr(recipe, name)) != declared.default and not declared.compared
    }
    if changed:
        got = ", ".join(f"{name} {value!r}" for name, value in changed.items())
        raise ValueError(
            f"recipe: the ladder does not compare {got}; omit these, or give another recipe"
        )
    check_batches(batches, accumulate)
    updates_per_epoch = len(batches) / recipe.epochs
    schedule = make_schedule(recipe, updates_per_epoch)
    return Plan(
        [map_tree(lambda leaf: leaf, tuple(batch)) for batch in batches],  # lists become tuples
        rates=[schedule(update) for update in range(len(batches))],
        optimizer=OptimizerPlan(
            recipe.optimizer,
            recipe.momentum,
            recipe.weight_decay,
            recipe.decay_all,
            {name: getattr(recipe, name) for name in OPTIMIZER_SETTINGS},
            custom_optimizer,
        ),
        loss=LossPlan(recipe.loss, recipe.label_smoothing, recipe.smoothing_over, custom_loss),
        net=NetPlan(
            recipe.model,
            recipe.stem,
            recipe.norm,
            recipe.initialisation,
            recipe.zero_init_residual,
        ),
        clip_norm=recipe.clip_norm,
        average=_average(recipe, len(batches), updates_per_epoch),
        precision=recipe.precision,
        loss_scale=recipe.loss_scale,
        loss_scale_interval=recipe.loss_scale_interval,
        dropout={
            name: share for name in ("dropout", "drop_path") if (share := getattr(recipe, name))
        },
        accumulate=accumulate,
        seed=seed,
    )


def _average(recipe: Recipe, updates: int, updates_per_epoch: float) -> AveragePlan | None:
    if not recipe.ema:
        return None
    if recipe.ema_every > updates:
        raise ValueError(
            f"ema_every: {recipe.ema_every} is more than the {updates} updates, so the average "
            f"never moves; give 1..{updates}"
        )
    start = round(recipe.ema_start * updates_per_epoch)  # `ema_start` is in epochs
    return AveragePlan(recipe.ema, recipe.ema_every, start)
