"""Randomness in training: how much a net's dropout drops, and what is random with dropout set to 0."""

import difflib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.layers.difference import DIFFERS, difference, relative_error
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.stages import ALONE, EVAL_FORWARD, RATE, SETTINGS, SKIPPED, TRAIN_FORWARD, Stage
from resnet_fn.parity.trace import Arrays, Drop, Recording

DROPOUT = "dropout"
_DROPPING = ("dropout", "drop path", "attention", "lstm", "gru", "rnn")  # layers that drop once in each call
_RANDOM = 1e-3  # two calls further apart than this are random; kernels may not repeat bit for bit
_DRAWN = 1e-6  # the same for a net that draws random numbers
_CALLS = 8  # of a net that draws random numbers, to see whether it repeats: a drop-path may happen to drop nothing


def drops_of(dropped: Sequence[tuple[str, str, float]], layers: Sequence[Layer]) -> list[Drop]:
    """Where a net drops, in execution order.

    `dropped`: (layer, attribute, share), set to 0 by `without_dropout`; `layers`: the executions in training mode.
    A share that a block has is left out if a layer inside drops as much: it was handed to that layer. A dropout layer
    that did not run may have given its share to a function (`scaled_dot_product_attention(…, dropout_p=drop.p)`).
    """
    drops: list[Drop] = []
    ran = {"", *(one.name for one in layers)}
    runs = [(one.name, one.title, one.kind in _DROPPING) for one in layers if one.settings.get("num_layers") != 1]
    for name, title, once in [*runs, ("", "the net", False)]:
        for share in [share for other, _, share in dropped if other == name]:
            alike = {other for other, _, inner in dropped if inner == share and other != name}
            if once or not any(other.startswith(f"{name}." if name else "") for other in alike):
                drops.append((title, share, once))
    return drops + [(name, share, None) for name, attribute, share in dropped if attribute == "p" and name not in ran]


def _dropout_stage(ours: Recording, theirs: Recording, layers: Mapping[str, str]) -> Stage:
    """How much both nets drop, before it was set to 0; `layers`: the reference's layer for each of ours."""
    if ours.drops is None or theirs.drops is None:
        old = "a trace of an earlier version has no record of its dropout; record it again"
        return Stage(DROPOUT, undecided=old if ours.drops or theirs.drops else "")
    here, there = ([drop for drop in side.drops or () if drop[2] is not None] for side in (ours, theirs))
    idle = [Counter(round(share, 6) for _, share, once in side.drops or () if once is None) for side in (ours, theirs)]
    keys: list[list[Any]] = [[share for _, share, _ in side] for side in (here, there)]
    if keys[0] != keys[1]:
        paired = {other: other for other in layers.values()}
        sides = ((layers, here), (paired, there))
        keys = [[(names.get(name), share) for name, share, _ in side] for names, side in sides]
    blocks = difflib.SequenceMatcher(a=keys[0], b=keys[1], autojunk=False).get_opcodes()
    pairs = (itertools.zip_longest(here[a:b], there[c:d], fillvalue=("", 0.0, True)) for _, a, b, c, d in blocks)
    differences = []
    for (a, x, _), (b, y, _) in itertools.chain(*pairs):
        if 0 in (x, y) and idle[x > 0][round(x or y, 6)]:  # a layer that did not run may be a function's there
            idle[x > 0][round(x or y, 6)] -= 1
            x = y = x or y
        differences.append(difference(a or b, x, y, tolerance=1e-6))
    wrong, hints = [item for item in differences if item.verdict == DIFFERS], []
    for item in wrong:
        p, keeps = f"{item.theirs:g}", math.isclose(item.ours, 1 - item.theirs)
        words = f": nn.Dropout({p}) keeps {p} in MindSpore; write nn.Dropout(p={p})" if keeps else ""
        hints.append(f"{item.name}: p={item.ours:g} here, {p} in the reference{words}")
    functions = ours.random_train or theirs.random_train or not all(once for _, _, once in (*here, *there))
    doubtful = functions and wrong and all(0 in (item.ours, item.theirs) for item in wrong)
    doubt = f"{'; '.join(hints)}; but a function may drop as much there" if doubtful else ""
    return Stage(DROPOUT, differences, hints=hints, undecided=doubt)


def is_random(call: Callable[[], Arrays], drawn: Callable[[], Any] = tuple) -> bool:
    """Whether calls return different arrays. A call draws random numbers if it changes `drawn`, a generator's state."""
    before, first = drawn(), call()
    moved = not np.array_equal(before, drawn())
    return any(is_apart(first, call(), _DRAWN if moved else _RANDOM) for _ in range(_CALLS if moved else 1))


def is_apart(first: Arrays, others: Arrays, limit: float = _DRAWN) -> bool:
    """Whether arrays of the same names differ."""
    return any(relative_error(first[name], value) > limit for name, value in others.items())


def cut_random(layers: list[Layer], again: Sequence[Layer]) -> str:
    """Cut off the executions from the first that differs in `again`; returns the layer that draws random numbers."""
    others = {layer.title: layer for layer in again}

    def repeats(layer: Layer, what: str) -> bool:
        value, other = getattr(layer, what), others.get(layer.title)
        return other is not None and (value is None or not relative_error(value, getattr(other, what)) > _DRAWN)

    changed = [index for index, layer in enumerate(layers) if not repeats(layer, "output")]
    drawing = [layers[index] for index in changed if repeats(layers[index], "input")]
    del layers[min(changed, default=0) :]
    unnamed = "what stands between its layers, or the loss,"
    return f"{drawing[0].title} ({drawing[0].class_name})" if drawing else unnamed


def with_doubts(stages: list[Stage], ours: Recording, theirs: Recording, layers: Mapping[str, str]) -> list[Stage]:
    """Insert the dropout stage; stages that depend on other randomness differ or are undecided."""
    names = [stage.name for stage in stages]
    evaluation, after = stages[names.index(EVAL_FORWARD)], names.index(TRAIN_FORWARD)
    both = ours.random_eval and theirs.random_eval  # by design: with dropout set to 0 they may repeat
    if both and (ours.random_train or theirs.random_train):
        evaluation.undecided = "both nets draw random numbers in evaluation mode too; switch that off to compare"
    for recording, side in ((ours, "the net"), (theirs, "the reference")):
        if recording.random_eval and not both:
            words = f"{side} gives another output each time it is called in evaluation mode: dropout is left on"
            evaluation.failed, evaluation.hints = words, [*evaluation.hints, words]
        for stage in stages[after:] if recording.random_train else ():
            if stage.name not in (RATE, SETTINGS, ALONE) and stage.verdict != SKIPPED:
                place = f"in {side} {recording.random_train}"
                if stage.differences and not stage.hints:  # a state that one side alone has, of what it skipped
                    stage.failed = ""
                stage.undecided = f"{place} draws random numbers in training; switch it off to compare"
    dropout = _dropout_stage(ours, theirs, layers)
    return [*stages[:after], *([dropout] if dropout.verdict != SKIPPED else ()), *stages[after:]]
