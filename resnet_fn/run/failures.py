"""These functions end a run with an error on all workers: after unreadable samples or numbers that are not finite."""

from typing import NoReturn

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.data.dataset import BadSampleError, describe_bad_samples
from resnet_fn.data.order import Batch
from resnet_fn.run.build import Run
from resnet_fn.run.resume import save
from resnet_fn.runtime.workers import barrier, gather_texts


class NotFiniteError(ValueError):
    """Training cannot go on: numbers are not finite. The message names update, ranks, samples, last good checkpoint."""


def stop_bad_sample(run: Run, error: BadSampleError | None) -> None:
    """Save a checkpoint and end the run on all ranks; `error` is this rank's, None if the bad sample is another's."""
    update, workers = run.progress.update, run.workers
    where = describe_bad_samples(error, workers)
    if update:
        save(run)
    finish_log(run)
    saved = f"the checkpoint after update {update} is saved" if update else "there is no checkpoint yet"
    again = "going on with a repaired file needs --allow-other-data"
    raise BadSampleError(f"update {update + 1}: {where}; the update was not applied; {saved}; {again}")


def stop_evaluation(run: Run, error: Exception) -> NoReturn:
    """Save a checkpoint and end the run with an evaluation's error; a resumed run begins with that evaluation.

    A `BadSampleError` is raised on all ranks. Another error may be only this rank's, so no collective follows.
    """
    save(run)
    if not isinstance(error, BadSampleError):
        run.writer.wait()
        raise error
    finish_log(run)
    update = run.progress.update
    saved = f"the checkpoint after update {update} is saved"
    raise BadSampleError(f"evaluation after update {update}: {error}; {saved}") from None


def finish_log(run: Run) -> None:
    """Wait until all ranks have written checkpoints and log, because the first rank that fails ends the others."""
    run.writer.wait()
    run.telemetry.checkpointed(run.writer.poll())
    run.telemetry.flush()
    barrier(run.workers)


def stop_not_finite(run: Run, batch: Batch, not_finite: np.ndarray, skipped_in_row: int) -> None:
    """End the run on all ranks without a checkpoint; each suspect rank writes its samples to not-finite-….npz.

    `not_finite`, [workers], is 1 for each rank whose own loss or gradients were not finite. If no rank has a 1 (the
    fault arose in a later layer, or in the sum over the ranks), all ranks are suspect.
    """
    folder, workers, update = run.folder, run.workers, run.progress.update
    indices = run.feed.indices(update - 1)
    suspects = np.flatnonzero(not_finite if not_finite.any() else np.ones_like(not_finite))
    files = [f"not-finite-{update:08d}-rank-{rank}.npz" for rank in range(workers.size)]
    samples = gather_texts(f"rank {workers.rank}, samples {suspect_samples(batch[0], indices)}", workers)
    if workers.rank in suspects:
        folder.path.mkdir(parents=True, exist_ok=True)
        np.savez(folder.path / files[workers.rank], images=batch[0], labels=batch[1], indices=indices)
    finish_log(run)
    times = f"{skipped_in_row} overflows in a row at update {update}, the loss scale does not help; "
    where = "one of these, or in their sum: " * (not not_finite.any()) + "; ".join(samples[rank] for rank in suspects)
    kept = f"the batch is kept in {folder.path}: {', '.join(files[rank] for rank in suspects)}"
    good = folder.updates()
    last = f"last good checkpoint: {folder.checkpoint_path(good[-1])}" if good else "there is no checkpoint yet"
    text = f"update {update}: loss or gradients are not finite on {where}; {kept}; the update was not applied; {last}"
    raise NotFiniteError(f"{times * (skipped_in_row > 1)}{text}; fix the data or lower the learning rate")


def suspect_samples(images: np.ndarray, indices: np.ndarray) -> str:
    """Return, as text, the first indices of images [n, …] that are not finite; if all are finite, of all images."""
    wrong = ~np.isfinite(images).reshape(len(images), -1).all(1)
    return few((indices[wrong] if wrong.any() else indices).tolist(), 12, " ")
