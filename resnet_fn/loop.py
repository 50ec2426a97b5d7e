"""The loop: updates, and at each epoch's end evaluation and a checkpoint. No callbacks: read it top down."""

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

import mindspore
from mindspore import Tensor

from resnet_fn import runtime
from resnet_fn.checkpoint import Checkpoint, assign_all, save_checkpoint
from resnet_fn.config import Recipe, RunOptions, to_dict
from resnet_fn.data.resume import check_same_data
from resnet_fn.data.scan import write_scan
from resnet_fn.distributed import Workers, join
from resnet_fn.ema import averaged
from resnet_fn.job import Job, build_job, describe
from resnet_fn.norms import LayerNorms
from resnet_fn.run_folder import RunFolder, goes_on, open_run
from resnet_fn.scoring import score, summarise
from resnet_fn.telemetry import Telemetry


@dataclasses.dataclass
class Progress:
    """Where a run stands: what a checkpoint carries beside the tensors.

    Attributes:
        update: updates done.
        best: {"top1", "update"} of the best evaluation, None before the first.
        last: the latest evaluation, None before the first.
    """

    update: int = 0
    best: dict[str, Any] | None = None
    last: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` returns: the run folder, the updates done, the last evaluation and the best one."""

    run: Path
    updates: int
    last: dict[str, Any] | None
    best: dict[str, Any] | None


def train(recipe: Recipe, options: RunOptions = RunOptions()) -> TrainResult:
    """Train a recipe, evaluate at each epoch's end, keep checkpoints; goes on where its run folder stops.

    Under msrun every worker calls this alike, and all return the same figures.

    Raises:
        ValueError: whatever cannot work, before the first update, naming the field, the value and the fix.
    """
    runtime.start(options.device, options.threads, recipe.seed)
    workers = join(options.device)  # before any file is touched: msrun's scheduler never comes back from here
    job = build_job(recipe, options, workers, fresh=not goes_on(options))
    run, checkpoint = open_run(recipe, options, workers)
    progress = restore(job, checkpoint) if checkpoint else Progress()
    if workers.leads:
        write_scan(run.path, job.scans)
    with (
        contextlib.closing(job.data),
        Telemetry(run.path if workers.leads else None, progress.update, job.total, options.progress) as telemetry,
    ):
        for note in (*job.dataset.notes, *(check_same_data(checkpoint.state, job.data) if checkpoint else ())):
            telemetry.say(note)
        telemetry.started(recipe, options)
        if checkpoint:
            telemetry.say(f"resuming after update {progress.update} from {checkpoint.path}")
        waiter = runtime.ResultWaiter()
        while progress.update < job.total:
            train_epoch(job, progress, options, telemetry, waiter)
            evaluate_epoch(job, progress, options, telemetry, workers)
            if workers.leads:
                save(job, progress, run, options)
    return TrainResult(run.path, progress.update, progress.last, progress.best)


def train_epoch(
    job: Job, progress: Progress, options: RunOptions, telemetry: Telemetry, waiter: runtime.ResultWaiter
) -> None:
    """Do the updates from where the run stands to the end of that epoch."""
    epoch = progress.update // job.data.updates_per_epoch
    end = (epoch + 1) * job.data.updates_per_epoch
    began = time.perf_counter()
    batch = job.data.batch(progress.update)
    data_seconds = time.perf_counter() - began
    norms = LayerNorms(job.weights, options.norms_every)
    for update in range(progress.update, end):
        measure = norms.before(update + 1)
        learning_rate = job.schedule(update)
        images, labels = map(Tensor, batch)
        result = job.train_step(images, labels, Tensor(learning_rate, mindspore.float32))
        dispatched = time.perf_counter()
        if update == 0:
            telemetry.first_batch(*batch, job.dataset.classes)
        if update + 1 < end:
            batch = job.data.batch(update + 1)  # while the device computes
        prepared = time.perf_counter()
        (loss, accuracy), norm, (scale, skipped, _) = waiter.fetch(result[:3], dispatched)
        now = time.perf_counter()
        progress.update = update + 1
        event = None
        if progress.update % options.log_every == 0 or progress.update == end or measure:
            event = {
                "event": "train",
                "update": progress.update,
                "epoch": epoch,
                "loss": float(loss),
                "accuracy": float(accuracy),
                "lr": learning_rate,
                "grad_norm": float(norm),
                "loss_scale": float(scale),
                "skipped": int(skipped),
                "images_per_second": job.recipe.batch_size / (now - began),
                "data_seconds": data_seconds,
                "step_seconds": now - began,
            }
            if measure:
                event["norms"] = norms.after(result.squares.asnumpy())
        telemetry.advance(epoch, job.recipe.epochs, event)
        data_seconds = prepared - dispatched
        began = now


def evaluate_epoch(job: Job, progress: Progress, options: RunOptions, telemetry: Telemetry, workers: Workers) -> None:
    """Evaluate on the whole test set and note whether it is the best so far."""
    with averaged(job.weights, job.ema):
        scores = score(job.eval_step, job.dataset, job.recipe.evaluation_size, options.eval_batch_size, workers)
    figures = summarise(scores)
    epoch = (progress.update - 1) // job.data.updates_per_epoch
    progress.last = {"event": "eval", "update": progress.update, "epoch": epoch, **figures}
    # Only a finite result can be best: a net that has turned to NaN must not replace the last good one.
    if figures["loss"] < float("inf") and (progress.best is None or figures["top1"] >= progress.best["top1"]):
        progress.best = {"top1": figures["top1"], "update": progress.update}
    telemetry.evaluated(
        progress.last,
        f"epoch {epoch + 1}/{job.recipe.epochs}: loss {figures['loss']:.4f}, top-1 {figures['top1']:.2%}, "
        f"top-5 {figures['top5']:.2%} of {figures['count']} test images",
    )
    telemetry.confusion(job.dataset.test.labels, scores.prediction, job.dataset.classes, progress.update)
    if options.histograms and workers.leads:
        telemetry.histograms({p.name: p.asnumpy() for p in job.weights if p.requires_grad}, progress.update)


def save(job: Job, progress: Progress, run: RunFolder, options: RunOptions) -> None:
    """Write a checkpoint of the whole state, then remove those that are no longer kept."""
    state = {
        **dataclasses.asdict(progress),
        "epoch": progress.update // job.data.updates_per_epoch,
        "recipe": to_dict(job.recipe),
        "dataset": describe(job.recipe, job.dataset, options.data_dir),
        "feed": job.data.repeats_with(),
    }
    save_checkpoint(run.step(progress.update), job.weights, job.training, state)
    run.prune(options.keep_last, progress.best["update"] if progress.best else None)


def restore(job: Job, checkpoint: Checkpoint) -> Progress:
    """Put a checkpoint's state into the job, exactly."""
    assign_all(job.weights, checkpoint.weights, checkpoint.path)
    assign_all(job.training, checkpoint.training, checkpoint.path)
    state = checkpoint.state
    return Progress(state["update"], state["best"], state["last"])
