"""From where a run starts, what a checkpoint of it holds, and how it goes on from one to the same bits."""

import dataclasses
import functools
import json
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.folder import Checkpoint, CheckpointError, load_checkpoint, recover_interrupted_replace
from resnet_fn.checkpoint.parameters import restore_state
from resnet_fn.checkpoint.run_folder import FILES, RunFolder, find_checkpoint, locate
from resnet_fn.config.fields import to_dict
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.data.balance import BALANCED
from resnet_fn.data.feed import Feed
from resnet_fn.data.input_spec import renamed
from resnet_fn.run.build import Progress, Run
from resnet_fn.runtime.disk import finite_or_null
from resnet_fn.runtime.lock import FolderLock, was_locked
from resnet_fn.runtime.process import EXACT_THREADS, kernel_environment
from resnet_fn.runtime.workers import Workers, broadcast_text


def find_start(
    recipe: Recipe, options: RunOptions, workers: Workers, lock: FolderLock
) -> tuple[RunFolder, Checkpoint | None]:
    """The folder of the run, and the checkpoint to resume from (None: start at update 0).

    Rank 0 decides, and locks a folder that holds a run already; nothing is made yet.

    Raises:
        CheckpointError, ValueError: nothing to resume, another recipe, or a folder that is another run's or in use.
    """
    folder, checkpoint = _choose(recipe, options, lock) if workers.is_main else (RunFolder(Path()), None)
    best = checkpoint.state["best"] if checkpoint else None
    lost = best is not None and not folder.step(best["update"]).exists()
    if best and lost:
        print(f"warning: the best checkpoint, after update {best['update']}, is missing", file=sys.stderr, flush=True)
    decided = [str(folder.path), str(checkpoint.path if checkpoint else ""), lost]
    path, start, lost = json.loads(broadcast_text(json.dumps(decided), workers))
    if not workers.is_main:
        folder = RunFolder(Path(path))
        if start and not Path(start).exists():
            raise CheckpointError(f"{start}: this rank cannot see it; put the run folder where all machines can")
        checkpoint = load_checkpoint(Path(start)) if start else None
    if checkpoint and lost:
        checkpoint.state["best"] = None
    return folder, checkpoint


def _choose(recipe: Recipe, options: RunOptions, lock: FolderLock) -> tuple[RunFolder, Checkpoint | None]:
    source = None if options.resume in ("auto", "never") else Path(options.resume)
    home, is_one = locate(source) if source else (None, False)
    folder = RunFolder(Path(options.out_dir or home or f"runs/{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}"))
    if source and home:
        _check_home(source, is_one, RunFolder(home), folder, options.out_dir or "NEW")
    others = [name for name in FILES if (folder.path / name).exists()]
    if others and not folder.updates() and not was_locked(folder.path, has_run=bool(folder.config())):
        raise ValueError(f"out_dir: {folder.path}/{others[0]} is no run's; give another --out-dir")
    if folder.checkpoints.is_dir():
        lock.take(folder.path)
        recover_interrupted_replace(folder.checkpoints)
    newest = max(folder.updates(), default=0)
    if newest and options.resume == "never":
        raise ValueError(f"out_dir: {folder.path} already holds a run; give another --out-dir or --resume auto")
    checkpoint = find_checkpoint(source) if source else folder.newest() if newest else None
    if checkpoint is not None:
        if is_one and newest > checkpoint.state["update"]:
            way = _how_to_branch(folder, "NEW", checkpoint.state["update"])
            raise ValueError(f"resume: {folder.path} goes on to update {newest}, past {checkpoint.path.name}; {way}")
        check_same_recipe(checkpoint, recipe)
    return folder, checkpoint


def _check_home(source: Path, is_one: bool, home: RunFolder, folder: RunFolder, to: str) -> None:
    """A ValueError if `source` does not lie in its run's folder, or `folder` is another run's than `home`."""
    if is_one and source.resolve().parent != home.checkpoints.resolve():
        place = RunFolder(Path(to)).step(find_checkpoint(source).state["update"])
        copy = _shell(["mkdir", "-p", place.parent], ["cp", "-r", source, place])
        raise ValueError(
            f"resume: {source} lies in no run folder; put it into one: {copy}; then --resume {shlex.quote(to)}"
        )
    if home.path.resolve() != folder.path.resolve():
        if folder.updates():
            raise ValueError(f"out_dir: {to} already holds a run; leave out --resume to go on with it, or give another")
        branch = _how_to_branch(home, to, find_checkpoint(source).state["update"])
        raise ValueError(f"out_dir: {to} is not the folder of {source}; {branch}")


def _how_to_branch(home: RunFolder, to: str, update: int) -> str:
    """The commands that copy a run as it stood after an update, as the end of an error's text."""
    newer = [RunFolder(Path(to)).step(number) for number in home.updates() if number > update]
    copy = _shell(["cp", "-r", f"{home.path}/.", to], ["rm", "-r", *newer] if newer else [])
    return f"to branch off there, copy the run: {copy}; then --resume {shlex.quote(to)}, without --out-dir"


def _shell(*commands: Sequence[object]) -> str:
    return " && ".join(shlex.join(map(str, words)) for words in commands if words)


