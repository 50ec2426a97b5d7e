"""The run folder: where a run keeps everything, which of its checkpoints count, and which may go.

runs/first/
    config.json   recipe.toml   metrics.jsonl   events.out.tfevents.*   checkpoints/step-NNNNNNNN/   lock
"""

import contextlib
import dataclasses
import itertools
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.folder import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    recover_interrupted_replace,
    write_checkpoint,
)
from resnet_fn.config.fields import to_dict
from resnet_fn.config.hints import few, finite_or_null, near_path
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.runtime.disk import replace_text, sha256, sha256_of_file
from resnet_fn.runtime.lock import FolderLock, was_locked
from resnet_fn.runtime.workers import Workers, broadcast_text

_STEP = re.compile(r"step-(\d{8})")
# What a killed run leaves half written, in `checkpoints` and beside it.
_LEFT = re.compile(r"step-\d{8}\.tmp-(\d+|pruned)")
_LEFT_FILE = re.compile(r"\.tmp-\d+-[0-9a-f]{8}-(config|recipe|metrics|validation|bad_files)\.\w+")
# Files that a run writes at its start; other programs may have written one, too.
_FILES = ("config.json", "recipe.toml", "recipe.json", "metrics.jsonl")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run folder, existing or about to."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.path / "checkpoints"

    def step(self, update: int) -> Path:
        """The checkpoint folder that holds the state after `update` updates."""
        return self.checkpoints / f"step-{update:08d}"

    def updates(self) -> list[int]:
        """The updates of all checkpoints, ascending; leftovers of interrupted saves do not count."""
        if not self.checkpoints.is_dir():
            return []
        matches = (_STEP.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def newest(self) -> Checkpoint:
        """The newest intact checkpoint, with a warning for each damaged one after it; else a CheckpointError."""
        updates = self.updates()
        if not updates:
            raise CheckpointError(f"{self.path}: holds no checkpoint; give a run folder or a checkpoint folder")
        for update in reversed(updates):
            try:
                return load_checkpoint(self.step(update))
            except CheckpointError as error:
                print(f"warning: {error}; trying the one before", file=sys.stderr, flush=True)
        raise CheckpointError(f"{self.path}: none of its {len(updates)} checkpoints is intact; start a new run")

    def best(self) -> Checkpoint:
        """The best checkpoint by the metric that the recipe monitors, as the newest intact checkpoint names it."""
        best = self.newest().state["best"]
        if best is None:
            raise CheckpointError(f"{self.path}: has not been evaluated yet, so none is best; use --which last")
        return load_checkpoint(self.step(best["update"]))

    def prune(self, newest: int, keep_last: int, keep_every: int = 0, keep: Collection[int] = ()) -> None:
        """Remove older checkpoints and leftovers of interrupted saves.

        Args:
            newest: the update of the checkpoint just written. It and those before it count among the `keep_last` that
                stay; later ones are damaged, and will be made again.
            keep_every: checkpoints whose update is a multiple of it stay too; 0: none.
            keep: further updates that stay: the best one, and the one that a branch began with.
        """
        for update in [update for update in self.updates() if update <= newest][:-keep_last]:
            if update not in keep and not (keep_every and update % keep_every == 0):
                # Renamed first: a checkpoint that is half removed must not have a checkpoint's name.
                self.step(update).rename(self.step(update).with_suffix(".tmp-pruned"))
        for path in self.checkpoints.iterdir():
            if _LEFT.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def complete_branch(self, start: Checkpoint, progress: Mapping[str, Any]) -> None:
        """Copy the checkpoint that a branch begins with, and the best one, with the branch's `progress`."""
        best = progress["best"] or progress
        branch = {name: progress[name] for name in ("branched_from", "began")}
        for update, state in ((progress["update"], progress), (best["update"], branch)):
            if not self.step(update).exists() and (copied := _find_step(start, update)):
                state = {**copied.state, **finite_or_null(state)}
                write_checkpoint(self.step(update), copied.weights, copied.training, state)

    def reserve(self, workers: Workers, is_new: bool) -> "RunFolder":
        """Have rank 0 make a new run's folder, under another name if another run has just taken this one.

        All ranks must call it; rank 0's `is_new`, whether the folder is to be made, counts.
        """
        path = self.path
        if workers.is_main and is_new:
            with contextlib.suppress(OSError):  # `create` names it
                path.parent.mkdir(parents=True, exist_ok=True)
                for number in itertools.count(2):
                    try:
                        path.mkdir()
                        break
                    except FileExistsError:
                        path = self.path.with_name(f"{self.path.name}-{number}")
        return RunFolder(Path(broadcast_text(str(path), workers)))

    def create(self, lock: FolderLock) -> None:
        """Make the folder and lock it; a ValueError if it cannot be made or written, or if another run has it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.take(self.path)
            self.checkpoints.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.checkpoints):
                pass  # a folder may be there and still not take files
        except OSError as error:
            raise ValueError(f"out_dir: {self.path} cannot be written ({error.strerror}); give another") from None

    def config(self) -> dict[str, Any]:
        """What config.json holds; {} if no run wrote one."""
        try:
            config = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):  # the last: nested too deeply
            return {}
        return config if isinstance(config, dict) and {"recipe", "options"} <= config.keys() else {}

    def write_config(self, recipe: Recipe, options: RunOptions, workers: Workers, recipe_file: str) -> list[str]:
        """Write config.json (settings, versions) and `recipe_file`, which reproduces the run, unless a user changed it.

        Returns:
            A line if so.
        """
        import mindspore
        import numpy

        from resnet_fn import __version__

        config = {
            "recipe": to_dict(recipe),
            "options": to_dict(options),
            "workers": workers.size,
            "versions": {
                "resnet_fn": __version__,
                "mindspore": mindspore.__version__,
                "numpy": numpy.__version__,
                "python": platform.python_version(),
            },
        }
        for left in self.path.iterdir():  # of a process that was killed; the lock keeps others out
            if _LEFT_FILE.fullmatch(left.name):
                left.unlink()
        path = self.path / f"recipe{'.json' if recipe_file.startswith('{') else '.toml'}"
        written = self.config().get("recipe_file")
        changed = written is not None and path.exists() and sha256_of_file(path) != written
        if not changed:
            replace_text(path, recipe_file, "surrogateescape")
            written = sha256(recipe_file.encode("utf-8", "surrogateescape"))
        config["recipe_file"] = written
        # Written last: if it is there, all of the run's settings are.
        replace_text(self.path / "config.json", json.dumps(config, indent=1) + "\n")
        return [f"{path} has been changed since the run wrote it, and stays as it is"] if changed else []


def run_of(checkpoint: Path) -> Path:
    """The run folder of a checkpoint, as it is named: its `checkpoints` may be a link to another disk."""
    named = Path(os.path.abspath(checkpoint))
    return (named if named.parent.name == "checkpoints" else named.resolve()).parent.parent


def find_checkpoint(path: Path, which: str = "last") -> Checkpoint:
    """Load a checkpoint folder of any name, or the last or best checkpoint of a run folder; else a CheckpointError."""
    path = _run_folder(Path(path))
    if not path.exists():
        there = ", ".join(sorted({*_runs_in(path.parent), *_runs_in(Path("runs"))})[-3:])
        hint = near_path(path, f"there is {there}" if there else "give a run folder")
        raise CheckpointError(f"{path}: does not exist; {hint}")
    if _is_checkpoint(path):
        return load_checkpoint(path)
    run = RunFolder(path)
    if not run.checkpoints.exists() and (runs := _runs_in(path)):
        raise CheckpointError(f"{path}: is a folder of runs; give one of them: {few(runs, 20)}")
    return run.best() if which == "best" else run.newest()


def _run_folder(path: Path) -> Path:
    """The path; of a run's `checkpoints` the run folder, which is meant."""
    named = Path(os.path.abspath(path))
    inner = named.name == "checkpoints" and RunFolder(named.parent).updates()
    return (path.parent if path.name == named.name else named.parent) if inner else path


def _is_checkpoint(path: Path) -> bool:
    return (path / MANIFEST).exists() or _STEP.fullmatch(path.resolve().name) is not None


def settings_of(*paths: str) -> dict[str, Any]:
    """The "recipe" and "options" of the first run or checkpoint that exists, as JSON types; else a CheckpointError.

    They are not verified: `find_start` compares them with the checkpoint's.
    """
    for path in map(_run_folder, map(Path, filter(None, paths))):
        if config := RunFolder(run_of(path) if _is_checkpoint(path) else path).config():
            return config
    checkpoint = find_checkpoint(Path(paths[-1]))
    return {"recipe": checkpoint.state["recipe"], "options": {}}


def _runs_in(folder: Path) -> list[str]:
    return sorted(str(path.parent) for path in folder.glob("*/checkpoints"))


def find_start(
    recipe: Recipe, options: RunOptions, workers: Workers, lock: FolderLock
) -> tuple[RunFolder, Checkpoint | None]:
    """The folder of the run, and the checkpoint to resume from (None: start at update 0).

    Rank 0 decides, and locks a folder that holds a run already; nothing is made yet.

    Raises:
        CheckpointError, ValueError: nothing to resume, another recipe, or a folder that is another run's or in use.
    """
    run, checkpoint = _choose(recipe, options, lock) if workers.is_main else (RunFolder(Path()), None)
    best = checkpoint.state["best"] if checkpoint else None
    lost = False
    if checkpoint and best and not run.step(best["update"]).exists():
        lost = _find_step(checkpoint, best["update"]) is None
    decided = [str(run.path), str(checkpoint.path if checkpoint else ""), lost]
    folder, start, lost = json.loads(broadcast_text(json.dumps(decided), workers))
    if not workers.is_main:
        run = RunFolder(Path(folder))
        if start and not Path(start).exists():
            raise CheckpointError(f"{start}: this rank cannot see it; put the run folder where all machines can")
        checkpoint = load_checkpoint(Path(start)) if start else None
    if checkpoint and lost:
        checkpoint.state["best"] = None
    return run, checkpoint


def _find_step(start: Checkpoint, update: int) -> Checkpoint | None:
    """The checkpoint after an earlier update: beside `start`, or where its run branched from; None if it is missing."""
    if update == start.state["update"]:
        return start
    for place in filter(None, (str(start.path), start.state.get("branched_from"))):
        folder = Path(place).with_name(RunFolder(Path()).step(update).name)
        try:
            if folder.exists():
                return load_checkpoint(folder)
        except CheckpointError as error:
            print(f"warning: {error}", file=sys.stderr, flush=True)
    print(f"warning: the best checkpoint, after update {update}, has gone", file=sys.stderr, flush=True)
    return None


def _choose(recipe: Recipe, options: RunOptions, lock: FolderLock) -> tuple[RunFolder, Checkpoint | None]:
    source = None if options.resume in ("auto", "never") else _run_folder(Path(options.resume))
    single = source is not None and _is_checkpoint(source)
    home = run_of(source) if source and single else source  # the run that it is, or lies in
    run = RunFolder(Path(options.out_dir or home or Path("runs", f"{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}")))
    if source and single and not options.out_dir and source.resolve().parent != run.checkpoints.resolve():
        raise ValueError(f"out_dir: {source} lies in no run folder; give one with --out-dir")
    others = [name for name in _FILES if (run.path / name).exists()]
    if others and not run.updates() and not was_locked(run.path, has_run=bool(run.config())):
        raise ValueError(f"out_dir: {run.path}/{others[0]} is no run's; give another --out-dir")
    if run.checkpoints.is_dir():
        lock.take(run.path)
        recover_interrupted_replace(run.checkpoints)
    newest = max(run.updates(), default=0)
    taken = f"out_dir: {run.path} already"
    if newest and options.resume == "never":
        raise ValueError(f"{taken} holds a run; give another --out-dir or --resume auto")
    branch = home is not None and home.resolve() != run.path.resolve()
    if newest and (branch or not single):
        checkpoint: Checkpoint | None = run.newest()
    else:
        checkpoint = find_checkpoint(source) if source else None
    if checkpoint and newest and branch:
        began = checkpoint.state.get("branched_from")  # "" is no path: it would be the working directory
        if source and not (began and source.resolve() in (Path(began).resolve(), run_of(Path(began)).resolve())):
            fix = "give another --out-dir, or leave out --resume to go on with that run"
            raise ValueError(f"{taken} holds a run, which did not begin with {source}; {fix}")
    elif checkpoint and single and newest > checkpoint.state["update"]:
        if checkpoint.state.get("began") != checkpoint.state["update"]:
            raise ValueError(f"{taken} goes on to update {newest}, past {checkpoint.path.name}; give another --out-dir")
        checkpoint = run.newest()  # its recipe.toml names the checkpoint that it began with
    if checkpoint is not None:
        check_same_recipe(checkpoint, recipe)
    return run, checkpoint


def check_same_recipe(checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Raise a ValueError that lists the differences if the recipe is not the checkpoint's."""
    made = checkpoint.state["recipe"]
    ours, theirs = to_dict(recipe), to_dict(recipe_from_dict(made))
    if not recipe.model:  # the weights named it, at the start of the run only
        ours |= {key: theirs[key] for key in ("model", "norm", *(() if recipe.stem else ("stem",)))}
    keys = [key for key in ours if key != "name" and ours[key] != theirs[key]]
    if keys:
        differences = ", ".join(f"{key} {theirs[key]!r} → {ours[key]!r}" for key in keys)
        run = checkpoint.path.parent.parent
        file = next((f" --recipe {run / name}" for name in _FILES[1:3] if (run / name).exists()), "")
        file += " --resume auto" * bool(file and checkpoint.state.get("branched_from"))
        more = f"for more epochs from its weights give{file} --weights {run} --epochs N and another --out-dir"
        other = "for another run give another --out-dir, without --resume"
        raise ValueError(
            f"resume: {checkpoint.path} was made by another recipe ({differences}); to go on with its own give "
            f"--resume {run} alone; {more if keys == ['epochs'] else other}"
        )
