"""The stages of the ladder, in the order of a training step: both sides' numbers, side by side."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor

from resnet_fn.parity.compare import DIFFERS, Difference, Stage, difference, relative_error
from resnet_fn.parity.trace import LATER, Arrays, Trace

# Relative error ‖a − b‖ / ‖b‖ that passes without a look at rounding (docs/migrating.md).
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

_SIGMAS = 6.0  # of sampling error; with 500 comparisons a false alarm once in a million runs
_FEW = 8  # with fewer elements only a constant is told from a draw
_MANY = 1000  # elements from which a fourth moment tells a uniform from a normal distribution


def inputs_stage(images: np.ndarray) -> Stage:
    """Do both frameworks get the same images, bit for bit?"""
    import torch

    return Stage("inputs", [difference("images", Tensor(images).asnumpy(), torch.from_numpy(images).numpy())])


def initialisation_stage(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Stage:
    """Compare mean, standard deviation and kurtosis of every pair of parameters within sampling error.

    Args:
        ours, theirs: parameters as each net drew them, under the MindSpore net's names.
    """
    stage = Stage("initialisation")
    for name, b in theirs.items():
        found = _moments(name, np.asarray(ours[name], np.float64).ravel(), np.asarray(b, np.float64).ravel())
        stage.differences += found
        if any(item.verdict == DIFFERS for item in found):
            stage.hints.append(f"{name}: {_words(ours[name])} here, {_words(b)} in the reference")
    return stage


def _words(values: np.ndarray) -> str:
    values = np.asarray(values, np.float64)
    if values.std() == 0:
        return f"all {values.flat[0]:.6g}"
    return f"drawn in {values.min():.3g}..{values.max():.3g} with standard deviation {values.std():.3g}"


def _moments(name: str, a: np.ndarray, b: np.ndarray) -> list[Difference]:
    count, spread_a, spread_b = len(b), float(a.std()), float(b.std())
    if spread_a == 0 or spread_b == 0:
        constant = [_difference(f"{name} mean", float(a.mean()), float(b.mean()), 1.0, 1e-6)]
        return [*constant, _difference(f"{name} std", spread_a, spread_b, spread_b or 1.0, 0.0)]
    if count < _FEW:
        return []
    error = math.sqrt(2 / count)  # of a difference of two means, in standard deviations
    found = [
        _difference(f"{name} mean", float(a.mean()), float(b.mean()), max(spread_a, spread_b), _SIGMAS * error),
        _difference(f"{name} std", spread_a, spread_b, max(spread_a, spread_b), min(_SIGMAS * error / 2**0.5, 0.9)),
    ]
    if count >= _MANY:
        kurtosis_a, kurtosis_b = _kurtosis(a), _kurtosis(b)
        found.append(_difference(f"{name} kurtosis", kurtosis_a, kurtosis_b, 1.0, _SIGMAS * math.sqrt(48 / count)))
    return found


def _kurtosis(values: np.ndarray) -> float:
    squares = np.square(values - values.mean())
    return float(np.square(squares).mean() / squares.mean() ** 2)


def _difference(name: str, ours: float, theirs: float, scale: float, tolerance: float) -> Difference:
    apart = abs(ours - theirs)
    return Difference(name, apart, apart / scale, math.nan, ours, theirs, (), 0.0, tolerance)


@dataclasses.dataclass(frozen=True)
class TracePair:
    """What both sides recorded, and what tells rounding from a fault.

    Attributes:
        ours, theirs: MindSpore's side and PyTorch's.
        exact: PyTorch's side in float64.
        flipped: `exact` again, with every ReLU input that is within rounding of 0 on its other side (`relu_ties`);
            None without.
    """

    ours: Trace
    theirs: Trace
    exact: Trace
    flipped: Trace | None = None

    @property
    def rounded(self) -> list[Trace]:
        """The traces whose distance from `exact` is rounding, not a fault."""
        return [self.theirs] if self.flipped is None else [self.theirs, self.flipped]

    def rounding(self, pick: Callable[[Trace], Any]) -> float:
        """The relative distance from the float64 values that is rounding."""
        exact = pick(self.exact)
        return max(relative_error(pick(trace), exact) for trace in self.rounded)

    def compare_arrays(self, stage: str, pick: Callable[[Trace], Arrays], names: Sequence[str]) -> Stage:
        """Compare parameter by parameter."""
        if not names:
            return Stage(stage, note="there are none")
        ours, theirs, tolerance = pick(self.ours), pick(self.theirs), TOLERANCES[stage]
        if not all(name in side for side in (ours, theirs) for name in names):
            return Stage(stage, note="one side keeps none")
        roundings = dict.fromkeys(names, 0.0)  # what is copied has none
        if tolerance > 0:
            exact, rounded = pick(self.exact), [pick(trace) for trace in self.rounded]
            roundings = {name: max(relative_error(side[name], exact[name]) for side in rounded) for name in names}
        # A small tensor may come close to its float64 values by luck; the median says what float32 costs here.
        usual = float(np.median(list(roundings.values())))
        found = [
            difference(name, ours[name], theirs[name], tolerance=tolerance, rounding=max(usual, roundings[name]))
            for name in names
        ]
        return Stage(stage, found)

    def compare_one(self, stage: str, name: str, pick: Callable[[Trace], Any], rounding: float = 0.0) -> Stage:
        """Compare one array or number; its rounding is at least `rounding`."""
        rounding = max(rounding, self.rounding(pick))
        ours, theirs = pick(self.ours), pick(self.theirs)
        return Stage(stage, [difference(name, ours, theirs, tolerance=TOLERANCES[stage], rounding=rounding)])

    def compare_updates(self, stage: str, *picks: Callable[[Trace], Sequence[Any]]) -> Stage:
        """Compare one number of each update, the first pick; its rounding is the largest of all picks'."""
        found, rounding = [], 0.0
        for index, (ours, theirs) in enumerate(zip(picks[0](self.ours), picks[0](self.theirs), strict=True)):
            # It only grows on the way.
            rounding = max(rounding, *(self.rounding(lambda trace: pick(trace)[index]) for pick in picks))  # noqa: B023
            name = f"update {index + 1}"
            found.append(difference(name, ours, theirs, tolerance=TOLERANCES[stage], rounding=rounding))
        return Stage(stage, found)