def check_same_recipe(checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Raise a ValueError that lists the differences if the recipe is not the checkpoint's."""
    ours, theirs = to_dict(recipe), to_dict(recipe_from_dict(checkpoint.state["recipe"]))
    if not recipe.model:  # the weights named it, at the start of the run only
        ours |= {key: theirs[key] for key in ("model", "norm", *(() if recipe.stem else ("stem",)))}
    keys = [key for key in ours if key != "name" and ours[key] != theirs[key]]
    if keys:
        differences = ", ".join(f"{key} {theirs[key]!r} → {ours[key]!r}" for key in keys)
        run = checkpoint.path.parent.parent
        file = f" --recipe {run}/recipe.toml" if (run / "recipe.toml").exists() else ""
        more = f"for more epochs from its weights give{file} --weights {run} --epochs N and another --out-dir"
        other = "for another run give another --out-dir, without --resume"
        raise ValueError(
            f"resume: {checkpoint.path} was made by another recipe ({differences}); to go on with its own give "
            f"--resume {run} alone; {more if keys == ['epochs'] else other}"
        )


def restore(run: Run, checkpoint: Checkpoint) -> None:
    """Put what `save` has written into a run that was just built, bit for bit; `Run.notes` gets what differs now.

    Raises:
        CheckpointError, ValueError: it is of another net, of other data, or of other class weights.
    """
    saved = checkpoint.state
    run.notes += data_notes(saved, run.dataset.classes, run.feed, run.options.allow_other_data)
    run.notes += layout_notes(saved["parallel_layout"], parallel_layout(run.options, run.workers))
    restore_state(run.state, checkpoint)
    setting = run.recipe.class_weights
    if setting not in ("", BALANCED) and saved["class_weights"] != list(run.class_weights):
        fix = "put it back, or start another run"
        raise ValueError(f"class_weights: {setting} has changed since {checkpoint.path}; {fix}")
    last = saved["last"] and {name: math.nan if value is None else value for name, value in saved["last"].items()}
    run.progress = progress = Progress(saved["update"], saved["best"], last, saved["without_gain"])
    if progress.last and progress.is_evaluated and not progress.best:  # the best checkpoint is missing: take this one
        progress.update_best(run.recipe.monitor, progress.last)
        progress.without_gain = saved["without_gain"]


def data_notes(saved: Mapping[str, Any], classes: Sequence[str], feed: Feed, allow_other: bool) -> list[str]:
    """Compare a checkpoint's training set with the current one; returns a line for each difference that is allowed.

    Args:
        saved: the checkpoint's JSON state.
        classes, feed: the current ones.
        allow_other: allow another training set.

    Raises:
        ValueError: another training set, with the differences: later updates would have other samples or labels.
    """
    now, then = feed.reproducibility_key(), saved["feed"]
    changes = renamed(saved["dataset"]["classes"], classes)
    differences = [f"classes {changes}"] if changes else []
    if then["samples"] != now["samples"]:
        differences.append(f"samples {then['samples']} → {now['samples']}")
    if not differences and then.get("files") != now.get("files"):  # a set in memory has neither
        differences.append("names or classes of its files")
    elif not differences and then.get("contents") != now.get("contents"):
        differences.append("contents of its files, of which the names are the same")
    text = f"another training set than the checkpoint's ({', '.join(differences)})"
    if differences and not allow_other:
        raise ValueError(f"resume: {text}; give the same data, another --out-dir, or --allow-other-data")
    notes = [f"resuming with {text}"] if differences else []
    if then.get("feed") != now.get("feed"):
        notes.append(f"resuming with --feed {now['feed']} instead of {then['feed']}: other bits follow")
    return notes


def parallel_layout(options: RunOptions, workers: Workers) -> dict[str, Any]:
    """Into which parts an update is split, and what chooses the kernels that compute it, as JSON types."""
    kernels = {"mode": options.mode, "fast-math": "on" if options.fast_math else "off", **kernel_environment()}
    return {"workers": workers.size, "micro-batches": options.accumulate, **kernels}


def layout_notes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each way in which updates were computed otherwise: `then` and `now` are `parallel_layout`s."""
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


def save_is_due(progress: Progress, every: int, is_over: bool) -> bool:
    """Whether to save after an epoch: always, but with `checkpoint_every` only if it is due, the best or the last."""
    is_best = progress.best is not None and progress.best["update"] == progress.update
    return not every or progress.update % every == 0 or is_best or is_over


def save(run: Run) -> None:
    """Have rank 0 write a checkpoint in the background, then remove those that are no longer kept.

    A checkpoint holds all that changes during a run. The arrays are `run.state`, a `TrainState` (update/state.py): the
    net's parameters, frozen ones and BatchNorm's statistics included, and the state of the optimizer, the loss scaler
    and the moving average. The rest is JSON, below. Order, augmentation, dropout and learning rate are functions of
    the recipe and the update's number, and need no state.
    """
    if not run.workers.is_main:
        return
    progress, options = run.progress, run.options
    saved = {
        **finite_or_null(dataclasses.asdict(progress)),  # `Progress`, run/build.py
        "epoch": progress.update // run.feed.updates_per_epoch,
        # What a resumed run must share, or gets a line about: `check_same_recipe`, `data_notes`, `layout_notes`.
        "recipe": to_dict(run.recipe),
        "dataset": run.dataset.input.to_dict(),  # classes and preprocessing, which evaluation and export need, too
        "feed": run.feed.reproducibility_key(),
        "parallel_layout": parallel_layout(options, run.workers),
        "class_weights": list(run.class_weights),
        "class_balance": run.class_balance,  # for the report
    }
    best = progress.best["update"] if progress.best else None
    prune = functools.partial(run.folder.prune, progress.update, options.keep_last, options.keep_every, best)
    run.telemetry.flush()
    run.writer.save(run.folder.step(progress.update), saved, prune)
