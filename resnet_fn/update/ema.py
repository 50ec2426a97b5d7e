"""The exponential moving average of a net's weights (Polyak and Juditsky, 1992), as part of the update."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.recipe import Recipe
from resnet_fn.update.batchnorm import batchnorm_statistics
from resnet_fn.update.gradients import each

_PREFIX, _COUNT = "ema.", "ema_updates"


class Ema(NamedTuple):
    """A moving average.

    Attributes:
        state: `ema.<parameter>` for each parameter, and the updates it has followed, float32 scalar.
        averages: those of `state` that are averages, in the order of `followed`.
        followed: the net's parameters that change.
        update: moves the average after an update, inside jit.
    """

    state: tuple[Parameter, ...]
    averages: tuple[Parameter, ...]
    followed: tuple[Parameter, ...]
    update: Callable[[], Tensor]


def moving_average(parameters: Sequence[Parameter], decay: float, every: int = 1, start: int = 0) -> Ema:
    """Follow a net: average ← decay · average + (1 − decay) · parameter, every `every` updates.

    BatchNorm's moving statistics are averaged like the weights that they belong to, as torchvision's
    ExponentialMovingAverage does with `use_buffers`. Skipped updates do not count.

    Args:
        parameters: all of the net's, float32.
        decay: 0 <= decay < 1.
        every: updates between two moves.
        start: for so many updates the average is a plain copy (the first moves must not remember the initialisation).
    """
    averages = tuple(Parameter(p.copy(), name=_PREFIX + p.name, requires_grad=False) for p in parameters)
    count = Parameter(Tensor(np.float32(0)), name=_COUNT, requires_grad=False)
    followed = tuple(parameters)
    share = Tensor(1.0 - decay, mindspore.float32)
    whole = Tensor(1.0, mindspore.float32)

    def move(now: Tensor) -> Tensor:
        part = ops.select(now <= start, whole, share)
        each(ops.partial(_follow, part), averages, followed)
        return now

    def update() -> Tensor:
        # Each branch gives a value that is used: MindSpore drops what a branch does that gives none, and cannot write a
        # graph to a file in which one returns None.
        now = count + 1.0
        ops.assign(count, now)
        if every == 1:  # noqa: SIM114 (a constant here, a tensor below: one is compiled, the other computed)
            now = move(now)
        elif ops.logical_or(ops.equal(ops.fmod(now, float(every)), 0.0), now <= start):
            now = move(now)
        return now

    return Ema((*averages, count), averages, followed, update)


def make_ema(recipe: Recipe, net: nn.Cell, updates_per_epoch: float) -> Ema | None:
    """The recipe's moving average of a net, if it has one: of all its parameters but the frozen ones."""
    if not recipe.ema:
        return None
    statistics = {id(parameter) for parameter in batchnorm_statistics(net)}
    parameters = [p for p in net.get_parameters() if p.requires_grad or id(p) in statistics]
    return moving_average(parameters, recipe.ema, recipe.ema_every, round(recipe.ema_start * updates_per_epoch))


def _follow(part: Tensor, average: Parameter, parameter: Parameter) -> Tensor:
    # Exact where part is 1: a plain copy has the very bits.
    return ops.assign(average, average * (1.0 - part) + parameter * part)


@contextlib.contextmanager
def averaged(ema: Ema | None) -> Iterator[None]:
    """Put the averages into the net that they follow, and its own bits back afterwards; without an average do nothing.

    With `ops.assign`, which functions that are already compiled see.
    """
    if ema is None:
        yield
        return
    own = [Tensor(parameter.asnumpy()) for parameter in ema.followed]
    try:
        for parameter, average in zip(ema.followed, ema.averages, strict=True):
            ops.assign(parameter, average)
        yield
    finally:
        for parameter, value in zip(ema.followed, own, strict=True):
            ops.assign(parameter, value)


def averages_of(training: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The averaged weights among a checkpoint's training state, by the parameter's name; empty where there are none."""
    return {name.removeprefix(_PREFIX): array for name, array in training.items() if name.startswith(_PREFIX)}
