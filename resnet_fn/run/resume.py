"""These functions save a checkpoint, choose the checkpoint from which a run starts, and load that
checkpoint.
"""

import dataclasses
import functools
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.folder import Checkpoint, load_checkpoint
from resnet_fn.checkpoint.manifest import CheckpointError
from resnet_fn.checkpoint.parameters import missing_buffers, restore_state
from resnet_fn.checkpoint.run_folder import RunFolder, find_checkpoint, locate, run_of
from resnet_fn.config.declaration import BALANCED, CUSTOM
from resnet_fn.config.optimizers import settings_read_by
from resnet_fn.config.options import RunOptions
from resnet_fn.config.packages import installed_version
from resnet_fn.config.printing import shell_words, warn
from resnet_fn.config.recipe import PREPARATION, Recipe
from resnet_fn.config.rules import RULES, without_effect
from resnet_fn.config.stored import recipe_from_dict
from resnet_fn.config.values import show_value, to_dict
from resnet_fn.data.feed import Feed
from resnet_fn.data.file_feed import FileFeed
from resnet_fn.data.input_spec import renamed
from resnet_fn.evaluation.scoring import BLOCK, block_size
from resnet_fn.run.build import Progress, Run
from resnet_fn.runtime.cpus import cpu_count
from resnet_fn.runtime.disk import finite_or_null
from resnet_fn.runtime.instructions import NO_LIMIT, STANDARD, VARIABLE
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.process import EXACT_THREADS, REASON, kernel_environment
from resnet_fn.runtime.workers import Workers, broadcast_text
from resnet_fn.telemetry import read_log
from resnet_fn.weights.preparation import chosen_preparation

_BLOCK = "samples at a time in evaluation"  # name in `parallel_layout`


def save(run: Run) -> None:
    """Write a checkpoint on rank 0 in the background, and then remove checkpoints that are no
    longer kept.
    """
    run.saved = run.progress.update
    if not run.workers.is_main:
        return
    progress = run.progress
    options = run.options
    saved = {
        # The run's progress: the fields of `Progress` (run/build.py).
        **finite_or_null(dataclasses.asdict(progress)),
        "epoch": progress.update // run.feed.updates_per_epoch,
        # Values that a resume compares, in `check_same_recipe`, `data_notes`, `validation_notes`,
        # `layout_notes` and `restore`.
        "recipe": to_dict(run.recipe),
        # classes and preprocessing, which evaluation and export need, too
        "dataset": to_dict(run.dataset.input),
        "feed": run.feed.reproducibility_key,
        "validation": run.validation_set,
        "parallel_layout": parallel_layout_of(run),
        "class_weights": list(run.class_weights),
        # Values for an evaluation's report (report/writer.py).
        "class_balance": run.class_balance,
    }
    best = progress.best["update"] if progress.best else None
    prune = functools.partial(
        run.folder.prune, progress.update, options.keep_last, options.keep_every, best
    )
    run.telemetry.flush()
    # The writer adds the tensors of `run.state`, which `build_run` has passed to it.
    run.writer.save(run.folder.checkpoint_path(progress.update), saved, prune)


def save_is_due(progress: Progress, every: int, is_over: bool) -> bool:
    """Return whether the run saves a checkpoint at the end of an epoch.

    `every` is `RunOptions.checkpoint_every`.
    """
    is_best = progress.best is not None and progress.best["update"] == progress.update
    return not every or progress.update % every == 0 or is_best or is_over


