"""The loop: updates, and at the end of each epoch an evaluation and a checkpoint. No callbacks: read it top down."""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.run_folder import find_start
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.data.agreement import check_settings, check_state
from resnet_fn.data.dataset import check_batch
from resnet_fn.data.images import like_float_feed
from resnet_fn.data.sources.scan import write_bad_files
from resnet_fn.data.sources.validation import write_validation
from resnet_fn.evaluation.scoring import StoppedError, score
from resnet_fn.evaluation.task import monitored
from resnet_fn.recipes import read_recipe
from resnet_fn.run.console import duration, epoch_lines, header
from resnet_fn.run.prefetch import Prefetcher
from resnet_fn.run.resume import note_evaluation, notes_on_resume, restore, save, should_save_at_epoch_end, split_notes
from resnet_fn.run.session import Progress, Session, build_components
from resnet_fn.run.stops import stop_bad_sample, stop_evaluation, stop_not_finite
from resnet_fn.runtime import process
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.signals import StopRequest, agreed_signal
from resnet_fn.runtime.workers import barrier
from resnet_fn.telemetry import read_log
from resnet_fn.telemetry.norms import LayerNorms
from resnet_fn.telemetry.telemetry import open_telemetry
from resnet_fn.update.average import averaged
from resnet_fn.update.exchange import make_flags
from resnet_fn.update.step import StepResult


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` returns.

    Attributes:
        run: the run folder.
        updates: updates done.
        last, best: the last evaluation and the best one.
        stopped: the number of the signal that ended the run early, with a checkpoint saved; 0 if none did.
    """

    run: Path
    updates: int
    last: dict[str, Any] | None
    best: dict[str, Any] | None
    stopped: int = 0

    @property
    def history(self) -> dict[str, list[dict[str, Any]]]:
        """The whole log of the run, from metrics.jsonl: {"train": [...], "eval": [...]}, None for NaN and infinity.

        Each list has a dict for each logged update or evaluation; docs/monitoring.md has the fields.
        """
        events = read_log(self.run / "metrics.jsonl")
        return {kind: [event for event in events if event["event"] == kind] for kind in ("train", "eval")}


def train(recipe: Recipe | str, options: RunOptions = RunOptions(), left_out: Sequence[str] = ()) -> TrainResult:
    """Train a recipe: evaluate and save a checkpoint after each epoch, and resume if the run folder holds a run.

    Args:
        recipe: a recipe, the name of one (`recipes.RECIPES`), or a recipe file.
        options: how it is computed and where it is kept. Options in a recipe file replace the defaults.
        left_out: lines for the run's header, one for each setting of the recipe that was left out.

    Under msrun every worker calls this alike, and all return the same metrics. SIGTERM, SIGINT and SIGHUP, on any
    rank, save a checkpoint and end the run after the current update or evaluation batch; before the first update they
    end the process at once (`StopRequest`). No other process can train in the same run folder meanwhile.

    What a checkpoint holds is all that changes during a run: `TrainState` (the net's parameters, frozen ones and
    BatchNorm's statistics included, the optimizer, the loss scaler, the moving average) and, as JSON, `Progress`. It
    also holds the recipe, and what shows whether data, class weights or the split of an update have changed since.
    Order, augmentation, dropout and learning rate are functions of the recipe and the update's number, not state.

    Raises:
        ValueError: before the first update, for whatever cannot work; names the field, the value and the fix.
        NotFiniteError: loss or gradients are not finite (fp16: `max_skips` times in a row); names the last checkpoint.
        OSError, CheckpointError: a checkpoint could not be written; the one before it is intact.
    """
    began = time.perf_counter()
    if isinstance(recipe, str):
        file = read_recipe(recipe, options)
        recipe, options, left_out = file.recipe, file.options, file.notes
    # Before any file is touched: msrun's scheduler process does not return from here.
    workers = process.start(options.device, options.threads, options.fast_math)
    with StopRequest() as stop_request, FolderLock() as lock:
        check_settings(workers, recipe, options)
        run, checkpoint = find_start(recipe, options, workers, lock)
        if checkpoint and not recipe.model:  # the net was named by the weights alone: the checkpoint's recipe names it
            recipe = recipe_from_dict(checkpoint.state["recipe"])
        components = build_components(recipe, options, workers, checkpoint)
        recipe, notes = components.recipe, [*left_out, *components.notes]
        if checkpoint:
            state, classes = checkpoint.state, components.dataset.classes
            notes += notes_on_resume(state, classes, components.feed, options.allow_other_data)
            notes += split_notes(state, options, workers)
        progress = restore(components, checkpoint, run) if checkpoint else Progress()
        check_state(workers, (*components.state.weights, *components.state.training), components.class_weights)
        run = run.reserve(workers, is_new=not (options.out_dir or checkpoint))
        if workers.is_main:
            run.create(lock)
            start = str(run.step(progress.began).resolve()) if progress.began else progress.branched_from
            notes += run.write_config(recipe, options, workers, recipe_text(recipe, options, start))
            write_bad_files(run.path, components.dataset)
            write_validation(run.path, components.dataset.held_out)
            if checkpoint:
                run.complete_branch(checkpoint, dataclasses.asdict(progress))
        folder = run.path if workers.is_main else None
        with (
            contextlib.closing(components.feed),
            open_telemetry(folder, recipe, options, progress.update, components.total) as telemetry,
            CheckpointWriter(components.state if workers.is_main else None) as writer,
            contextlib.closing(Prefetcher(components.feed, components.total, components.blank)) as prefetcher,
        ):
            norms = LayerNorms(components.state.trained, options.norms_every)
            session = Session(
                components, progress, options, workers, run, telemetry, writer, stop_request, prefetcher, norms
            )
            telemetry.say("\n".join(header(session, notes, checkpoint.path if checkpoint else None)))
            if options.mode == "graph" and not session.is_over:
                telemetry.say("compiling…")
            before = progress.update
            stopped = run_epochs(session)
            if progress.update > before and not stopped:
                telemetry.say(f"total time {duration(time.perf_counter() - began)}")
        barrier(workers)  # the first process to end with an error code takes the others with it
    return TrainResult(run.path, progress.update, progress.last, progress.best, stopped)


def run_epochs(session: Session) -> int:
    """Train and evaluate until the run is over; returns the signal that ended it early, or 0."""
    components, progress = session.components, session.progress
    stopped = 0
    while not stopped:
        due = progress.update % components.feed.updates_per_epoch == 0 and progress.update > 0
        # Also in a resumed run that was stopped at the end of an epoch, before its evaluation.
        if due and not progress.is_evaluated:
            if stopped := evaluate_epoch(session):
                break
            if should_save_at_epoch_end(session):
                save(session)
            session.telemetry.say(epoch_lines(session))  # after the save, which must not depend on a console
        if session.is_over:
            break
        stopped = train_epoch(session)
    if stopped:
        save(session)
        session.telemetry.say(f"{signal.Signals(stopped).name}: stopping after update {progress.update}")
    elif progress.update < components.total:
        session.telemetry.end_early()
        without = f"{components.recipe.monitor} has not improved for {progress.without_gain} evaluations"
        session.telemetry.say(f"early stop: {without}")
    session.writer.wait()
    session.telemetry.checkpointed(session.writer.poll())
    return stopped


def train_epoch(session: Session) -> int:
    """Do the updates that are left of the current epoch; returns the signal that ended it early, or 0."""
    components, progress, options = session.components, session.progress, session.options
    epoch = progress.update // components.feed.updates_per_epoch
    end = (epoch + 1) * components.feed.updates_per_epoch
    allowed_skips = options.max_skips if components.recipe.precision == "fp16" else 1
    began = time.perf_counter()
    for update in range(progress.update, end):
        learning_rate = components.schedule(update)  # a function of recipe and update; skipped updates count too
        batch, (images, labels), data_seconds, error = session.prefetcher.get(update)
        session.prefetcher.start(update + 1)  # in a thread, while the device computes
        check_batch(*batch, len(components.dataset.classes), update + 1, options.feed)
        session.norms.before(update + 1)
        # One flag for each of SIGNALS. If the batch could not be read, it is blank: this rank takes part in the update
        # as the others do, and no rank applies it.
        flags = make_flags(session.stop_request.stop_flags(), withheld=error is not None)
        result = components.train_step(images, labels, learning_rate, flags, *components.masks(update))
        session.stop_request.install_handlers()  # the first call has compiled: from here on a signal saves first
        session.prefetcher.hand_over()  # the next batch goes to the device
        done = fetch(result)
        report, skipped_in_row = done.report, int(done.scaler[2])
        if report.withheld:
            stop_bad_sample(session, error)
        progress.update = update + 1
        seconds, began = time.perf_counter() - began, time.perf_counter()
        session.pace.add(float(report.loss), float(report.metric), seconds, applied=not skipped_in_row)
        if update == 0:
            dataset = components.dataset
            session.telemetry.first_batch(like_float_feed(batch[0], dataset.input), batch[1], dataset.classes)
        log_update(session, done, epoch, learning_rate, seconds, data_seconds)
        if skipped_in_row >= allowed_skips:
            stop_not_finite(session, batch, report.not_finite, skipped_in_row)
        if signal_number := agreed_signal(report.flags):
            return signal_number
        if options.checkpoint_every and progress.update % options.checkpoint_every == 0 and progress.update < end:
            save(session)
    return 0


def fetch(result: StepResult) -> StepResult:
    """Wait for an update's results: the same as arrays on the host, but for `squares`."""
    arrays = {name: getattr(result, name).asnumpy() for name in ("packed", "grad_norm", "scaler")}
    return result._replace(**arrays)


def log_update(
    session: Session, done: StepResult, epoch: int, learning_rate: float, seconds: float, data_seconds: float
) -> None:
    """Advance the bar. Log every `log_every`th update, the last of an epoch, skipped ones and those with norms."""
    components, update = session.components, session.progress.update
    loss_scale, skipped, skipped_in_row = done.scaler.tolist()
    norms = session.norms.after(done.squares)
    last = update % components.feed.updates_per_epoch == 0
    event = None
    if update % session.options.log_every == 0 or last or norms or skipped_in_row:
        event = {
            "event": "train",
            "update": update,
            "epoch": epoch,
            "loss": float(done.loss),
            "accuracy": float(done.accuracy),
            "lr": learning_rate,
            "grad_norm": float(done.grad_norm),
            "loss_scale": loss_scale,
            "skipped": int(skipped),
            "images_per_second": components.recipe.batch_size / seconds,
            "data_seconds": data_seconds,
            "step_seconds": seconds,
            **({"norms": norms} if norms else {}),
        }
    session.telemetry.advance(epoch, components.recipe.epochs, event)
    session.telemetry.checkpointed(session.writer.poll())


def evaluate_epoch(session: Session) -> int:
    """Evaluate on the whole validation set and note whether the result is the best so far.

    Returns the signal that ended it early, on all ranks alike, or 0; a resumed run begins with this evaluation.
    """
    components, progress, workers = session.components, session.progress, session.workers
    session.stop_request.install_handlers()
    dataset, size, flags = components.dataset, session.options.eval_batch_size, session.stop_request.stop_flags
    failure: Exception | None = None
    with averaged(components.state.average):
        try:
            scores = score(components.eval_step, dataset, size, workers, flags)
            metrics = monitored(scores, dataset.test.labels, len(dataset.classes))
        except StoppedError as signalled:
            return signalled.number
        except Exception as error:
            failure = error
    if failure:  # now the net has the weights that are to be saved
        stop_evaluation(session, failure)
    epoch = (progress.update - 1) // components.feed.updates_per_epoch
    progress.last = {"event": "eval", "update": progress.update, "epoch": epoch, **metrics}
    note_evaluation(progress, components.recipe.monitor, metrics)
    session.telemetry.evaluated(progress.last)
    return 0
