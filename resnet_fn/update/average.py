"""This module keeps a moving average of a net's weights, which evaluations use instead of the
weights.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.recipe import Recipe
from resnet_fn.models.batchnorm import batchnorm_statistics
from resnet_fn.update.gradients import Parameters, map_tensors

_PREFIX = "ema."
_COUNT = "ema_updates"
_assign = ops.Assign()


class MovingAverage(NamedTuple):
    """Holds the exponential moving average of a net's weights (Polyak and Juditsky, 1992)."""

    # the averages, `ema.<parameter>` for each parameter of `followed`
    averages: tuple[Parameter, ...]
    followed: tuple[Parameter, ...]  # the net's parameters that are averaged
    count: Parameter  # number of applied updates so far, float32 scalar
    # 1 − decay, float32 scalar: average ← decay · average + (1 − decay) · parameter
    new_weight: Tensor
    every: int  # number of applied updates from one move of the average to the next
    start: int  # number of first applied updates in which the average is only a copy of the weights
    warmup: bool = False  # whether first moves have a smaller decay: see `moving_average`


def moving_average(
    parameters: Iterable[Parameter],
    decay: float,
    every: int = 1,
    start: int = 0,
    warmup: bool = False,
) -> MovingAverage:
    """Make a moving average of a net's parameters. At first, the average is a copy of the
    parameters.

    Args:
        parameters: the float32 parameters to average. The parameters should include BatchNorm's
            moving statistics, as in torchvision's ExponentialMovingAverage with `use_buffers`.
        decay: weight of the old average, 0 <= decay < 1.
        every: number of applied (not skipped) updates from one move of the average to the next.
        start: number of applied updates, at the start of training, in which the average only copies
            the parameters.
        warmup: whether move n = 0, 1, … after `start` has the decay min(decay, (1 + n) / (10 + n)),
            as TensorFlow's ExponentialMovingAverage with `num_updates`. Without a warm-up, the part
            decay ** n of the average is the first parameters, after n moves.
    """
    parameters = tuple(parameters)
    averages = tuple(
        Parameter(Tensor(p.numpy()), name=_PREFIX + p.name, requires_grad=False) for p in parameters
    )
    count = Parameter(Tensor(np.float32(0)), name=_COUNT, requires_grad=False)
    new_weight = Tensor(1.0 - decay, mindspore.float32)
    return MovingAverage(averages, parameters, count, new_weight, every, start, warmup)


def averaged_parameters(net: nn.Cell) -> list[Parameter]:
    """Return the parameters of a net that a moving average follows: the trained ones, and
    BatchNorm's statistics.
    """
    statistics = {id(parameter) for parameter in batchnorm_statistics(net)}
    return [p for p in net.get_parameters() if p.requires_grad or id(p) in statistics]


def make_average(net: nn.Cell, recipe: Recipe, updates_per_epoch: float) -> MovingAverage | None:
    """Make the moving average of a net's parameters that are not frozen, or return None if
    `recipe.ema` is 0.
    """
    if not recipe.ema:
        return None
    start = round(recipe.ema_start * updates_per_epoch)  # `ema_start` is in epochs
    return moving_average(
        averaged_parameters(net), recipe.ema, recipe.ema_every, start, recipe.ema_warmup
    )


def describe_average(average: MovingAverage, decay: float, updates: int) -> str:
    """Return a line if a run of so many updates is too short for its average, and otherwise ""."""
    every = average.every
    moves = updates // every - average.start // every
    of_first = decay**moves  # without a warm-up, the part of the average that is the first weights
    if of_first <= 0.1:
        return ""
    if not moves:
        cause = f"ema_every {every}" if every > updates else f"ema_start, update {average.start}"
        return f"warning: {cause}: the average never moves in {updates} updates; give less"
    if average.warmup:
        last = min(decay, moves / (9 + moves))
        return (
            f"ema {decay:g} is not reached in {moves} moves: the last one has the decay {last:.3g}"
        )
    why = f"{of_first:.1%} of the average is the first weights after all {moves} moves"
    return f"warning: ema {decay:g}: with this decay, {why}; give --ema-warmup"


def move_average(
    averages: Parameters,
    followed: Parameters,
    count: Parameter,
    new_weight: Tensor,
    every: int,
    start: int,
    warmup: bool = False,
) -> Tensor:
    """Count an applied update; move the average if `every` or `start` requires it.

    Arguments: see `MovingAverage`.
    """
    now = count + 1.0
    _assign(count, now)
    # Each branch returns a value that is used, because MindSpore drops a branch that returns no
    # value.
    weight = new_weight
    if warmup:  # a constant, decided at compilation
        # The number of earlier moves after `start`, in an update that moves the average.
        moves = now / float(every) - float(start // every + 1)
        weight = ops.maximum(weight, 9.0 / (10.0 + moves))  # 1 − (1 + n) / (10 + n)
    if every == 1:  # noqa: SIM114 (this condition is a constant, too; the next one is a tensor)
        now = _move(averages, followed, now, weight, start)
    elif ops.logical_or(ops.equal(ops.fmod(now, float(every)), 0.0), now <= start):
        now = _move(averages, followed, now, weight, start)
    return now


def _move(
    averages: Parameters, followed: Parameters, now: Tensor, new_weight: Tensor, start: int
) -> Tensor:
    weight = ops.where(now <= start, ops.ones_like(new_weight), new_weight)
    map_tensors(ops.partial(_follow, weight), averages, followed)
    return now


def _follow(weight: Tensor, average: Parameter, parameter: Parameter) -> Tensor:
    # With weight 1, the average gets the parameter's exact bits.
    return _assign(average, average * (1.0 - weight) + parameter * weight)


@contextlib.contextmanager
def averaged(average: MovingAverage | None) -> Iterator[None]:
    """Assign the averages to the net's parameters inside a `with` block.

    Compiled functions read the averages, too.
    """
    if average is None:
        yield
        return
    trained = [Tensor(parameter.numpy()) for parameter in average.followed]
    try:
        # Not `assign_tensors`: outside of compiled code, its result holds a copy of all weights.
        for parameter, value in zip(average.followed, average.averages, strict=True):
            _assign(parameter, value)
        yield
    finally:
        for parameter, value in zip(average.followed, trained, strict=True):
            _assign(parameter, value)


def averages_of(training: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a dict from parameter names to averaged weights, taken from a checkpoint's `training`
    arrays.
    """
    return {
        name.removeprefix(_PREFIX): array
        for name, array in training.items()
        if name.startswith(_PREFIX)
    }