def find_start(
    recipe: Recipe, options: RunOptions, workers: Workers, lock: FolderLock
) -> tuple[RunFolder, Checkpoint | None]:
    """Return the run folder, and the checkpoint from which the run starts, or None for a start at
    update 0.

    The start depends on `options.resume`:
        auto: the newest checkpoint in `out_dir`, or update 0 if there is no checkpoint.
        never: update 0, or ValueError if `out_dir` has checkpoints.
        a run folder: the newest checkpoint in this folder.
        a checkpoint: the named checkpoint, or ValueError if its run has newer checkpoints.

    `recipe.epochs` may differ from the value in the checkpoint only if `resume` names a run or
    checkpoint. Without `out_dir`, the run folder is the resumed run's folder, or a new folder
    runs/<recipe>-<time>. Rank 0 chooses for all. If the chosen folder has checkpoints, rank 0
    locks it. This function does not make a new folder.
    """
    text = ""
    # an error here ends rank 0, and so the other workers, which wait in the broadcast
    if workers.is_main:
        folder, checkpoint = _choose(recipe, options, lock)
        best = checkpoint.state["best"] if checkpoint else None
        if best and not folder.checkpoint_path(best["update"]).exists():
            warn(f"the best checkpoint, after update {best['update']}, is missing")
            # `restore` then records the evaluation of this checkpoint, if there is one, as the best
            best = None
        text = json.dumps([str(folder.path), str(checkpoint.path) if checkpoint else "", best])
    path, start, best = json.loads(broadcast_text(text, workers))
    if not workers.is_main:
        folder = RunFolder(Path(path))
        if start and not Path(start).exists():
            raise CheckpointError(
                f"{start}: not found on worker {workers.rank}; put the run folder on a shared disk"
            )
        checkpoint = load_checkpoint(Path(start)) if start else None
    if checkpoint:
        checkpoint.state["best"] = best  # the same on all workers
    return folder, checkpoint


def _choose(
    recipe: Recipe, options: RunOptions, lock: FolderLock
) -> tuple[RunFolder, Checkpoint | None]:
    # a run or a checkpoint
    named = None if options.resume in ("auto", "never") else Path(options.resume)
    if named:
        folder = RunFolder(locate(named)[0])
        _check_named(named, folder, options.out_dir)
    elif options.out_dir:
        folder = RunFolder(Path(options.out_dir))
    else:
        # If the clock was set back, an old run may have this name. `reserve` then chooses another.
        return RunFolder(Path(f"runs/{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}")), None
    folder.open(lock)
    newest = max(folder.updates(), default=0)
    if not newest:
        _check_log(folder)
    if newest and options.resume == "never":
        raise folder.already_holds_a_run()
    if not newest and not named:
        return folder, None
    checkpoint = find_checkpoint(named) if named else folder.newest()
    update = checkpoint.state["update"]
    # to continue would mix two histories in one folder
    if checkpoint.path == named and newest > update:
        fix = _how_to_branch(folder, "NEW", update)
        raise ValueError(
            f"resume: {folder.path} has checkpoints after {named.name}, up to update {newest}; "
            f"{fix}"
        )
    check_same_recipe(checkpoint, recipe, may_differ=("name", "epochs") if named else ("name",))
    return folder, checkpoint


def _check_log(folder: RunFolder) -> None:
    """Raise CheckpointError if the log of a run without checkpoints reports one.

    Their disk may not be mounted. A new run would shorten the log.
    """
    events = read_log(folder.log) if folder.log.exists() else []
    saved = [event["update"] for event in events if event.get("event") == "checkpoint"]
    if saved:
        raise CheckpointError(
            f"resume: {folder.checkpoints} contains no checkpoint, but {folder.log} reports one "
            f"after update {max(saved)}; "
            "mount their disk or restore them, or give another --out-dir for a new run"
        )


def _check_named(named: Path, run: RunFolder, out_dir: str) -> None:
    """Check that `named` (a run or a checkpoint) lies in the folder `run`, and that `out_dir`, if
    given, is `run`.
    """
    to = out_dir or "NEW"
    if locate(named)[1] and named.resolve().parent != run.checkpoints.resolve():
        checkpoint = RunFolder(Path(to)).checkpoint_path(find_checkpoint(named).state["update"])
        copy = _shell(["mkdir", "-p", checkpoint.parent], ["cp", "-r", named, checkpoint])
        raise ValueError(
            f"resume: {named} does not lie in a run folder; put it into one: {copy}; "
            f"then --resume {shell_words(to)}"
        )
    if out_dir and Path(out_dir).resolve() != run.path.resolve():
        if RunFolder(Path(out_dir)).updates():
            raise ValueError(
                f"out_dir: {out_dir} already holds a run; "
                "leave out --resume to continue this run, or give another --out-dir"
            )
        fix = _how_to_branch(run, out_dir, find_checkpoint(named).state["update"])
        raise ValueError(f"out_dir: {out_dir} is not the folder of {named}; {fix}")


