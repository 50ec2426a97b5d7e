"""A run's checkpoints: which is best, when one is saved, what it holds, and how a run resumes to the same bits."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.parameters import restore_state
from resnet_fn.checkpoint.run_folder import RunFolder, run_of
from resnet_fn.config.fields import to_dict
from resnet_fn.config.hints import finite_or_null, renamed
from resnet_fn.config.options import RunOptions
from resnet_fn.data.balance import BALANCED, treatment
from resnet_fn.data.feed import Feed
from resnet_fn.run.session import Components, Progress, Session
from resnet_fn.runtime.process import EXACT_THREADS, kernel_environment
from resnet_fn.runtime.workers import Workers


def note_evaluation(progress: Progress, monitor: str, metrics: Mapping[str, Any]) -> None:
    """Note whether an evaluation is the best so far. Ties go to the later one, but do not count as an improvement.

    Only a finite result can be the best.
    """
    best, value = progress.best, metrics[monitor]
    gain = 0.0
    if metrics["loss"] < float("inf"):
        gain = 1.0 if best is None else (best[monitor] - value if monitor == "loss" else value - best[monitor])
        if gain >= 0:
            top1 = {"top1": metrics["top1"]} if "top1" in metrics else {}
            progress.best = {**top1, monitor: value, "update": progress.update}
    progress.without_gain = 0 if gain > 0 else progress.without_gain + 1


def should_save_at_epoch_end(session: Session) -> bool:
    """Whether to save after an epoch: always, but with `checkpoint_every` only if it is due, the best or the last."""
    progress, every = session.progress, session.options.checkpoint_every
    best = progress.best is not None and progress.best["update"] == progress.update
    return not every or progress.update % every == 0 or best or session.is_over


def split_of(options: RunOptions, workers: Workers) -> dict[str, Any]:
    """How an update is split, and what chooses the kernels that compute it, as JSON types."""
    kernels = {"mode": options.mode, "fast-math": "on" if options.fast_math else "off", **kernel_environment()}
    return {"workers": workers.size, "micro-batches": options.accumulate, **kernels}


def split_notes(state: Mapping[str, Any], options: RunOptions, workers: Workers) -> list[str]:
    """A line for each way in which a resumed run computes its updates otherwise than the checkpoint's run did."""
    now = split_of(options, workers)
    then = {**now, **state.get("split", {})}
    notes = {
        name: f"resuming with {name} {now[name]} instead of {then[name]}: other bits may follow"
        for name in now
        if now[name] != then[name]
    }
    for name in notes.keys() & {"workers", "micro-batches"}:
        notes[name] = (
            f"resuming with {now[name]} {name} instead of {then[name]}: the same samples, but other bits follow; "
            "BatchNorm normalises each part on its own"
        )
    if (threads := min(now["thread count"], now["CPU count"])) > EXACT_THREADS:
        fix = f"runs with --threads {EXACT_THREADS} or fewer keep their bits"
        notes["threads"] = (
            f"resuming with {threads} threads, which MindSpore shares out anew: other bits may follow; {fix}"
        )
    return list(notes.values())


def save(session: Session) -> None:
    """Have rank 0 write the whole state in the background, then remove checkpoints that are no longer kept."""
    if not session.workers.is_main:
        return
    components, progress, options, run = session.components, session.progress, session.options, session.run
    dataset, weights = components.dataset, list(components.class_weights)
    state = {
        **finite_or_null(dataclasses.asdict(progress)),
        "epoch": progress.update // components.feed.updates_per_epoch,
        "recipe": to_dict(components.recipe),
        "dataset": dataset.input.to_dict(),
        "feed": components.feed.reproducibility_key(),
        "split": split_of(options, session.workers),
        "class_weights": weights,
        "treatment": treatment(components.recipe.sampling, weights, len(dataset.classes), dataset.train.labels),
    }
    newest, keep = progress.update, {progress.began, *([progress.best["update"]] if progress.best else [])}
    prune = functools.partial(run.prune, newest, options.keep_last, options.keep_every, keep)
    session.telemetry.flush()
    session.writer.save(run.step(newest), state, prune)


def restore(components: Components, checkpoint: Checkpoint, run: RunFolder) -> Progress:
    """Put a checkpoint's state, bit for bit, into the components of a run; returns where the run stands."""
    restore_state(components.state, checkpoint)
    setting, then = components.recipe.class_weights, checkpoint.state.get("class_weights", [])
    if setting not in ("", BALANCED) and then != list(components.class_weights):
        fix = "put it back, or start another run"
        raise ValueError(f"class_weights: {setting} has changed since {checkpoint.path}; {fix}")
    state, same_run = checkpoint.state, run_of(checkpoint.path).resolve() == run.path.resolve()
    branched_from = state.get("branched_from", "") if same_run else str(checkpoint.path.absolute())
    began = state.get("began", 0) if same_run else state["update"]
    without_gain = state.get("without_gain", 0)  # earlier checkpoints have no patience
    last = state["last"] and {name: math.nan if value is None else value for name, value in state["last"].items()}
    progress = Progress(state["update"], state["best"], last, without_gain, branched_from, began)
    if progress.last and progress.is_evaluated and not progress.best:  # the best checkpoint is missing: take this one
        note_evaluation(progress, components.recipe.monitor, progress.last)
        progress.without_gain = without_gain
    return progress


def notes_on_resume(state: Mapping[str, Any], classes: Sequence[str], feed: Feed, allow_other: bool) -> tuple[str, ...]:
    """Compare a checkpoint's training set with the current one; returns a line for each difference that is allowed.

    Args:
        state: the checkpoint's JSON state. What earlier versions did not save is not compared.
        classes, feed: the current ones.
        allow_other: allow another training set.

    Raises:
        ValueError: another training set, with the differences: later updates would have other samples or labels.
    """
    now = feed.reproducibility_key()
    then = {**now, **state.get("feed", {})}
    changes = renamed(state.get("dataset", {}).get("classes", classes), classes)
    differences = [f"classes {changes}"] if changes else []
    if then["samples"] != now["samples"]:
        differences.append(f"samples {then['samples']} → {now['samples']}")
    if not differences and then.get("files") != now.get("files"):
        differences.append("names or classes of its files")
    elif not differences and "contents" in now and then["contents"] != now["contents"]:
        differences.append("contents of its files, of which the names are the same")
    text = f"another training set than the checkpoint's ({', '.join(differences)})"
    if differences and not allow_other:
        raise ValueError(f"resume: {text}; give the same data, another --out-dir, or --allow-other-data")
    notes = [f"resuming with {text}"] if differences else []
    if "feed" in now and then["feed"] != now["feed"]:
        notes.append(f"resuming with --feed {now['feed']} instead of {then['feed']}: other bits follow")
    return tuple(notes)
