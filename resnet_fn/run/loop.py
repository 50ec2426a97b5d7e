"""The loop: updates, and at each epoch's end evaluation and a checkpoint. No callbacks: read it top down."""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mindspore import Tensor

from resnet_fn.checkpoint.run_folder import find_start
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.data.dataset import BadSampleError, check_batch
from resnet_fn.data.images import as_fed
from resnet_fn.data.order import Batch
from resnet_fn.data.resume import notes_on_resume
from resnet_fn.data.sources.scan import write_bad_files
from resnet_fn.data.sources.validation import write_validation
from resnet_fn.evaluation.scoring import score
from resnet_fn.evaluation.task import monitored
from resnet_fn.recipes import read_recipe
from resnet_fn.run.console import duration, epoch_lines, header
from resnet_fn.run.not_finite import NotFiniteError, find_suspects, keep_batch
from resnet_fn.run.not_finite import describe as describe_not_finite
from resnet_fn.run.prefetch import Prefetcher
from resnet_fn.run.progress import Progress, note_evaluation
from resnet_fn.run.session import Session, build_components, restore, save, should_save_at_epoch_end, split_notes
from resnet_fn.runtime import process
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.signals import StoppedError, StopRequest, agreed_signal
from resnet_fn.runtime.workers import barrier, gather_texts, sum_over_ranks
from resnet_fn.telemetry import read_log
from resnet_fn.telemetry.norms import LayerNorms
from resnet_fn.telemetry.telemetry import open_telemetry
from resnet_fn.update.average import averaged
from resnet_fn.update.exchange import Report, make_flags, unpack
from resnet_fn.update.step import StepResult


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` returns.

    Attributes:
        run: the run folder.
        updates: updates done.
        last, best: the last evaluation and the best one.
        stopped: the number of the signal that ended the run early, with a checkpoint saved; 0: it ran to its end.
        history: what the whole run has logged, before it was resumed too: {"train": [...], "eval": [...]}, a dict for
            each logged update and each evaluation (docs/monitoring.md has the fields); None for NaN and infinity.
    """

    run: Path
    updates: int
    last: dict[str, Any] | None
    best: dict[str, Any] | None
    stopped: int = 0

    @property
    def history(self) -> dict[str, list[dict[str, Any]]]:
        """See above; read from the run folder's metrics.jsonl."""
        events = read_log(self.run / "metrics.jsonl")
        return {kind: [event for event in events if event["event"] == kind] for kind in ("train", "eval")}


def train(recipe: Recipe | str, options: RunOptions = RunOptions(), left_out: Sequence[str] = ()) -> TrainResult:
    """Train a recipe, evaluate at each epoch's end, keep checkpoints; goes on where its run folder stops.

    Args:
        recipe: it, the name of one (`recipes.RECIPES`), or a recipe file.
        options: how it is computed, and where it is kept; in place of the defaults count those that a file gives.
        left_out: settings of the recipe that nothing can use, a line each for the run's header (a file says so itself).

    Under msrun every worker calls this alike, and all return the same metrics. SIGTERM, SIGINT and SIGHUP, on any
    rank, end it after the update or evaluation batch at hand with a checkpoint. Until the first of them is begun they
    keep their own meaning: see `StopRequest`. No other process can train in the run folder meanwhile.

    A checkpoint holds `TrainState`: all of the net's parameters, frozen ones and BatchNorm's statistics among them; the
    optimizer's buffers and count; the loss scaler's four numbers; the moving average and its count. And as JSON
    `Progress` (updates done, best and last evaluation, evaluations without a gain, the run that this one branched
    from), the recipe, and what shows whether data, classes' weights or the split of an update have changed. Nothing
    else is state: order, augmentation, dropout and learning rate are functions of the recipe and the update's number.

    Raises:
        ValueError: whatever cannot work, before the first update, naming the field, the value and the fix.
        NotFiniteError: loss or gradients are not finite (fp16: `max_skips` times in a row). The last checkpoint is
            good, and named.
        OSError, CheckpointError: a checkpoint could not be written; the one before is good.
    """
    began = time.perf_counter()
    if isinstance(recipe, str):
        file = read_recipe(recipe, options)
        recipe, options, left_out = file.recipe, file.options, file.notes
    # Before any file is touched: in the scheduler process of msrun it does not return.
    workers = process.start(options.device, options.threads, options.fast_math)
    with StopRequest() as stop_request, FolderLock() as lock:
        run, checkpoint = find_start(recipe, options, workers, lock)
        if checkpoint and not recipe.model:  # equal but for what the weights told, or an earlier version did not know
            recipe = recipe_from_dict(checkpoint.state["recipe"])
        components = build_components(recipe, options, workers, checkpoint)
        recipe, notes = components.recipe, [*left_out, *components.notes]
        if checkpoint:
            state, classes = checkpoint.state, components.dataset.classes
            notes += notes_on_resume(state, classes, components.feed, options.allow_other_data)
            notes += split_notes(state, options, workers)
        progress = restore(components, checkpoint, run) if checkpoint else Progress()
        if not (options.out_dir or checkpoint):
            run = run.reserve(workers)
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
            session = Session(
                components=components,
                progress=progress,
                options=options,
                workers=workers,
                run=run,
                telemetry=telemetry,
                writer=writer,
                stop_request=stop_request,
                prefetcher=prefetcher,
                norms=LayerNorms(components.state.weights, options.norms_every),
            )
            components.compile_cache.say = telemetry.say
            telemetry.say("\n".join(header(session, notes, checkpoint.path if checkpoint else None)))
            before = progress.update
            stopped = run_epochs(session)
            if progress.update > before and not stopped:
                telemetry.say(f"total time {duration(time.perf_counter() - began)}")
        barrier(workers)  # the first process to end with an error code takes the others with it
    return TrainResult(run.path, progress.update, progress.last, progress.best, stopped)


def run_epochs(session: Session) -> int:
    """All that is left of the run; returns the signal that ended it early, or 0."""
    components, progress = session.components, session.progress
    stopped = 0
    while not stopped:
        due = progress.update % components.feed.updates_per_epoch == 0 and progress.update > 0
        # A run that was stopped at an epoch's end still owes the evaluation.
        if due and not progress.is_evaluated:
            try:
                evaluate_epoch(session)
            except StoppedError as signalled:
                stopped = signalled.number
                break
            if should_save_at_epoch_end(session):
                save(session)
            session.telemetry.say(epoch_lines(session))  # after the save: it must not depend on a console
        if session.is_over:
            break
        stopped = train_epoch(session)
    if stopped:
        save(session)
        name = signal.Signals(stopped).name
        session.telemetry.say(f"{name}: stopping after update {progress.update}")
    elif progress.update < components.total:
        session.telemetry.end_early()
        without = f"{components.recipe.monitor} has not improved for {progress.without_gain} evaluations"
        session.telemetry.say(f"early stop: {without}")
    session.writer.wait()
    session.telemetry.checkpointed(session.writer.poll())
    return stopped


def train_epoch(session: Session) -> int:
    """Do the updates from where the run stands to the end of that epoch, or to a signal, which it returns."""
    components, progress, options = session.components, session.progress, session.options
    epoch = progress.update // components.feed.updates_per_epoch
    end = (epoch + 1) * components.feed.updates_per_epoch
    began = time.perf_counter()
    for update in range(progress.update, end):
        learning_rate = components.schedule(update)  # make_schedule's: of recipe and update alone; skipped ones count
        batch, (images, labels), data_seconds, error = session.prefetcher.get(update)
        session.prefetcher.start(update + 1)  # in a thread, while the device computes
        check_batch(*batch, len(components.dataset.classes), update + 1, options.feed)
        session.norms.before(update + 1)
        # One flag for each of SIGNALS. With an error the batch is blank: this rank takes part in an update that no rank
        # then applies.
        flags = make_flags(session.stop_request.stop_flags(), withheld=error is not None)
        result = components.train_step(images, labels, learning_rate, flags, *components.noise(update))
        session.stop_request.install_handlers()  # the first call has compiled; from here on a signal saves first
        session.prefetcher.hand_over()  # the next batch, to the device
        done = fetch(result)
        if done.report.withheld:
            stop_bad_sample(session, error)
        progress.update = update + 1
        seconds, began = time.perf_counter() - began, time.perf_counter()
        session.pace.add(float(done.report.loss), float(done.report.metric), seconds, done.applied)
        if update == 0:
            show_first_batch(session, batch)
        log_update(session, done, epoch, learning_rate, seconds, data_seconds)
        if must_stop(session, done):
            stop_not_finite(session, batch, done)
        if signal_number := agreed_signal(done.report.flags):
            return signal_number
        if options.checkpoint_every and progress.update % options.checkpoint_every == 0 and progress.update < end:
            save(session)
    return 0


class Done(NamedTuple):
    """The results of an update, on the host.

    Attributes:
        report: see `Report`.
        grad_norm: the global norm before clipping.
        loss_scale, skipped, skipped_in_row: the loss scale that was used; updates skipped so far, and in a row.
        squares: see `StepResult`, on the device.
    """

    report: Report
    grad_norm: float
    loss_scale: float
    skipped: int
    skipped_in_row: int
    squares: Tensor

    @property
    def applied(self) -> bool:
        """Whether it changed the weights (of an update that no worker has withheld)."""
        return not self.skipped_in_row


def fetch(result: StepResult) -> Done:
    """Wait for an update's results and bring them to the host."""
    packed, grad_norm, (scale, skipped, in_row) = (tensor.asnumpy() for tensor in result[:3])
    report = unpack(packed, result.workers)
    return Done(report, float(grad_norm), float(scale), int(skipped), int(in_row), result.squares)


def show_first_batch(session: Session, batch: Batch) -> None:
    """Picture the run's first batch as the net sees it."""
    dataset = session.components.dataset
    session.telemetry.first_batch(as_fed(batch[0], dataset.input), batch[1], dataset.classes)


def log_update(
    session: Session, done: Done, epoch: int, learning_rate: float, seconds: float, data_seconds: float
) -> None:
    """Advance the bar; log the update if it is due, an epoch's last, skipped, or one whose norms are measured."""
    components, update = session.components, session.progress.update
    norms = session.norms.after(done.squares)
    last = update % components.feed.updates_per_epoch == 0
    event = None
    if update % session.options.log_every == 0 or last or norms or not done.applied:
        event = {
            "event": "train",
            "update": update,
            "epoch": epoch,
            "loss": float(done.report.loss),
            "accuracy": float(done.report.metric),
            "lr": learning_rate,
            "grad_norm": done.grad_norm,
            "loss_scale": done.loss_scale,
            "skipped": done.skipped,
            "images_per_second": components.recipe.batch_size / seconds,
            "data_seconds": data_seconds,
            "step_seconds": seconds,
            **({"norms": norms} if norms else {}),
        }
    session.telemetry.advance(epoch, components.recipe.epochs, event)
    session.telemetry.checkpointed(session.writer.poll())


def must_stop(session: Session, done: Done) -> bool:
    """Whether the updates that were skipped in a row end the run: in float32 one, in float16 `max_skips`."""
    allowed = session.options.max_skips if session.components.recipe.precision == "fp16" else 1
    return done.skipped_in_row >= allowed


def stop_bad_sample(session: Session, error: BadSampleError | None) -> None:
    """End the run on all ranks, with a checkpoint: no rank has applied the update, one has a sample that is bad.

    Args:
        session: after the update before.
        error: this rank's, if it has one.
    """
    update, workers = session.progress.update, session.workers
    texts = gather_texts(str(error or "")[:1000], workers)
    if update:
        save(session)
    finish_log(session)
    where = "; ".join(f"rank {rank}: {text}" if workers.size > 1 else text for rank, text in enumerate(texts) if text)
    saved = f"the checkpoint after update {update} is saved" if update else "there is no checkpoint yet"
    again = "going on with a repaired file needs --allow-other-data"
    raise BadSampleError(f"update {update + 1}: {where}; the update was not applied; {saved}; {again}")


def finish_log(session: Session) -> None:
    """Wait until checkpoints and log are written, on all ranks: the first to end with an error ends the others."""
    session.writer.wait()
    session.telemetry.checkpointed(session.writer.poll())
    session.telemetry.flush()
    barrier(session.workers)


def stop_not_finite(session: Session, batch: Batch, done: Done) -> None:
    """End the run on all ranks: the update changed nothing, and nothing of it is saved."""
    run, workers, update = session.run, session.workers, session.progress.update
    indices, broken, in_row = session.components.feed.indices(update - 1), done.report.not_finite, done.skipped_in_row
    if workers.rank in find_suspects(broken):
        keep_batch(run.path, update, *batch, indices, workers)
    text = describe_not_finite(update, broken, batch[0], indices, run.path, workers)
    finish_log(session)
    times = f"{in_row} overflows in a row at update {update}, the loss scale does not help; " if in_row > 1 else ""
    good = run.updates()
    last = f"last good checkpoint: {run.step(good[-1])}" if good else "there is no checkpoint yet"
    raise NotFiniteError(f"{times}{text}; the update was not applied; {last}; fix the data or lower the learning rate")


def evaluate_epoch(session: Session) -> None:
    """Evaluate on the whole test set and note whether it is the best so far.

    Raises:
        StoppedError: on all ranks, after a signal on any. The state is as it was; a resumed run evaluates first.
    """
    components, progress, workers = session.components, session.progress, session.workers
    session.stop_request.install_handlers()

    def asked() -> int:
        return agreed_signal(sum_over_ranks(session.stop_request.stop_flags(), workers))

    with averaged(components.state.average):
        scores = score(components.eval_step, components.dataset, session.options.eval_batch_size, workers, asked)
    metrics = monitored(scores, components.dataset.test.labels, len(components.dataset.classes))
    epoch = (progress.update - 1) // components.feed.updates_per_epoch
    progress.last = {"event": "eval", "update": progress.update, "epoch": epoch, **metrics}
    note_evaluation(progress, components.recipe.monitor, metrics)
    session.telemetry.evaluated(progress.last)
