"""These functions compute the learning rate of an update on the host."""

import math
from collections.abc import Callable, Collection

from resnet_fn.config.recipe import Recipe

Schedule = Callable[[int], float]


def cosine_warmup(step: int, total: int, warmup: int, peak: float, floor: float = 0.0) -> float:
    """Return the learning rate of an update, with linear warm-up and then half a cosine (arXiv
    1608.03983).

    If step < warmup, lr = peak · (step + 1) / warmup. If step >= total, lr = floor. If warmup <=
    step < total, lr = floor + (peak − floor) · (1 + cos(π · t)) / 2, with t = (step − warmup) /
    (total − warmup).

    Args:
        step: the update's number, from 0.
        total: number of updates in the whole run.
        warmup: number of updates in the warm-up.
        peak: the learning rate at the end of the warm-up.
        floor: the learning rate at the end of the run.

    Raises:
        ValueError: if `step` is negative, `warmup` is outside 0..total, or `floor` is above `peak`.
    """
    _check(step, total, warmup)
    if floor > peak:
        raise ValueError(
            f"floor: {floor} is above the peak {peak}; give a floor between 0 and {peak}"
        )
    if step < warmup:
        return _warmup(step, warmup, peak)
    if step >= total:
        return floor
    progress = (step - warmup) / (total - warmup)
    return floor + (peak - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def _warmup(step: int, warmup: int, peak: float) -> float:
    return peak * (step + 1) / warmup  # above 0 for update 0; `peak` for update `warmup - 1`


def _check(step: int, total: int, warmup: int) -> None:
    if step < 0:
        raise ValueError(f"step: {step} is negative; give an update's number, 0 or above")
    if not 0 <= warmup <= total:
        raise ValueError(
            f"warmup: {warmup} updates do not fit into a run of {total} updates; give 0 to {total}"
        )


def check_lengths(
    recipe: Recipe, updates_per_epoch: float, demanded: Collection[str] = ()
) -> list[str]:
    """Return notes on settings in epochs that are too short for one update.

    Raises ValueError if such a setting is in `demanded`, the user's flags and keywords.
    """
    notes = []
    for name in ("warmup_epochs", "ema_start"):
        epochs = getattr(recipe, name)
        if epochs and not round(epochs * updates_per_epoch):
            text = f"not more than half an update, of {updates_per_epoch:g} an epoch"
            if name in demanded:
                fix = f"give {math.ceil(1e4 / updates_per_epoch) / 1e4:g} or more, or leave it out"
                raise ValueError(f"{name}: {epochs:g} is {text}; {fix}")
            notes.append(f"{name} {epochs:g} has no effect: it is {text}")
    return notes


def make_schedule(recipe: Recipe, updates_per_epoch: float) -> Schedule:
    """Make the function that computes the recipe's learning rate from an update's number.

    Numbers start at 0. All schedules begin with the linear warm-up of `cosine_warmup`.
    """
    total = round(recipe.epochs * updates_per_epoch)
    warmup = round(recipe.warmup_epochs * updates_per_epoch)
    milestones = [round(epoch * updates_per_epoch) for epoch in recipe.milestones]
    peak = recipe.learning_rate
    floor = recipe.min_learning_rate

    def schedule(step: int) -> float:
        _check(step, total, warmup)
        if step < warmup:
            return _warmup(step, warmup, peak)
        if recipe.schedule == "cosine":
            return cosine_warmup(step, total, warmup, peak, floor)
        if recipe.schedule == "linear":
            if step >= total:
                return floor
            return peak + (floor - peak) * (step - warmup) / (total - warmup)
        if recipe.schedule == "step":
            passed = sum(step >= milestone for milestone in milestones)
            return peak * recipe.milestone_factor**passed
        return peak  # "constant"

    return schedule
