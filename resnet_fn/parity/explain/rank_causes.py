"""Explain a difference by a wrong sum or mean over the workers."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.explain.causes import StageCase
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.difference import FITS, norm, relative_error
from resnet_fn.parity.trace.limits import EXACT
from resnet_fn.parity.trace.stages import GRADIENTS, LOSS, NORM, STATISTICS
from resnet_fn.parity.trace.tree import Arrays


def worker_causes(case: StageCase) -> list[str]:
    """Return lines that explain a stage's difference by a wrong sum or mean over the workers."""
    causes = _CAUSES.get(case.stage.id)
    return causes(case) if causes and case.port.workers else []


def _runs(case: StageCase) -> list[Run]:
    """Return the run of each worker, in the order of ranks."""
    return [worker.run for worker in case.port.workers]


def _loss(case: StageCase) -> list[str]:
    runs = _runs(case)
    right = case.reference.run.losses[0]
    losses = [run.losses[0] for run in runs]
    own = [run.own_losses[0] for run in runs]
    if np.allclose(losses, own, EXACT, 0):
        return ["each worker returns the loss of its own share; return the mean over the workers"]
    of_batch = runs[0].own_losses[1:2]
    is_right = any(math.isclose(loss, right, rel_tol=EXACT) for loss in of_batch)
    if is_right and np.allclose(losses, np.mean(own), EXACT, 0):
        means = first_few([f"{loss:.6g}" for loss in own])
        return [
            f"the mean of the workers' means {means}, whose counts differ; weight each mean by its "
            "count"
        ]
    return []


def _gradients(case: StageCase) -> list[str]:
    runs = _runs(case)
    count = len(runs)
    several = "each worker has other values; sum them over the workers"
    repeated = f"{count} times the reference's: counted once for each worker"
    groups: dict[str, list[str]] = defaultdict(list)
    gradients = case.reference.run.gradients
    reference = case.names.rename(gradients, name_map.GRADIENT_KIND)
    for name in case.differing():
        each = [run.gradients[name] for run in runs]
        first = each[0]
        apart = [relative_error(gradient, first) > FITS for gradient in each]
        if any(apart):
            groups[several].append(name)
        elif relative_error(first, count * reference[name]) < FITS:
            groups[repeated].append(name)
    return [f"{first_few(names)}: {cause}" for cause, names in groups.items()]


def _norm(case: StageCase) -> list[str]:
    runs = _runs(case)
    count = len(runs)
    norms = [run.norms[0] for run in runs]
    sent = [run.sent.values() for run in runs]
    lengths = [math.hypot(*map(norm, arrays)) for arrays in sent]
    own = np.array(lengths)
    # A step divides by the workers before the sum or after it.
    of_mean = np.allclose(norms, own, FITS, 0)
    of_sum = np.allclose(norms, count * own, FITS, 0)
    if of_mean or of_sum:
        return ["each worker takes the norm of its own gradients; take it after their sum"]
    first = runs[0].gradients
    squares = {}
    for name, gradient in first.items():
        squares[name] = norm(gradient) ** 2
    right = case.reference.run.norms[0]
    excess = norms[0] ** 2 - right**2
    more = excess / (count - 1)
    squares["every parameter"] = sum(squares.values())
    counted = []
    for name, square in squares.items():
        if math.isclose(square, more, rel_tol=FITS):
            counted.append(name)
    if not counted:
        return []
    return [f"{first_few(counted)}: counted {count} times in the norm, once for each worker"]


def _statistics(case: StageCase) -> list[str]:
    runs = _runs(case)
    own = [run.own_statistics for run in runs]
    after = [run.after[0] for run in runs]
    sources = {"each worker keeps the statistics of its own share": own}
    for rank, statistics in enumerate(own):
        sources[f"the statistics of rank {rank} alone"] = [statistics] * len(own)

    def kept(name: str, source: Sequence[Arrays]) -> bool:
        own = [arrays[name] for arrays in after]
        right = [arrays[name] for arrays in source]
        errors = map(relative_error, own, right)
        return all(error < EXACT for error in errors)

    causes = []
    for cause, source in sources.items():
        names = [name for name in case.differing() if kept(name, source)]
        if names:
            causes.append(f"{first_few(names)}: {cause}; take the mean over the workers")
    return causes


_CAUSES = {LOSS: _loss, GRADIENTS: _gradients, NORM: _norm, STATISTICS: _statistics}