def _how_to_branch(run: RunFolder, to: str, update: int) -> str:
    """Return, for an error message, the shell commands that copy a run to `to` without checkpoints
    after `update`.
    """
    newer = [
        RunFolder(Path(to)).checkpoint_path(number) for number in run.updates() if number > update
    ]
    copy = _shell(["cp", "-r", f"{run.path}/.", to], ["rm", "-r", *newer] if newer else [])
    return (
        f"to start from update {update}, copy the run: {copy}; then --resume {shell_words(to)}, "
        "without --out-dir"
    )


def _shell(*commands: Sequence[object]) -> str:
    return " && ".join(shell_words(*command) for command in commands if command)


def check_same_recipe(checkpoint: Checkpoint, recipe: Recipe, may_differ: Sequence[str]) -> None:
    """Raise ValueError if a setting of the recipe, except `may_differ`, differs from the checkpoint's
    recipe.
    """
    began = recipe_from_dict(checkpoint.state["recipe"])
    ours, theirs = to_dict(recipe), to_dict(began)
    if recipe.optimizer == began.optimizer:  # then 0 is equal to what it means for this one
        ours |= settings_read_by(recipe.optimizer, ours)
        theirs |= settings_read_by(began.optimizer, theirs)
    ours |= {name: theirs[name] for name in _kept_settings(recipe, checkpoint)}
    if recipe.weights:  # these settings come from the weights, unless the user chose them
        preparation = chosen_preparation(recipe)
        ours |= {name: theirs[name] for name in PREPARATION if name not in preparation}
    if not recipe.model:  # the weights determined the model when the run began
        ours |= {
            "model": theirs["model"],
            "norm": theirs["norm"],
            "stem": recipe.stem or theirs["stem"],
        }
        # what the norm has made useless was left out then, too
        useless = without_effect(ours) - recipe.chosen.keys()
        ours |= {name: theirs[name] for name in useless}
    keys = [key for key in ours if key not in may_differ and ours[key] != theirs[key]]
    if not keys:
        return
    differences = ", ".join(f"{key} {theirs[key]!r} → {ours[key]!r}" for key in keys)
    run = str(run_of(checkpoint.path))
    if recipe.dataset == CUSTOM:
        fix = "call fit with the old settings, or give another out_dir for a new run"
        longer = f"call fit(…, resume={run!r}, epochs={recipe.epochs}), without out_dir"
    else:
        fix = (
            f"give --resume {run} alone to keep the old settings, or another --out-dir without "
            "--resume for a new run"
        )
        longer = f"give --resume {shell_words(run)} --epochs {recipe.epochs}, without --out-dir"
    if keys == ["epochs"]:
        fix = f"{fix}; for more epochs of this run {longer}"
    raise ValueError(
        f"resume: {checkpoint.path} was made with other settings ({differences}); {fix}"
    )


def _kept_settings(recipe: Recipe, checkpoint: Checkpoint) -> dict[str, str]:
    """Return the settings that stay as they are in the checkpoint, each with the reason.

    The checkpoint, which is older, lacks the setting, and the user did not choose it; or the
    setting has no effect, so that the start of the run left it out.
    """
    known = {*checkpoint.state["recipe"], *recipe.chosen}
    why = "because the run began with a version that lacks this setting"
    of_new_runs = [rule for rule in RULES if rule.only_new_runs]
    useless = dict.fromkeys(
        without_effect(vars(recipe), of_new_runs), "because it has no effect in this run"
    )
    return useless | {name: why for name in vars(recipe) if name not in known}


def resumed_recipe(recipe: Recipe, checkpoint: Checkpoint) -> tuple[Recipe, list[str]]:
    """Return the recipe with which a run goes on, and notes on settings that are newer than the
    run or have no effect.

    `recipe` is the caller's, after `check_same_recipe`. Its name and its epochs are kept.
    """
    began = recipe_from_dict(checkpoint.state["recipe"])
    notes = []
    for name, why in _kept_settings(recipe, checkpoint).items():
        old = show_value(getattr(began, name))
        new = show_value(getattr(recipe, name))
        if old != new:
            notes.append(f"{name} stays {old}, not {new}, {why}")
    return began.changed(name=recipe.name, epochs=recipe.epochs), notes


