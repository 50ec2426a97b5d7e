"""The training loop makes the updates, evaluates after epochs, and saves checkpoints.

There are no callbacks. `train` builds the run. `run_epochs` calls `train_epoch`, `evaluate_epoch`
and `end_epoch` in turn.
"""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.run_folder import RunFolder, draft_of_start
from resnet_fn.config.declaration import CUSTOM
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.data.agreement import check_settings, check_state
from resnet_fn.data.images import like_float_feed
from resnet_fn.data.sources.contents import write_split
from resnet_fn.data.sources.scan import write_bad_files
from resnet_fn.evaluation.scoring import StoppedError, score
from resnet_fn.evaluation.task import all_metrics
from resnet_fn.recipes import load_recipe
from resnet_fn.run.build import Custom, Run, build_run
from resnet_fn.run.console import clock, epoch_lines, header
from resnet_fn.run.failures import stop_evaluation, stop_not_finite, stop_without_batch
from resnet_fn.run.resume import (
    find_start,
    options_here,
    restore,
    resumed_recipe,
    save,
    save_is_due,
)
from resnet_fn.runtime import process
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.signals import StopRequest, agreed_signal
from resnet_fn.runtime.workers import barrier
from resnet_fn.telemetry import read_log
from resnet_fn.telemetry.telemetry import Telemetry
from resnet_fn.update.average import averaged
from resnet_fn.update.exchange import make_flags
from resnet_fn.update.step import StepResult

