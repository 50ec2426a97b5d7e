"""Explain a difference by a wrong sum or mean over the workers."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from resnet_fn.config.hints import few
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
    return causes(case) if causes and case.ours.workers else []


def _runs(case: StageCase) -> list[Run]:
    """Return the run of each worker, in the order of ranks."""
    return [worker.run for worker in case.ours.workers]


def _loss(case: StageCase) -> list[str]:
    runs = _runs(case)
    right = case.theirs.run.losses[0]
    losses = [one.losses[0] for one in runs]
    own = [one.own_losses[0] for one in runs]
    if np.allclose(losses, own, EXACT, 0):
        return ["each worker returns the loss of its own share; return the mean over the workers"]
    of_batch = [one for one in runs[0].own_losses[1:2] if math.isclose(one, right, rel_tol=EXACT)]
    if of_batch and np.allclose(losses, np.mean(own), EXACT, 0):
        means = few([f"{one:.6g}" for one in own])
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
    theirs = case.names.rename(case.theirs.run.gradients, name_map.GRADIENTS)
    for name in case.differing():
        each = [one.gradients[name] for one in runs]
        first = each[0]
        if any(relative_error(one, first) > FITS for one in each):
            groups[several].append(name)
        elif relative_error(first, count * theirs[name]) < FITS:
            groups[repeated].append(name)
    return [f"{few(names)}: {words}" for words, names in groups.items()]


def _norm(case: StageCase) -> list[str]:
    runs = _runs(case)
    count = len(runs)
    norms = [one.norms[0] for one in runs]
    own = np.array([math.hypot(*map(norm, one.sent.values())) for one in runs])
    # A step divides by the workers before the sum or after it.
    if any(np.allclose(norms, times * own, FITS, 0) for times in (1, count)):
        return ["each worker takes the norm of its own gradients; take it after their sum"]
    squares = {name: norm(one) ** 2 for name, one in runs[0].gradients.items()}
    right = case.theirs.run.norms[0]
    more = (norms[0] ** 2 - right**2) / (count - 1)
    squares["every parameter"] = sum(squares.values())
    counted = [name for name, square in squares.items() if math.isclose(square, more, rel_tol=FITS)]
    if not counted:
        return []
    return [f"{few(counted)}: counted {count} times in the norm, once for each worker"]


def _statistics(case: StageCase) -> list[str]:
    runs = _runs(case)
    own = [one.own_statistics for one in runs]
    after = [one.after[0] for one in runs]
    sources = {"each worker keeps the statistics of its own share": own}
    for rank, one in enumerate(own):
        sources[f"the statistics of rank {rank} alone"] = [one] * len(own)

    def kept(name: str, source: Sequence[Arrays]) -> bool:
        pairs = zip(after, source, strict=True)
        return all(relative_error(a[name], b[name]) < EXACT for a, b in pairs)

    causes = []
    for words, source in sources.items():
        names = [name for name in case.differing() if kept(name, source)]
        if names:
            causes.append(f"{few(names)}: {words}; take the mean over the workers")
    return causes


_CAUSES = {LOSS: _loss, GRADIENTS: _gradients, NORM: _norm, STATISTICS: _statistics}