def options_here(options: Any) -> tuple[RunOptions, list[str]]:
    """Return the options with which a run goes on in this process, and a note if the run's
    `data_threads` are more than this process's CPUs, unless the user gave them for this start.
    """
    most = cpu_count()
    if "data_threads" in options.chosen or options.data_threads <= most:
        return options, []
    note = f"data_threads {options.data_threads} becomes {most}, the number of CPUs here"
    return options.adapted(data_threads=most), [note]


def restore(run: Run, checkpoint: Checkpoint) -> None:
    """Load a checkpoint into a newly built run, and add notes about changed data and settings to
    `run.notes`.
    """
    saved = checkpoint.state
    for name in ("best", "last"):
        if saved[name] and run.recipe.monitor not in saved[name]:
            raise CheckpointError(
                f"{checkpoint.path}: {name} has no {run.recipe.monitor}, which the run monitors; "
                "use another checkpoint"
            )
    run.notes += data_notes(saved, run.dataset.classes, run.feed, run.options.allow_other_data)
    run.notes += validation_notes(saved.get("validation"), run.validation_set)
    epochs_then = recipe_from_dict(saved["recipe"]).epochs
    run.notes += epochs_notes(saved["update"], epochs_then, run)
    run.notes += layout_notes(saved["parallel_layout"], parallel_layout_of(run))
    if note := missing_buffers(run.state.of_net, checkpoint.weights):
        run.notes.append(f"warning: the checkpoint {note}")
    restore_state(run.state, checkpoint)
    setting = run.recipe.class_weights
    if setting not in ("", BALANCED) and saved["class_weights"] != list(run.class_weights):
        raise ValueError(
            f"class_weights: the file {setting} has changed since {checkpoint.path}; "
            "restore the file, or start another run"
        )
    # JSON has no NaN, so `save` wrote null.
    last = saved["last"] and {
        name: math.nan if value is None else value for name, value in saved["last"].items()
    }
    run.progress = progress = Progress(saved["update"], saved["best"], last, saved["without_gain"])
    run.saved = progress.update
    run.notes += evaluation_notes(run)
    # the best checkpoint is missing, so take this one
    if last and progress.is_evaluated and not progress.best:
        progress.update_best(run.recipe.monitor, last)
        progress.without_gain = saved["without_gain"]  # this number already counts the evaluation


def evaluation_notes(run: Run) -> list[str]:
    """Return a note if the run begins with an evaluation, which the earlier process did not end."""
    if not run.evaluation_is_due:
        return []
    size = block_size(run.options.eval_batch_size)
    note = f"the evaluation after update {run.progress.update} comes first"
    if size == 1:
        return [note]
    setting = "eval_batch_size=" if run.recipe.dataset == CUSTOM else "--eval-batch-size "
    return [f"{note}; if it ran out of memory before, give {setting}{max(1, size // 4)}"]


def epochs_notes(update: int, then: int, run: Run) -> list[str]:
    """Return a note if the run's epochs differ from the checkpoint's epochs, `then`."""
    now = run.recipe.epochs
    if now == then:
        return []
    if update > run.total:
        done = update / run.feed.updates_per_epoch
        raise ValueError(
            f"epochs: {now} is less than the {done:.4g} epochs that the run has done; give more "
            "epochs"
        )
    mixing = "; mix_off_epochs counts back from the new end" * bool(run.recipe.mix_off_epochs)
    rate = run.schedule(update) * run.rate_factor
    return [
        f"resuming with epochs {now} instead of {then}: the learning rate is {rate:.3g}{mixing}"
    ]


