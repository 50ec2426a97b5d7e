"""These functions end a run with an error, after a batch that could not be prepared, a failed
evaluation or numbers that are not finite.
"""

import contextlib
import io
from pathlib import Path
from typing import NoReturn

import numpy as np

from resnet_fn.config.cli import one_line
from resnet_fn.config.wording import first_few
from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.order import Batch
from resnet_fn.data.worker_errors import WorkerError, error_of_all
from resnet_fn.run.build import Run
from resnet_fn.run.resume import save
from resnet_fn.runtime.workers import broadcast_text, gather_texts

_SHARED = (BadSampleError, WorkerError)  # errors that every worker raises


class NotFiniteError(ValueError):
    """Raised when training ends because numbers in an update are not finite."""


def stop_without_batch(run: Run, error: Exception | None) -> NoReturn:
    """End the run because a worker could not prepare its batch. Save a checkpoint if at least one
    update is done.

    Every worker calls this function. `error` is the exception on this worker, or None if it has
    its batch.
    """
    error = error_of_all(error, run.workers)
    saved = save_and_wait(run)
    fix = "; to resume with a repaired file, give --allow-other-data"
    after = f"the update was not applied; {saved}{fix * isinstance(error, BadSampleError)}"
    _raise(run, error, f"update {run.progress.update + 1}", after)


def stop_evaluation(run: Run, error: Exception) -> NoReturn:
    """Save a checkpoint if there is none of this update, and raise the error of a failed
    evaluation.

    A resumed run begins with this evaluation.
    """
    if run.workers.size > 1 and not isinstance(error, _SHARED):
        # The other workers may have no error, so nobody waits for them. A save needs none of them.
        if run.workers.is_main:
            with contextlib.suppress(Exception):  # `error` is raised
                _save_if_new(run)
                run.writer.wait()
        raise error
    saved = save_and_wait(run)
    _raise(run, error, f"evaluation after update {run.progress.update}", saved)


def save_and_wait(run: Run) -> str:
    """Save a checkpoint if updates were made since the last one, and wait until it and the log are
    written. Every worker must call this function.

    Returns:
        What became of the checkpoint, the same text on every worker, for an error message.
    """
    update = run.progress.update
    saved = f"the checkpoint after update {update} is saved"
    if not update:
        saved = "there is no checkpoint yet"
    return finish_files(run, saves=True) or saved


def _save_if_new(run: Run) -> None:
    if run.progress.update > run.saved:
        save(run)


def finish_files(run: Run, saves: bool = False) -> str:
    """Wait until every worker has written checkpoints and the log. If `saves` is True, first save
    a checkpoint of updates that none contains.

    Returns:
        The error of rank 0, which writes these files, or "". An error is returned because the error
        that ends the run must be raised.
    """
    fault = ""
    try:
        if saves:
            _save_if_new(run)
        run.writer.wait()
        run.telemetry.checkpointed(run.writer.poll())
        run.telemetry.flush()
    except Exception as error:  # a full disk, but also a lack of memory or threads, NaN …
        fault = one_line(error)
    # The other workers wait here, because the first worker that raises an error ends all workers.
    return broadcast_text(fault, run.workers)


def _raise(run: Run, error: Exception, where: str, after: str) -> NoReturn:
    """Raise an error of all workers, with `where` and `after` in its message or printed."""
    if isinstance(error, _SHARED):
        raise type(error)(f"{where}: {error}; {after}") from error.__cause__
    run.telemetry.say(f"{where}: failed; {after}")
    raise error


def stop_not_finite(
    run: Run,
    batch: Batch,
    not_finite: np.ndarray,
    skipped_in_row: int,
    write_error: Exception | None = None,
) -> NoReturn:
    """End the run and save no checkpoint, because numbers of an update are not finite. Every worker
    calls this function.

    `not_finite` is an array [workers], with 1 for each worker that found its loss, gradients or
    BatchNorm statistics not finite. Each worker with a 1 saves its batch to a file
    not-finite-….npz. If there is no 1, every worker saves its batch. `write_error` is an error of
    the log or an earlier checkpoint.
    """
    folder = run.folder
    workers = run.workers
    update = run.progress.update
    indices = run.feed.indices(update - 1)
    suspects = np.flatnonzero(not_finite if not_finite.any() else np.ones_like(not_finite))
    samples = gather_texts(
        f"rank {workers.rank}, samples {suspect_samples(batch[0], indices)}", workers
    )
    files = [f"not-finite-{update:08d}-rank-{rank}.npz" for rank in range(workers.size)]
    fault = ""
    if workers.rank in suspects:
        fault = _keep_batch(folder.path / files[workers.rank], batch, indices)
    faults = gather_texts(fault, workers)
    kept = ", ".join(files[rank] for rank in suspects if not faults[rank])
    lost = ", ".join(f"{files[rank]} ({faults[rank]})" for rank in suspects if faults[rank])
    other_fault = finish_files(run)
    if write_error is not None:
        other_fault = one_line(write_error)
    overflows = f"{skipped_in_row} updates in a row were skipped, in spite of loss scaling; " * (
        skipped_in_row > 1
    )
    ranks = "a rank or in the ranks' sum: " * (not not_finite.any()) + "; ".join(
        samples[rank] for rank in suspects
    )
    # later checkpoints are of an earlier process, and damaged
    good = [number for number in folder.updates() if number <= run.saved]
    checkpoint = (
        f"last good checkpoint: {folder.checkpoint_path(good[-1])}"
        if good
        else "there is no checkpoint yet"
    )
    parts = (
        f"update {update}: {overflows}loss or gradients are not finite on {ranks}",
        f"the batch is kept in {folder.path}: {kept}" if kept else "",
        f"the batch cannot be kept: {lost}" if lost else "",
        "the update was not applied",
        checkpoint,
        "fix the data or lower the learning rate",
        f"also: {other_fault}" if other_fault else "",
    )
    raise NotFiniteError("; ".join(filter(None, parts)))


def _keep_batch(file: Path, batch: Batch, indices: np.ndarray) -> str:
    """Save a batch as an .npz file. Return what prevented it, or ""."""
    try:
        # in memory first, because zipfile cannot close a file on a full disk without an error
        npz = io.BytesIO()
        np.savez(npz, images=batch[0], labels=batch[1], indices=indices)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(npz.getbuffer())
    except Exception as error:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        return getattr(error, "strerror", None) or one_line(error)
    return ""


def suspect_samples(images: np.ndarray, indices: np.ndarray) -> str:
    """List the `indices` of up to 12 images that are not finite.

    If all are finite, list the first 12 `indices`.
    """
    wrong = ~np.isfinite(images).reshape(len(images), -1).all(1)
    return first_few((indices[wrong] if wrong.any() else indices).tolist(), 12, " ")
