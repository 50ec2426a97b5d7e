"""These functions end a run with an error, after bad samples, a failed evaluation or numbers that
are not finite.
"""

from typing import NoReturn

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.data.dataset import BadSampleError, describe_bad_samples
from resnet_fn.data.order import Batch
from resnet_fn.run.build import Run
from resnet_fn.run.resume import save
from resnet_fn.runtime.workers import barrier, gather_texts


class NotFiniteError(ValueError):
    """Raised when training ends because numbers in an update are not finite."""


def stop_bad_sample(run: Run, error: BadSampleError | None) -> None:
    """End the run because a rank could not read a sample. Save a checkpoint if at least one update
    is done.

    Every rank calls this function. `error` is the exception on this rank, or None if this rank read
    all samples.
    """
    update, workers = run.progress.update, run.workers
    bad_samples = describe_bad_samples(error, workers)
    if update:
        save(run)
    finish_log(run)
    checkpoint = (
        f"the checkpoint after update {update} is saved" if update else "there is no checkpoint yet"
    )
    fix = "to resume with a repaired file, give --allow-other-data"
    raise BadSampleError(
        f"update {update + 1}: {bad_samples}; the update was not applied; {checkpoint}; {fix}"
    )


def stop_evaluation(run: Run, error: Exception) -> NoReturn:
    """Save a checkpoint, and raise the error of a failed evaluation.

    A resumed run begins with this evaluation.
    """
    save(run)
    if not isinstance(error, BadSampleError):
        run.writer.wait()  # no collective, because other ranks may have no error
        raise error
    finish_log(run)
    after = f"after update {run.progress.update}"
    raise BadSampleError(f"evaluation {after}: {error}; the checkpoint {after} is saved") from None


def finish_log(run: Run) -> None:
    """Wait until the checkpoint and the log are written. Every rank waits for all other ranks."""
    run.writer.wait()
    run.telemetry.checkpointed(run.writer.poll())
    run.telemetry.flush()
    barrier(run.workers)  # because the first rank that raises an error ends all other ranks


def stop_not_finite(run: Run, batch: Batch, not_finite: np.ndarray, skipped_in_row: int) -> None:
    """End the run and save no checkpoint, because numbers of an update are not finite. Every rank
    calls this function.

    `not_finite` is an array [workers], with 1 for each rank that found its loss, gradients or
    BatchNorm statistics not finite. Each rank with a 1 saves its batch to a file not-finite-….npz.
    If there is no 1, every rank saves its batch.
    """
    folder, workers, update = run.folder, run.workers, run.progress.update
    indices = run.feed.indices(update - 1)
    suspects = np.flatnonzero(not_finite if not_finite.any() else np.ones_like(not_finite))
    files = [f"not-finite-{update:08d}-rank-{rank}.npz" for rank in range(workers.size)]
    samples = gather_texts(
        f"rank {workers.rank}, samples {suspect_samples(batch[0], indices)}", workers
    )
    if workers.rank in suspects:
        folder.path.mkdir(parents=True, exist_ok=True)
        np.savez(
            folder.path / files[workers.rank], images=batch[0], labels=batch[1], indices=indices
        )
    finish_log(run)
    overflows = f"{skipped_in_row} updates in a row were skipped, in spite of loss scaling; " * (
        skipped_in_row > 1
    )
    ranks = "a rank or in the ranks' sum: " * (not not_finite.any()) + "; ".join(
        samples[rank] for rank in suspects
    )
    batch_files = (
        f"the batch is kept in {folder.path}: {', '.join(files[rank] for rank in suspects)}"
    )
    good = folder.updates()
    checkpoint = (
        f"last good checkpoint: {folder.checkpoint_path(good[-1])}"
        if good
        else "there is no checkpoint yet"
    )
    fault = (
        f"{overflows}loss or gradients are not finite on {ranks}; {batch_files}; the update "
        "was not applied"
    )
    raise NotFiniteError(
        f"update {update}: {fault}; {checkpoint}; fix the data or lower the learning rate"
    )


def suspect_samples(images: np.ndarray, indices: np.ndarray) -> str:
    """List the `indices` of up to 12 images that are not finite.

    If all are finite, list the first 12 `indices`.
    """
    wrong = ~np.isfinite(images).reshape(len(images), -1).all(1)
    return few((indices[wrong] if wrong.any() else indices).tolist(), 12, " ")
