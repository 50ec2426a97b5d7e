"""Find layers that draw random numbers although dropout is 0, and mark the stages that cannot be
compared.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.dropout import dropout_stage
from resnet_fn.parity.layers.difference import relative_error
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.stages import (
    ALONE,
    EVAL_FORWARD,
    RATE,
    SETTINGS,
    SKIPPED,
    TRAIN_FORWARD,
    Stage,
)
from resnet_fn.parity.trace import Arrays, Recording

# two calls with a larger relative error are random; below that, kernels may not repeat exactly
_RANDOM = 1e-3
_DRAWN = 1e-6  # the same limit if the net draws random numbers
# a net that draws random numbers is called so often: in few calls, drop-path may drop nothing
_CALLS = 8


def is_random(call: Callable[[], Arrays], drawn: Callable[[], Any] = tuple) -> bool:
    """Return whether repeated calls give different arrays.

    `drawn` returns the state of the random generator.
    """
    before, first = drawn(), call()
    moved = not np.array_equal(before, drawn())
    return any(
        is_apart(first, call(), _DRAWN if moved else _RANDOM) for _ in range(_CALLS if moved else 1)
    )


def is_apart(first: Arrays, others: Arrays, limit: float = _DRAWN) -> bool:
    """Return whether any two arrays of the same name have a relative error above `limit`."""
    return any(relative_error(first[name], value) > limit for name, value in others.items())


def cut_random(layers: list[Layer], again: Sequence[Layer]) -> str:
    """Delete the executions from the first random output on, or all if none is found.

    Return words for the source.
    """
    others = {layer.title: layer for layer in again}

    def repeats(layer: Layer, what: str) -> bool:
        value, other = getattr(layer, what), others.get(layer.title)
        return other is not None and (
            value is None or not relative_error(value, getattr(other, what)) > _DRAWN
        )

    changed = [index for index, layer in enumerate(layers) if not repeats(layer, "output")]
    drawing = [layers[index] for index in changed if repeats(layers[index], "input")]
    del layers[min(changed, default=0) :]  # if no output is random, the source is unknown
    unnamed = "code between its layers, or the loss,"
    return f"{drawing[0].title} ({drawing[0].class_name})" if drawing else unnamed


def with_doubts(
    stages: list[Stage], ours: Recording, theirs: Recording, layers: Mapping[str, str]
) -> list[Stage]:
    """Add the dropout stage, and change the verdicts of stages in which a net draws random
    numbers.
    """
    names = [stage.name for stage in stages]
    evaluation, after = stages[names.index(EVAL_FORWARD)], names.index(TRAIN_FORWARD)
    # on purpose: with dropout set to 0 they may repeat
    both = ours.random_eval and theirs.random_eval
    if both and (ours.random_train or theirs.random_train):
        evaluation.undecided = (
            "both nets draw random numbers in evaluation mode too; switch that off to compare"
        )
    for recording, side in ((ours, "the net"), (theirs, "the reference")):
        if recording.random_eval and not both:
            words = (
                f"{side} gives another output each time it is called in evaluation mode: "
                "dropout is left on"
            )
            evaluation.failed, evaluation.hints = words, [*evaluation.hints, words]
        for stage in stages[after:] if recording.random_train else ():
            if stage.name not in (RATE, SETTINGS, ALONE) and stage.verdict != SKIPPED:
                place = f"in {side} {recording.random_train}"
                # only one side has some outputs, or its loss fails
                if stage.differences and not stage.hints:
                    stage.failed = ""
                stage.undecided = (
                    f"{place} draws random numbers in training; switch it off to compare"
                )
    dropout = dropout_stage(ours, theirs, layers)
    return [*stages[:after], *([dropout] if dropout.verdict != SKIPPED else ()), *stages[after:]]
