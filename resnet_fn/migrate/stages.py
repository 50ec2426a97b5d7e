"""The rungs of the ladder: both sides' figures, side by side, in the order of a training step."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor

from resnet_fn.migrate import import_extra
from resnet_fn.migrate.compare import Stage, difference, relative_error
from resnet_fn.migrate.observed import LATER, Named, Observed

# Relative error ‖a − b‖ / ‖b‖ that passes without a look at rounding; docs/migrating.md has what was measured.
TOLERANCES = {
    "inputs": 0.0,
    "weights": 0.0,
    "eval forward": 1e-5,
    "train forward": 1e-5,
    "loss": 1e-5,
    "gradients": 1e-4,
    "gradient norm": 1e-5,
    "clipped gradients": 1e-4,
    "learning rate": 1e-6,
    "momentum after update 1": 1e-4,
    "change by update 1": 1e-3,
    "weights after update 1": 1e-5,
    "BatchNorm statistics after update 1": 1e-5,
    "loss trajectory": 1e-3,
    f"weights after update {LATER}": 1e-4,
}


def inputs_stage(images: np.ndarray) -> Stage:
    """Do both frameworks get the same images, bit for bit?"""
    torch = import_extra("torch", "the parity ladder")
    return Stage("inputs", [difference("images", Tensor(images).asnumpy(), torch.from_numpy(images).numpy())])


def stages_after_weights(ours: Observed, theirs: Observed, exact: Observed, order: Sequence[str]) -> list[Stage]:
    """Build every stage from the copied weights on.

    Args:
        ours, theirs: the two sides.
        exact: the reference's side in float64.
        order: our parameters and statistics in execution order.
    """
    weights = [name for name in order if name in theirs.gradients]
    statistics = [name for name in order if name not in theirs.gradients]
    logits = relative_error(theirs.train_logits, exact.train_logits)
    every = relative_error(_flat(theirs.gradients), _flat({name: exact.gradients[name] for name in theirs.gradients}))

    def named(stage: str, pick: Callable[[Observed], Named], names: Sequence[str]) -> Stage:
        return _named(stage, pick(ours), pick(theirs), pick(exact), names)

    def single(stage: str, name: str, pick: Callable[[Observed], Any], rounding: float = 0.0) -> Stage:
        found = difference(name, pick(ours), pick(theirs), pick(exact), TOLERANCES[stage], rounding)
        return Stage(stage, [found])

    def change(side: Observed) -> Named:
        return {name: np.subtract(side.first[name], side.start[name], dtype=np.float64) for name in weights}

    return [
        named("weights", lambda side: side.start, order),
        single("eval forward", "logits", lambda side: side.eval_logits),
        single("train forward", "logits", lambda side: side.train_logits),
        single("loss", "loss", lambda side: side.losses[0], logits),
        named("gradients", lambda side: side.gradients, weights[::-1]),
        single("gradient norm", "norm", lambda side: side.norms[0], every),
        named("clipped gradients", lambda side: side.clipped, weights[::-1]),
        _by_update("learning rate", ours.rates, theirs.rates, exact.rates),
        named("momentum after update 1", lambda side: side.momentum, weights),
        named("change by update 1", change, weights),
        named("weights after update 1", lambda side: side.first, weights),
        named("BatchNorm statistics after update 1", lambda side: side.first, statistics),
        _by_update("loss trajectory", ours.losses, theirs.losses, exact.losses, logits),
        named(f"weights after update {LATER}", lambda side: side.later, order if len(ours.losses) >= LATER else []),
    ]


def _flat(values: Named) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in values.values()])


def _named(stage: str, ours: Named, theirs: Named, exact: Named, names: Sequence[str]) -> Stage:
    if not names:
        return Stage(stage, note="there are none")
    if not all(name in side for side in (ours, theirs) for name in names):
        return Stage(stage, note="one side keeps none")
    tolerance = TOLERANCES[stage]
    roundings = dict.fromkeys(names, 0.0)  # what is copied has none
    if tolerance > 0:
        roundings = {name: relative_error(theirs[name], exact[name]) for name in names}
        # A small tensor may come close to its float64 values by luck; the median says what float32 costs here.
        usual = float(np.median(list(roundings.values())))
        roundings = {name: max(usual, rounding) for name, rounding in roundings.items()}
    found = [
        difference(name, ours[name], theirs[name], tolerance=tolerance, rounding=roundings[name]) for name in names
    ]
    return Stage(stage, found)


def _by_update(
    stage: str, ours: Sequence[float], theirs: Sequence[float], exact: Sequence[float], rounding: float = 0.0
) -> Stage:
    found = []
    for number, (a, b, c) in enumerate(zip(ours, theirs, exact, strict=True), 1):
        found.append(difference(f"update {number}", a, b, c, TOLERANCES[stage], rounding))
        rounding = found[-1].rounding  # it only grows on the way, even if one loss comes close by luck
    return Stage(stage, found)
