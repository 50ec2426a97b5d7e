"""When loss or gradients are not finite: who had them, with which samples, kept for a post-mortem; then stop."""

from pathlib import Path

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.runtime.workers import Workers, sum_over_ranks


class NotFiniteError(ValueError):
    """Training cannot go on; the message names update, ranks, samples, and the last good checkpoint."""


def keep_batch(
    run: Path, update: int, images: np.ndarray, labels: np.ndarray, indices: np.ndarray, workers: Workers
) -> Path:
    """Write this rank's share of an update to `<run>/not-finite-<update>-rank-<rank>.npz`: images, labels, indices."""
    path = run / f"not-finite-{update:08d}-rank-{workers.rank}.npz"
    run.mkdir(parents=True, exist_ok=True)
    np.savez(path, images=images, labels=labels, indices=indices)
    return path


def describe(
    update: int, broken: np.ndarray, images: np.ndarray, indices: np.ndarray, run: Path, workers: Workers
) -> str:
    """Say on every rank alike which rank and samples were not finite; all ranks must call it.

    Args:
        update: the update's number, from 1.
        broken: [workers], 1 for each rank whose own loss or gradients were not finite.
        images, indices: this rank's share. Samples whose input is not finite are named alone; else the share.
        run: where `keep_batch` wrote.
    """
    wrong = ~np.isfinite(images).all(axis=(1, 2, 3))
    # A row for each rank: an index + 1 where the sample is suspect. The sum over the ranks is exact up to 2^24.
    rows = np.zeros((workers.size, len(indices)), np.float32)
    rows[workers.rank] = np.where(wrong if wrong.any() else np.ones_like(wrong), indices + 1, 0)
    rows = sum_over_ranks(rows, workers)
    suspects = find_suspects(broken)
    where = "; ".join(f"rank {r}, samples {few([int(v) - 1 for v in rows[r] if v], 12, ' ')}" for r in suspects)
    if not broken.any():
        where = f"one of these, or in their sum: {where}"
    files = ", ".join(f"not-finite-{update:08d}-rank-{rank}.npz" for rank in suspects)
    return f"update {update}: loss or gradients are not finite on {where}; the batch is kept in {run}: {files}"


def find_suspects(broken: np.ndarray) -> np.ndarray:
    """The ranks that `broken` names; all, where none shows what is wrong (in its loss or first layer's gradient)."""
    return np.flatnonzero(broken if broken.any() else np.ones_like(broken))