def data_notes(
    saved: Mapping[str, Any], classes: Sequence[str], feed: Feed, allow_other: bool
) -> list[str]:
    """Return notes about differences between the run's data and the data in `saved`, the state of a
    checkpoint.
    """
    now = feed.reproducibility_key
    then = saved["feed"]
    changes = renamed(saved["dataset"]["classes"], classes)
    differences = _differences(then, now, [f"classes {changes}"] if changes else [])
    other_data = f"another training set than the checkpoint's ({', '.join(differences)})"
    if differences and not allow_other:
        fix = "give the same data, another --out-dir, or --allow-other-data"
        if "arrays" in now:
            fix = "call fit with the same arrays, another out_dir, or allow_other_data=True"
        raise ValueError(f"resume: {other_data}; {fix}")
    notes = [f"resuming with {other_data}"] if differences else []
    if then.get("feed") != now.get("feed"):
        notes.append(
            f"resuming with --feed {now['feed']} instead of {then['feed']}: some bits of the "
            "results differ"
        )
    return notes


def validation_notes(then: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    """Return a list with a warning if the validation set has changed.

    Older checkpoints have no `then`.
    """
    differences = _differences(then, now) if then else []
    other_set = f"another validation set than the checkpoint's ({', '.join(differences)})"
    effect = "metrics before and after are of different images, also the best checkpoint's"
    return [f"warning: resuming with {other_set}: {effect}"] if differences else []


def _differences(
    then: Mapping[str, Any], now: Mapping[str, Any], known: Sequence[str] = ()
) -> list[str]:
    """Return `known` and a difference of the numbers of samples, or else one of names or contents,
    if there is one.
    """
    differences = list(known)
    if then["samples"] != now["samples"]:
        differences.append(f"samples {then['samples']} → {now['samples']}")
    contents = {  # files have the first two entries, arrays of `fit` the last
        "files": "other file names or classes",
        "contents": "other contents of files with the same names",
        "arrays": "other values in the training or validation arrays",
    }
    return (
        differences
        or [text for name, text in contents.items() if then.get(name) != now.get(name)][:1]
    )


def parallel_layout_of(run: Run) -> dict[str, Any]:
    """Return the `parallel_layout` of a run."""
    decodes = isinstance(run.feed, FileFeed)
    return parallel_layout(run.options, run.workers, decodes_images=decodes)


def parallel_layout(
    options: RunOptions, workers: Workers, decodes_images: bool = False
) -> dict[str, Any]:
    """Return settings and versions that can change the results of an update, as a dict of JSON
    types.
    """
    kernels = {
        "mode": options.mode,
        "fast-math": "on" if options.fast_math else "off",
        **kernel_environment(),
    }
    if decodes_images:
        kernels["Pillow"] = installed_version("pillow")
    return {
        "workers": workers.size,
        "micro-batches": options.accumulate,
        _BLOCK: block_size(options.eval_batch_size),
        **kernels,
    }


def layout_notes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Compare two `parallel_layout` results.

    Return notes on differences and on more than `EXACT_THREADS` threads. Older checkpoints may lack
    entries of `then`, which are not compared.
    """
    notes = []
    of_evaluations = "some bits of the evaluations may differ"
    of_parts = (
        "samples stay the same, but results differ; BatchNorm normalises each part of a batch "
        "separately"
    )
    effects = {_BLOCK: of_evaluations, "workers": of_parts, "micro-batches": of_parts}
    # Older versions computed 64 samples at a time, and had one way to compute convolutions.
    then = {_BLOCK: BLOCK, "convolutions": STANDARD, **then}
    for name in now:
        if name == REASON or now[name] == then.get(name, now[name]):  # a reason changes no bits
            continue
        if name == VARIABLE and {then[name].upper(), now[name].upper()} <= NO_LIMIT:
            continue  # the same kernels
        setting = f"{now[name]} {name}" if name in effects else f"{name} {now[name]}"
        effect = effects.get(name, "some bits of the results may differ")
        notes.append(f"resuming with {setting} instead of {then[name]}: {effect}")
    # This note does not need a difference: with more threads, MindSpore splits convolutions by
    # measured times.
    if (threads := min(now["thread count"], now["CPU count"])) > EXACT_THREADS:
        notes.append(
            f"resuming with {threads} threads: MindSpore splits work by measured times, so some "
            "bits may differ; "
            f"a run with --threads {EXACT_THREADS} or fewer keeps the same bits when resumed"
        )
    return notes