# share of an epoch's time for which its evaluation waits until the checkpoint is on the disk
_EVALUATION_WAITS = 0.005


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The result of `train`."""

    run: Path  # the run folder
    updates: int  # updates done
    last: dict[str, Any] | None  # the last evaluation
    best: dict[str, Any] | None  # the best evaluation
    # the number of the signal that ended the run early, with a checkpoint saved; 0 if none did
    stopped: int = 0

    @property
    def best_checkpoint(self) -> Path | None:
        """The folder of the checkpoint with the best evaluation, or None if there is none."""
        return RunFolder(self.run).checkpoint_path(self.best["update"]) if self.best else None

    @property
    def history(self) -> dict[str, list[dict[str, Any]]]:
        """The log of the run, from metrics.jsonl, as {"train": [...], "eval": [...]}.

        The lists contain a dict for each logged update and evaluation (docs/monitoring.md). NaN and
        infinity are None.
        """
        events = read_log(self.run / "metrics.jsonl")
        return {
            kind: [event for event in events if event["event"] == kind]
            for kind in ("train", "eval")
        }


def train(
    recipe: Recipe | str,
    options: RunOptions = RunOptions(),
    left_out: Sequence[str] = (),
    custom: Custom | None = None,
) -> TrainResult:
    """Train a recipe, or resume the run that `options.resume` and `options.out_dir` choose
    (`find_start`).

    The run is evaluated after each `recipe.eval_every`-th epoch, and after the last one.
    `checkpoint_every` decides when a checkpoint is saved. Under msrun every worker calls this
    function with the same arguments, and all return the same metrics. If a worker gets SIGTERM,
    SIGINT, SIGHUP, SIGUSR1 or SIGUSR2, the run saves a checkpoint and ends, after the current or
    the next update or after an evaluation's current batch. Before the first update or evaluation, a
    signal ends the process.

    `save` in run/resume.py writes a checkpoint. Besides values for reports, a checkpoint contains
    these parts:

    - `Run.state` as tensors: the net's parameters, BatchNorm's statistics, the optimizer's state,
      the loss scaler's state and the moving average. An update passes only these to the next one
      (`TrainState` in update/state.py).
    - `Run.progress` as JSON: number of updates, last and best evaluation, evaluations without
      improvement.
    - Values that a resume compares, as JSON: the recipe, the data set's classes and samples, class
      weights from a file.
    - Values whose change on a resume gives a note, as JSON: workers, micro-batches, kernels, image
      dtype (`--feed`).

    A resume needs no other state: data order, augmentation, masks and learning rate follow from the
    recipe, the data set and the update's number. Equal bits also need equal values of the last
    point, and at most 4 threads (docs/reliability.md). Dropout layers of the caller's own net draw
    numbers that a checkpoint cannot restore.

    Args:
        recipe: a recipe, the name of a recipe in `recipes.RECIPES`, or a recipe file.
        options: settings of how the run is computed and stored. Options in a recipe file replace
            the defaults.
        left_out: lines that the run prints at its start, about settings of the recipe that are
            ignored.
        custom: the caller's net, data set and loss, as `fit` passes them.

    Raises:
        ValueError: a setting, the data or the weights cannot work; raised before the first update.
        BadSampleError: a sample cannot be read.
        WorkerError: with several workers, the batch or the evaluation of one failed.
        NotFiniteError: loss, gradients or statistics are not finite; with fp16, in `max_skips`
            updates in a row.
        OSError, CheckpointError: a file could not be written, or a checkpoint could not be read.
    """
    began = time.perf_counter()
    if isinstance(recipe, str):
        draft = draft_of_start(load_recipe(recipe), options.chosen_values())
        recipe, options = Recipe.from_draft(draft), RunOptions.from_draft(draft)
        left_out = draft.drop_notes
    # This comes before anything is written, because in msrun's scheduler process the call never
    # returns.
    workers = process.start(options.device, options.threads, options.fast_math)
    with StopRequest() as stop_request, FolderLock() as lock:
        check_settings(workers, recipe, options)
        folder, checkpoint = find_start(recipe, options, workers, lock)
        options_now = options  # config.json keeps `options`
        if checkpoint:
            recipe, kept = resumed_recipe(recipe, checkpoint)
            options_now, capped = options_here(options)
            left_out = [*left_out, *kept, *capped]
        run = build_run(recipe, options_now, workers, folder, stop_request, checkpoint, custom)
        run.notes[:0] = left_out
        if checkpoint:
            restore(run, checkpoint)
        start = run.progress.update
        check_state(workers, (*run.state.of_net, *run.state.training), run.class_weights)
        run.folder = folder.reserve(workers, is_new=not (options.out_dir or checkpoint))
        if workers.is_main:
            run.folder.create(lock, is_new=not checkpoint)
            run.folder.set_aside(after=start)
            run.notes += run.folder.write_config(
                run.recipe, options, workers, recipe_text(run.recipe, options)
            )
            write_bad_files(run.folder.path, run.dataset)
            write_split(run.folder.path, run.dataset, is_new=not checkpoint)
            run.telemetry = Telemetry(
                run.folder.path,
                run.recipe,
                options,
                start,
                run.total,
                is_evaluated=run.progress.is_evaluated,
            )
        # These are closed from right to left: the prefetcher reads the feed, and the log learns of
        # a save that failed.
        with (
            contextlib.closing(run.feed),
            run.telemetry as log,
            run.writer,
            contextlib.closing(run.prefetcher),
        ):
            log.say(*header(run, checkpoint.path if checkpoint else None))
            if options.mode == "graph" and not run.is_over:
                log.say("compiling…")
            stopped = run_epochs(run)
            if run.progress.update > start and not stopped:
                log.say(f"total time {clock(time.perf_counter() - began)}")
        barrier(workers)  # a worker that ended while another still writes would end the whole job
    return TrainResult(
        run.folder.path, run.progress.update, run.progress.last, run.progress.best, stopped
    )


@process.ending_mixed_precision()
def run_epochs(run: Run) -> int:
    """Train and evaluate until the run is over.

    Returns the number of the signal that ended it early, or 0.
    """
    progress = run.progress
    log = run.telemetry
    stopped = 0
    while not stopped:
        # This comes first because a resumed run may have stopped at the end of an epoch, before its
        # evaluation.
        if run.evaluation_is_due:
            save_before_evaluation(run)
            if stopped := evaluate_epoch(run):
                break
            end_epoch(run)
        if run.is_over:
            break
        stopped = train_epoch(run)
        if not stopped and not run.evaluation_is_due:
            end_epoch(run)
    if stopped:
        if progress.update > run.saved:
            save(run)
        if progress.update % run.feed.updates_per_epoch == 0 and not run.evaluation_is_due:
            log.say(*epoch_lines(run))  # a resume begins with the next epoch
        log.say(f"{signal.Signals(stopped).name}: stopping after update {progress.update}")
    elif progress.update < run.total:
        log.end_early()
        log.say(
            f"early stop: {run.recipe.monitor} has not improved for {progress.without_gain} "
            "evaluations"
        )
    run.writer.wait()
    log.checkpointed(run.writer.poll())
    return stopped


def save_before_evaluation(run: Run) -> None:
    """Save an epoch before its evaluation, which may end the process, for example for memory.

    `end_epoch` saves again, with the evaluation. If the end of this epoch may need no checkpoint,
    only the run's first evaluation is preceded by a save.
    """
    progress = run.progress
    is_first = progress.last is None
    is_due = save_is_due(progress, run.options.checkpoint_every, run.is_over)
    if progress.update > run.saved and (is_first or is_due):
        epoch_seconds = time.perf_counter() - run.pace.began
        save(run)
        run.writer.wait(None if is_first else _EVALUATION_WAITS * epoch_seconds)


def end_epoch(run: Run) -> None:
    """Save a checkpoint if one is due, and print the table row of an epoch, evaluated or not."""
    if save_is_due(run.progress, run.options.checkpoint_every, run.is_over):
        save(run)
    run.telemetry.say(*epoch_lines(run))  # after the save, because printing may fail


def train_epoch(run: Run) -> int:
    """Make the remaining updates of the epoch. Returns the number of the signal that ended it
    early, or 0.

    The docstring of update/step.py lists the order of an update, which `run.train_step` makes.
    """
    progress = run.progress
    options = run.options
    epoch = progress.update // run.feed.updates_per_epoch
    end = (epoch + 1) * run.feed.updates_per_epoch
    allowed_skips = options.max_skips if run.recipe.precision == "fp16" else 1
    began = time.perf_counter()
    for update in range(progress.update, end):
        # The rate depends on the recipe, the number of updates in an epoch, and the update's
        # number. Updates are counted from 0, and skipped ones count, too. In the warm-up the rate
        # is learning_rate · (update + 1) / warmup. Then half a cosine or a line falls from
        # `learning_rate`, and would reach `min_learning_rate` at update `run.total`, one after the
        # last. Other schedules: steps at `milestones`, constant. See update/schedule.py.
        learning_rate = run.schedule(update)
        batch, (images, labels), data_seconds, error = run.prefetcher.get(update)
        run.prefetcher.start(update + 1)  # in a thread, while the device computes
        run.norms.before(update + 1)
        # The flags carry one number for each of SIGNALS. If the batch could not be prepared, it is
        # blank and "without samples": this worker takes part in the update as the others do, and no
        # worker applies it.
        flags = make_flags(run.stop_request.stop_flags(), without_samples=error is not None)
        result = run.train_step(images, labels, learning_rate, flags, *run.masks(update))
        # now that the step is compiled, a signal saves a checkpoint first
        run.stop_request.install_handlers()
        done = fetch(result)
        # the report is the same on all workers
        report = done.report
        skipped_in_row = int(done.scaler[2])
        if report.workers_without_samples:
            stop_without_batch(run, error)
        progress.update = update + 1
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        run.pace.add(float(report.loss), float(report.metric), seconds, applied=not skipped_in_row)
        if update == 0 and run.recipe.dataset != CUSTOM:
            pictures = like_float_feed(batch[0], run.dataset.input)
            run.telemetry.first_batch(pictures, batch[1], run.dataset.classes)
        write_error = None
        try:
            log_update(run, done, epoch, learning_rate, seconds, data_seconds)
        except Exception as failed:  # of the log, or of an earlier save
            write_error = failed
        # This error comes first, because the other workers raise it, too.
        if skipped_in_row >= allowed_skips:
            stop_not_finite(run, batch, report.not_finite, skipped_in_row, write_error)
        if write_error is not None:
            raise write_error
        if signal_number := agreed_signal(report.flags):
            return signal_number
        # After the last update of an epoch, `run_epochs` evaluates first if an evaluation is due.
        # Then `end_epoch` saves.
        if (
            options.checkpoint_every
            and progress.update % options.checkpoint_every == 0
            and progress.update < end
        ):
            save(run)
    return 0


def fetch(result: StepResult) -> StepResult:
    """Wait for the results of an update, and return them, except `squares`, as NumPy arrays."""
    return result._replace(
        **{name: getattr(result, name).numpy() for name in ("packed", "grad_norm", "scaler")}
    )


def log_update(
    run: Run,
    done: StepResult,
    epoch: int,
    learning_rate: float,
    seconds: float,
    data_seconds: float,
) -> None:
    """Advance the bar.

    Log every `log_every`th update, and each update that ends an epoch, is skipped or has norms.
    """
    update = run.progress.update
    loss_scale, skipped, skipped_in_row = done.scaler.tolist()
    norms = run.norms.after(done.squares)
    last = update % run.feed.updates_per_epoch == 0
    event = None
    if update % run.options.log_every == 0 or last or norms or skipped_in_row:
        event = {
            "event": "train",
            "update": update,
            "epoch": epoch,
            "loss": float(done.loss),
            **({"accuracy": float(done.accuracy)} if run.dataset.classes else {}),
            "lr": learning_rate * run.rate_factor,
            "grad_norm": float(done.grad_norm),
            "loss_scale": loss_scale,
            "skipped": int(skipped),
            "images_per_second": run.recipe.batch_size / seconds,
            "data_seconds": data_seconds,
            "step_seconds": seconds,
            **({"norms": norms} if norms else {}),
        }
    run.telemetry.advance(epoch, run.recipe.epochs, event)
    run.telemetry.checkpointed(run.writer.poll())


def evaluate_epoch(run: Run) -> int:
    """Evaluate on the whole validation set, record the result, and note whether it is the best so
    far.

    Returns the number of a signal that ended the evaluation on all workers, or 0. After a signal, a
    resume repeats it.
    """
    progress = run.progress
    dataset = run.dataset
    run.stop_request.install_handlers()
    size = run.options.eval_batch_size
    flags = run.stop_request.stop_flags
    try:
        with averaged(run.state.average):
            scores = score(
                run.eval_step, dataset, size, run.workers, flags, fills=run.recipe.loss != CUSTOM
            )
            metrics = all_metrics(scores, dataset.test.labels, len(dataset.classes))
    except StoppedError as signalled:
        return signalled.number
    except Exception as error:
        # outside `averaged`, so that the net has its own weights again, which are saved
        stop_evaluation(run, error)
    epoch = (progress.update - 1) // run.feed.updates_per_epoch
    progress.last = {"event": "eval", "update": progress.update, "epoch": epoch, **metrics}
    progress.update_best(run.recipe.monitor, metrics)
    run.telemetry.evaluated(progress.last)
    return 0
