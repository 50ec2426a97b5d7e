"""What a net draws in training: how much its dropout drops, and what is random where that is set to 0."""

import difflib
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from resnet_fn.layers.difference import DIFFERS, difference, relative_error
from resnet_fn.layers.layer import Layer
from resnet_fn.parity.stages import EVAL_FORWARD, RATE, SKIPPED, TRAIN_FORWARD, Stage
from resnet_fn.parity.trace import Arrays, Drop, Recording

DROPOUT = "dropout"
_DROPPING = ("dropout", "drop path", "attention", "lstm", "gru", "rnn")  # layers that drop once in each call
# Two calls of one net that are further apart than this have something random; kernels may not repeat bit for bit.
_RANDOM = 1e-3
_DRAWN = 1e-6  # the same, where the net is known to draw random numbers
_CALLS = 8  # of a net that draws them, before it is taken to repeat: a drop-path may happen to drop nothing


def drops_of(dropped: Sequence[tuple[str, str, float]], layers: Sequence[Layer]) -> list[Drop]:
    """Where a net drops, in the order in which its layers ran: (layer, share, whether it drops once in a call).

    What a layer of layers keeps is left out where a layer inside drops as much: that one was made with it.

    Args:
        dropped: what `without_dropout` set to 0.
        layers: every layer's executions in training mode.
    """
    found = []
    runs = [(layer.name, layer.title, layer.kind in _DROPPING, layer.settings) for layer in layers]
    for name, title, once, settings in [*runs, ("", "the net", False, {})]:
        for share in [share for other, _, share in dropped if other == name and settings.get("num_layers") != 1]:
            inside = (
                other for other, _, its in dropped if its == share and other.startswith(f"{name}." if name else "")
            )
            if once or not set(inside) - {name}:
                found.append((title, share, once))
    return found


def _dropout_stage(ours: Recording, theirs: Recording, layers: Mapping[str, str]) -> Stage:
    """How much both nets drop, before it was set to 0; `layers` has the MindSpore layer's path → the reference's."""
    stage, here, there = Stage(DROPOUT), ours.drops, theirs.drops
    if here is None or there is None:
        if here or there:
            stage.undecided = "a trace of an earlier version does not say how much its net drops; record it again"
        return stage
    shares = [[round(share, 6) for _, share, _ in side] for side in (here, there)]
    keys: list[Sequence[object]] = [*shares]
    if shares[0] != shares[1]:
        keys = [[(layers.get(name), share) for name, share, _ in here], [(name, share) for name, share, _ in there]]
    alone, doubts = [], []
    for _, a, b, c, d in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        for mine, other in itertools.zip_longest(here[a:b], there[c:d]):
            if mine and other:
                item = difference(mine[0], mine[1], other[1], tolerance=1e-6)
                stage.differences.append(item)
                if item.verdict == DIFFERS and abs(item.ours + item.theirs - 1) < 1e-6:
                    call = f"nn.Dropout({item.theirs:g}) keeps {item.theirs:g} in MindSpore"
                    stage.hints.append(f"{item.name}: {call}; write nn.Dropout(p={item.theirs:g})")
            else:
                name, share, once = mine or other
                alone.append(
                    f"{name}: p={share:g} {'here, none in the reference' if mine else 'in the reference, none here'}"
                )
                random = theirs.random_train if mine else ours.random_train
                doubts.append(random or not (once and all(one[2] for one in (there if mine else here))))
    if alone and all(doubts) and not stage.first:
        stage.undecided = f"{'; '.join(alone)}, unless a function there drops as much"
    else:
        stage.failed, stage.hints = "; ".join(alone), [*stage.hints, *alone]
    return stage


def is_random(call: Callable[[], Arrays], drawn: Callable[[], object] = tuple) -> bool:
    """Whether calls with the same inputs give different arrays.

    Args:
        call: what may be random.
        drawn: the state of the framework's random numbers, which says whether a call draws any.
    """
    before, first = drawn(), call()
    moved = not np.array_equal(before, drawn())
    return any(
        relative_error(first[name], value) > (_DRAWN if moved else _RANDOM)
        for _ in range(_CALLS if moved else 1)
        for name, value in call().items()
    )


def cut_random(layers: list[Layer], again: Sequence[Layer]) -> str:
    """Cut off a net's executions from the first that does not repeat `again`; which draws random numbers, in words."""
    pairs, others = [], {layer.title: layer for layer in again}
    for index, layer in enumerate(layers):
        other = others.get(layer.title)
        if other is None or _apart(layer.output, other.output):
            pairs.append((index, layer, other))
    alike = (one for _, one, other in pairs if other and one.further == other.further)
    place = next((one for one in alike if not _apart(one.input, others[one.title].input)), None)
    del layers[pairs[0][0] if pairs else 0 :]
    return f"{place.title} ({place.class_name})" if place else "what stands between its layers, or the loss,"


def _apart(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and relative_error(a, b) > _DRAWN


def with_doubts(stages: list[Stage], ours: Recording, theirs: Recording, layers: Mapping[str, str]) -> list[Stage]:
    """The stages with that of dropout; those that depend on what else is random are undecided."""
    names = [stage.name for stage in stages]
    for place, side in ((ours.random_train, "the net"), (theirs.random_train, "the reference")):
        for stage in stages[names.index(TRAIN_FORWARD) :] if place else ():
            if stage.name != RATE and stage.verdict != SKIPPED:
                stage.undecided = f"in {side} {place} draws random numbers in training; switch it off to compare"
    dropout, after = _dropout_stage(ours, theirs, layers), names.index(EVAL_FORWARD) + 1
    return [*stages[:after], *([dropout] if dropout.verdict != SKIPPED else ()), *stages[after:]]
