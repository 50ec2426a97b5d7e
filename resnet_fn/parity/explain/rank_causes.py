"""Explain a difference by a wrong sum or mean over the workers."""

import math
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
    return _CAUSES[case.stage.id](case) if case.ours.workers and case.stage.id in _CAUSES else []


def _runs(case: StageCase) -> list[Run]:
    """Return the run of each worker, in the order of ranks."""
    return [worker.run for worker in case.ours.workers]


def _loss(case: StageCase) -> list[str]:
    runs, right = _runs(case), case.theirs.run.losses[0]
    losses, own = [one.losses[0] for one in runs], [one.own_losses[0] for one in runs]
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
    count, groups = len(case.ours.workers), dict[str, list[str]]()
    theirs = case.names.rename(case.theirs.run.gradients, name_map.GRADIENTS)
    for name in case.differing():
        each = [one.gradients[name] for one in _runs(case)]
        if any(relative_error(one, each[0]) > FITS for one in each):
            groups.setdefault("each worker has other values; sum them over the workers", []).append(
                name
            )
        elif relative_error(each[0], count * theirs[name]) < FITS:
            groups.setdefault(
                f"{count} times the reference's: counted once for each worker", []
            ).append(name)
    return [f"{few(names)}: {words}" for words, names in groups.items()]


def _norm(case: StageCase) -> list[str]:
    runs, count = _runs(case), len(case.ours.workers)
    norms = [one.norms[0] for one in runs]
    own = np.array([math.hypot(*map(norm, one.sent.values())) for one in runs])
    # A step divides by the workers before the sum or after it.
    if any(np.allclose(norms, times * own, FITS, 0) for times in (1, count)):
        return ["each worker takes the norm of its own gradients; take it after their sum"]
    squares = {name: norm(one) ** 2 for name, one in runs[0].gradients.items()}
    more = (norms[0] ** 2 - case.theirs.run.norms[0] ** 2) / (count - 1)
    squares["every parameter"] = sum(squares.values())
    counted = [name for name, square in squares.items() if math.isclose(square, more, rel_tol=FITS)]
    return (
        [f"{few(counted)}: counted {count} times in the norm, once for each worker"]
        if counted
        else []
    )


def _statistics(case: StageCase) -> list[str]:
    own, after = (
        [one.own_statistics for one in _runs(case)],
        [one.after[0] for one in _runs(case)],
    )
    sources = {"each worker keeps the statistics of its own share": own}
    sources |= {
        f"the statistics of rank {rank} alone": [one] * len(own) for rank, one in enumerate(own)
    }

    def kept(name: str, source: Sequence[Arrays]) -> bool:
        return all(
            relative_error(a[name], b[name]) < EXACT for a, b in zip(after, source, strict=True)
        )

    pairs = [
        (words, [name for name in case.differing() if kept(name, source)])
        for words, source in sources.items()
    ]
    return [
        f"{few(names)}: {words}; take the mean over the workers" for words, names in pairs if names
    ]


_CAUSES = {LOSS: _loss, GRADIENTS: _gradients, NORM: _norm, STATISTICS: _statistics}
