"""The rungs of the ladder: both sides' figures, side by side, in the order of a training step."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor

from resnet_fn.parity.compare import Stage, difference, relative_error
from resnet_fn.parity.trace import LATER, Named, Trace
from resnet_fn.runtime.extras import import_extra

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


@dataclasses.dataclass(frozen=True)
class TracePair:
    """Whose figures are compared.

    Attributes:
        ours, theirs: the two sides.
        exact: the reference's side in float64.
        undecided: `exact` again, with every ReLU input that is within rounding of 0 on its other side (`kinks`);
            None without.
    """

    ours: Trace
    theirs: Trace
    exact: Trace
    undecided: Trace | None = None

    @property
    def faultless(self) -> list[Trace]:
        """Those whose distance from `exact` is no fault."""
        return [self.theirs] if self.undecided is None else [self.theirs, self.undecided]

    def rounding(self, pick: Callable[[Trace], Any]) -> float:
        """How far from the float64 values is no fault."""
        exact = pick(self.exact)
        return max(relative_error(pick(side), exact) for side in self.faultless)

    def named(self, stage: str, pick: Callable[[Trace], Named], names: Sequence[str]) -> Stage:
        """Compare parameter by parameter."""
        if not names:
            return Stage(stage, note="there are none")
        ours, theirs, tolerance = pick(self.ours), pick(self.theirs), TOLERANCES[stage]
        if not all(name in side for side in (ours, theirs) for name in names):
            return Stage(stage, note="one side keeps none")
        roundings = dict.fromkeys(names, 0.0)  # what is copied has none
        if tolerance > 0:
            exact, sides = pick(self.exact), [pick(side) for side in self.faultless]
            roundings = {name: max(relative_error(side[name], exact[name]) for side in sides) for name in names}
        # A small tensor may come close to its float64 values by luck; the median says what float32 costs here.
        usual = float(np.median(list(roundings.values())))
        found = [
            difference(name, ours[name], theirs[name], tolerance=tolerance, rounding=max(usual, roundings[name]))
            for name in names
        ]
        return Stage(stage, found)

    def single(self, stage: str, name: str, pick: Callable[[Trace], Any], rounding: float = 0.0) -> Stage:
        """Compare one array or figure."""
        rounding = max(rounding, self.rounding(pick))
        ours, theirs = pick(self.ours), pick(self.theirs)
        return Stage(stage, [difference(name, ours, theirs, tolerance=TOLERANCES[stage], rounding=rounding)])

    def by_update(self, stage: str, *picks: Callable[[Trace], Sequence[Any]]) -> Stage:
        """Compare one figure of each update, the first pick; its rounding is the largest of all picks'."""
        found, rounding = [], 0.0
        for index, (ours, theirs) in enumerate(zip(picks[0](self.ours), picks[0](self.theirs), strict=True)):
            # It only grows on the way.
            rounding = max(rounding, *(self.rounding(lambda side: pick(side)[index]) for pick in picks))  # noqa: B023
            name = f"update {index + 1}"
            found.append(difference(name, ours, theirs, tolerance=TOLERANCES[stage], rounding=rounding))
        return Stage(stage, found)


def stages_after_weights(sides: TracePair, order: Sequence[str]) -> list[Stage]:
    """Build every stage from the copied weights on.

    Args:
        sides: what was observed.
        order: our parameters and statistics in execution order.
    """
    weights = [name for name in order if name in sides.theirs.gradients]
    statistics = [name for name in order if name not in sides.theirs.gradients]
    logits = sides.rounding(lambda side: side.train_logits[0])
    every = sides.rounding(lambda side: np.concatenate([np.ravel(side.gradients[name]) for name in weights]))

    def change(side: Trace) -> Named:
        return {name: np.subtract(side.first[name], side.start[name], dtype=np.float64) for name in weights}

    return [
        sides.named("weights", lambda side: side.start, order),
        sides.single("eval forward", "logits", lambda side: side.eval_logits),
        sides.single("train forward", "logits", lambda side: side.train_logits[0]),
        sides.single("loss", "loss", lambda side: side.losses[0], logits),
        sides.named("gradients", lambda side: side.gradients, weights[::-1]),
        sides.single("gradient norm", "norm", lambda side: side.norms[0], every),
        sides.named("clipped gradients", lambda side: side.clipped, weights[::-1]),
        sides.by_update("learning rate", lambda side: side.rates),
        sides.named("momentum after update 1", lambda side: side.momentum, weights),
        sides.named("change by update 1", change, weights),
        sides.named("weights after update 1", lambda side: side.first, weights),
        sides.named("BatchNorm statistics after update 1", lambda side: side.first, statistics),
        # One loss may come close to its float64 value by luck, and does by a factor of 4 every sixth time; the logits
        # are many.
        sides.by_update("loss trajectory", lambda side: side.losses, lambda side: side.train_logits),
        sides.named(
            f"weights after update {LATER}", lambda side: side.later, order if len(sides.ours.losses) >= LATER else []
        ),
    ]