def stages_after_weights(pair: TracePair, order: Sequence[str]) -> list[Stage]:
    """Build every stage from the copied weights on.

    Args:
        pair: what both sides recorded.
        order: parameters and statistics in execution order.
    """
    weights = [name for name in order if name in pair.theirs.gradients]
    statistics = [name for name in order if name not in pair.theirs.gradients]
    # One number may come close to its float64 value by luck; the arrays that it is made of are many.
    of_logits = pair.rounding(lambda trace: trace.train_logits[0])
    of_gradients = pair.rounding(lambda trace: np.concatenate([np.ravel(trace.gradients[name]) for name in weights]))

    def change(trace: Trace) -> Arrays:
        return {name: np.subtract(trace.first[name], trace.start[name], dtype=np.float64) for name in weights}

    return [
        pair.compare_arrays("weights", lambda trace: trace.start, order),
        pair.compare_one("eval forward", "logits", lambda trace: trace.eval_logits),
        pair.compare_one("train forward", "logits", lambda trace: trace.train_logits[0]),
        pair.compare_one("loss", "loss", lambda trace: trace.losses[0], of_logits),
        pair.compare_arrays("gradients", lambda trace: trace.gradients, weights[::-1]),
        pair.compare_one("gradient norm", "norm", lambda trace: trace.norms[0], of_gradients),
        pair.compare_arrays("clipped gradients", lambda trace: trace.clipped, weights[::-1]),
        pair.compare_updates("learning rate", lambda trace: trace.rates),
        pair.compare_arrays("momentum after update 1", lambda trace: trace.momentum, weights),
        pair.compare_arrays("change by update 1", change, weights),
        pair.compare_arrays("weights after update 1", lambda trace: trace.first, weights),
        pair.compare_arrays("BatchNorm statistics after update 1", lambda trace: trace.first, statistics),
        pair.compare_updates("loss trajectory", lambda trace: trace.losses, lambda trace: trace.train_logits),
        pair.compare_arrays(
            f"weights after update {LATER}",
            lambda trace: trace.later,
            order if len(pair.ours.losses) >= LATER else [],
        ),
    ]
