"""The loop: updates, and at the end of each epoch an evaluation and a checkpoint. No callbacks: read it top down."""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.fields import OWN
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.config.settings import typed_in
from resnet_fn.data.agreement import check_settings, check_state
from resnet_fn.data.images import like_float_feed
from resnet_fn.data.sources.scan import write_bad_files
from resnet_fn.data.sources.validation import write_validation
from resnet_fn.evaluation.scoring import StoppedError, score
from resnet_fn.evaluation.task import all_metrics
from resnet_fn.recipes import load_recipe
from resnet_fn.run.build import Own, Run, build_run
from resnet_fn.run.console import clock, epoch_lines, header
from resnet_fn.run.failures import stop_bad_sample, stop_evaluation, stop_not_finite
from resnet_fn.run.resume import find_start, restore, save, save_is_due
from resnet_fn.runtime import process
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.signals import StopRequest, agreed_signal
from resnet_fn.runtime.workers import barrier
from resnet_fn.telemetry import read_log
from resnet_fn.telemetry.telemetry import Telemetry
from resnet_fn.update.average import averaged
from resnet_fn.update.exchange import make_flags
from resnet_fn.update.step import StepResult


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` returns."""

    run: Path  # the run folder
    updates: int  # updates done
    last: dict[str, Any] | None  # the last evaluation
    best: dict[str, Any] | None  # the best evaluation
    stopped: int = 0  # the number of the signal that ended the run early, with a checkpoint saved; 0 if none did

    @property
    def best_checkpoint(self) -> Path | None:
        """The checkpoint folder of the best evaluation; None before the first."""
        return RunFolder(self.run).checkpoint_path(self.best["update"]) if self.best else None

    @property
    def history(self) -> dict[str, list[dict[str, Any]]]:
        """The whole log of the run, from metrics.jsonl: {"train": [...], "eval": [...]}, None for NaN and infinity.

        Each list has a dict for each logged update or evaluation; docs/monitoring.md has the fields.
        """
        events = read_log(self.run / "metrics.jsonl")
        return {kind: [event for event in events if event["event"] == kind] for kind in ("train", "eval")}


def train(
    recipe: Recipe | str, options: RunOptions = RunOptions(), left_out: Sequence[str] = (), own: Own | None = None
) -> TrainResult:
    """Train a recipe: evaluate and save a checkpoint after each epoch, and resume if the run folder holds a run.

    Args:
        recipe: a recipe, the name of one (`recipes.RECIPES`), or a recipe file.
        options: how it is computed and where it is kept. Options in a recipe file replace the defaults.
        left_out: lines for the run's header, one for each setting of the recipe that was left out.
        own: net, data set and loss of the caller's own (`fit` makes it).

    Under msrun every worker calls this alike, and all return the same metrics. SIGTERM, SIGINT and SIGHUP, on any
    rank, save a checkpoint and end the run after the current update or evaluation batch; before the first update they
    end the process at once (`StopRequest`). No other process can train in the same run folder meanwhile.

    A checkpoint holds `Run.state` (`TrainState`, update/state.py: all of the net's parameters and BatchNorm's
    statistics, the optimizer's state, the loss scaler's, the moving average) as two .safetensors files, and as JSON
    `Run.progress` (`Progress`, run/build.py: updates done, last and best evaluation) and what a resume compares: the
    recipe, the data set's classes, preprocessing and order, the class weights, and `parallel_layout` (workers,
    micro-batches, kernels: a difference is a note, not an error). `save` in run/resume.py puts it together. All else
    follows from the recipe and the update's number: order, augmentation, dropout, learning rate.

    Raises:
        ValueError: before the first update, for whatever cannot work; names the field, the value and the fix.
        NotFiniteError: loss or gradients are not finite (fp16: `max_skips` times in a row); names the last checkpoint.
        OSError, CheckpointError: a checkpoint could not be written; the one before it is intact.
    """
    began = time.perf_counter()
    if isinstance(recipe, str):
        file = load_recipe(recipe).complete(**typed_in(options))
        recipe, options, left_out = file.make(Recipe), file.make(RunOptions), file.notes
    # Before any file is touched: msrun's scheduler process does not return from here.
    workers = process.start(options.device, options.threads, options.fast_math)
    with StopRequest() as stop_request, FolderLock() as lock:
        check_settings(workers, recipe, options)
        folder, checkpoint = find_start(recipe, options, workers, lock)
        if checkpoint and not recipe.model:  # the net was named by the weights alone: the checkpoint's recipe names it
            recipe = dataclasses.replace(recipe_from_dict(checkpoint.state["recipe"]), epochs=recipe.epochs)
        run = build_run(recipe, options, workers, folder, stop_request, checkpoint, own)
        run.notes[:0] = left_out
        if checkpoint:
            restore(run, checkpoint)
        start = run.progress.update
        check_state(workers, (*run.state.weights, *run.state.training), run.class_weights)
        run.folder = folder.reserve(workers, is_new=not (options.out_dir or checkpoint))
        if workers.is_main:
            run.folder.create(lock)
            run.notes += run.folder.write_config(run.recipe, options, workers, recipe_text(run.recipe, options))
            write_bad_files(run.folder.path, run.dataset)
            write_validation(run.folder.path, run.dataset.held_out)
            run.telemetry = Telemetry(run.folder.path, run.recipe, options, start, run.total)
        # Closed from right to left: a thread of the prefetcher reads the feed; the log learns of a save that failed.
        with contextlib.closing(run.feed), run.telemetry as log, run.writer, contextlib.closing(run.prefetcher):
            log.say("\n".join(header(run, checkpoint.path if checkpoint else None)))
            if options.mode == "graph" and not run.is_over:
                log.say("compiling…")
            stopped = run_epochs(run)
            if run.progress.update > start and not stopped:
                log.say(f"total time {clock(time.perf_counter() - began)}")
        barrier(workers)  # the first process to end with an error code takes the others with it
    progress = run.progress
    return TrainResult(run.folder.path, progress.update, progress.last, progress.best, stopped)


def run_epochs(run: Run) -> int:
    """Train and evaluate until the run is over; returns the signal that ended it early, or 0."""
    progress, log = run.progress, run.telemetry
    stopped = 0
    while not stopped:
        # Also in a resumed run that was stopped at the end of an epoch, before its evaluation.
        if progress.update and progress.update % run.feed.updates_per_epoch == 0 and not progress.is_evaluated:
            if stopped := evaluate_epoch(run):
                break
            if save_is_due(progress, run.options.checkpoint_every, run.is_over):
                save(run)
            log.say(epoch_lines(run))  # after the save, which must not depend on a console
        if run.is_over:
            break
        stopped = train_epoch(run)
    if stopped:
        save(run)
        log.say(f"{signal.Signals(stopped).name}: stopping after update {progress.update}")
    elif progress.update < run.total:
        log.end_early()
        log.say(f"early stop: {run.recipe.monitor} has not improved for {progress.without_gain} evaluations")
    run.writer.wait()
    log.checkpointed(run.writer.poll())
    return stopped


def train_epoch(run: Run) -> int:
    """Do the updates that are left of the current epoch; returns the signal that ended it early, or 0.

    `run.train_step` (update/step.py begins with its order) computes loss and gradients of this worker's samples, sums
    them over the workers and changes `run.state`. If a number is not finite, it skips the update: only the loss scaler
    changes; weights, moving average, the optimizer's state and BatchNorm's statistics stay as they were.
    """
    progress, options = run.progress, run.options
    epoch = progress.update // run.feed.updates_per_epoch
    end = (epoch + 1) * run.feed.updates_per_epoch
    allowed_skips = options.max_skips if run.recipe.precision == "fp16" else 1
    began = time.perf_counter()
    for update in range(progress.update, end):
        # A function of the recipe and the update's number alone: linear warm-up to `learning_rate`, then the recipe's
        # schedule, down to `min_learning_rate` (formulas: update/schedule.py). Skipped updates count, too.
        learning_rate = run.schedule(update)
        batch, (images, labels), data_seconds, error = run.prefetcher.get(update)
        run.prefetcher.start(update + 1)  # in a thread, while the device computes
        run.norms.before(update + 1)
        # One flag for each of SIGNALS. If the batch could not be read, it is blank: this rank takes part in the update
        # as the others do, and no rank applies it.
        flags = make_flags(run.stop_request.stop_flags(), withheld=error is not None)
        result = run.train_step(images, labels, learning_rate, flags, *run.masks(update))
        run.stop_request.install_handlers()  # the first call has compiled: from here on a signal saves first
        done = fetch(result)
        report, skipped_in_row = done.report, int(done.scaler[2])  # `report` is the sum over the workers, on each
        if report.withheld:
            stop_bad_sample(run, error)
        progress.update = update + 1
        seconds, began = time.perf_counter() - began, time.perf_counter()
        run.pace.add(float(report.loss), float(report.metric), seconds, applied=not skipped_in_row)
        if update == 0 and run.recipe.dataset != OWN:
            pictures = like_float_feed(batch[0], run.dataset.input)
            run.telemetry.first_batch(pictures, batch[1], run.dataset.classes)
        log_update(run, done, epoch, learning_rate, seconds, data_seconds)
        if skipped_in_row >= allowed_skips:
            stop_not_finite(run, batch, report.not_finite, skipped_in_row)
        if signal_number := agreed_signal(report.flags):
            return signal_number
        # At the epoch's end `run_epochs` saves, after the evaluation.
        if options.checkpoint_every and progress.update % options.checkpoint_every == 0 and progress.update < end:
            save(run)
    return 0


def fetch(result: StepResult) -> StepResult:
    """Wait for an update's results: the same as arrays on the host, except `squares`."""
    arrays = {name: getattr(result, name).numpy() for name in ("packed", "grad_norm", "scaler")}
    return result._replace(**arrays)


def log_update(
    run: Run, done: StepResult, epoch: int, learning_rate: float, seconds: float, data_seconds: float
) -> None:
    """Advance the bar. Log every `log_every`th update, the last of an epoch, skipped ones and those with norms."""
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
            "lr": learning_rate,
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
    """Evaluate on the whole validation set and note whether the result is the best so far.

    Returns the signal that ended it early, on all ranks alike, or 0; a resumed run begins with this evaluation.
    """
    progress, dataset = run.progress, run.dataset
    run.stop_request.install_handlers()
    size, flags = run.options.eval_batch_size, run.stop_request.stop_flags
    try:
        with averaged(run.state.average):
            scores = score(run.eval_step, dataset, size, run.workers, flags, fills=run.recipe.loss != OWN)
            metrics = all_metrics(scores, dataset.test.labels, len(dataset.classes))
    except StoppedError as signalled:
        return signalled.number
    except Exception as error:  # the net has the weights again that are to be saved
        stop_evaluation(run, error)
    epoch = (progress.update - 1) // run.feed.updates_per_epoch
    progress.last = {"event": "eval", "update": progress.update, "epoch": epoch, **metrics}
    progress.update_best(run.recipe.monitor, metrics)
    run.telemetry.evaluated(progress.last)
    return 0
