"""The run folder: where a run keeps everything, which of its checkpoints count, and which may go.

runs/first/
    config.json   recipe.toml   metrics.jsonl   events.out.tfevents.*   checkpoints/step-NNNNNNNN/   lock
"""

import dataclasses
import json
import platform
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from resnet_fn.checkpoint.folder import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    recover_interrupted_replace,
)
from resnet_fn.config.fields import to_dict
from resnet_fn.config.gone import check_resume
from resnet_fn.config.hints import few, near_path
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.runtime.disk import replace_text
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.workers import Workers, broadcast_text

_STEP = re.compile(r"step-(\d{8})")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run folder, existing or about to."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of all its checkpoints."""
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
        """The newest checkpoint that verifies; each damaged one on the way is named in a warning.

        Raises:
            CheckpointError: there is none, or none verifies. Never a silent start from the beginning.
        """
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
        """The best checkpoint by what the recipe monitors, as the newest intact one knows it."""
        best = self.newest().state["best"]
        if best is None:
            raise CheckpointError(f"{self.path}: has not been evaluated yet, so none is best; use --which last")
        return load_checkpoint(self.step(best["update"]))

    def prune(self, newest: int, keep_last: int, keep_every: int = 0, best: int | None = None) -> None:
        """Remove older checkpoints and leftovers of interrupted saves.

        Args:
            newest: the update of the checkpoint just written; later ones (damaged, and about to be made again) do
                not count among the `keep_last` newest, which stay.
            keep_every: those whose update is a multiple of it stay too; 0: none.
            best: the update of the best one, which stays.
        """
        for update in [update for update in self.updates() if update <= newest][:-keep_last]:
            if update != best and not (keep_every and update % keep_every == 0):
                # First out of the way in one stroke: half a checkpoint must never bear a checkpoint's name.
                self.step(update).rename(self.step(update).with_suffix(".tmp-pruned"))
        for path in self.checkpoints.glob("step-*.tmp-*"):
            shutil.rmtree(path, ignore_errors=True)

    def create(self, lock: FolderLock) -> None:
        """Make the folder, and keep other runs out of it.

        Raises:
            ValueError: it cannot be made or takes no files, or another run has it.
        """
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.checkpoints):
                pass  # a folder may be there and still not take files
        except OSError as error:
            raise ValueError(f"out_dir: {self.path} cannot be written ({error.strerror}); give another") from None
        lock.take(self.path)

    def write_config(self, recipe: Recipe, options: RunOptions, workers: Workers, recipe_file: str) -> None:
        """Write config.json: what was asked for, and what computed it; and `recipe_file`, which reproduces the run."""
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
        for left in self.path.glob(".tmp-*"):  # of a process that was killed here; the lock keeps living ones out
            left.unlink()
        ending = ".json" if recipe_file.startswith("{") else ".toml"
        replace_text(self.path / f"recipe{ending}", recipe_file, "surrogateescape")
        # The last: where it is, all of the run's settings are.
        replace_text(self.path / "config.json", json.dumps(config, indent=1) + "\n")


def find_checkpoint(path: Path, which: str = "last") -> Checkpoint:
    """Load a checkpoint folder, under whatever name, or the last or best checkpoint of a run folder.

    Raises:
        CheckpointError: there is nothing of the kind, with what is there instead.
    """
    path = Path(path)
    if not path.exists():
        there = ", ".join(sorted({*_runs_in(path.parent), *_runs_in(Path("runs"))})[-3:])
        hint = near_path(path, f"there is {there}" if there else "give a run folder")
        raise CheckpointError(f"{path}: does not exist; {hint}")
    if (path / MANIFEST).exists() or _STEP.fullmatch(path.resolve().name):
        return load_checkpoint(path)
    run = RunFolder(path)
    if not run.checkpoints.exists() and (runs := _runs_in(path)):
        raise CheckpointError(f"{path}: is a folder of runs; give one of them: {few(runs, 20)}")
    return run.best() if which == "best" else run.newest()


def _runs_in(folder: Path) -> list[str]:
    return sorted(str(path.parent) for path in folder.glob("*/checkpoints"))


def find_start(
    recipe: Recipe, options: RunOptions, workers: Workers, lock: FolderLock
) -> tuple[RunFolder, Checkpoint | None]:
    """The folder of the run, and the checkpoint that it goes on from (None: start at update 0).

    Rank 0 decides, and takes the lock of a folder that holds a run already; nothing is made yet.

    Raises:
        CheckpointError, ValueError: nothing to resume, another recipe, or a folder that is another run's or in use.
    """
    run, checkpoint = _choose(recipe, options, lock) if workers.is_main else (RunFolder(Path()), None)
    decided = [str(run.path), str(checkpoint.path if checkpoint else "")]
    folder, start = json.loads(broadcast_text(json.dumps(decided), workers))
    if not workers.is_main:
        run = RunFolder(Path(folder))
        if start and not Path(start).exists():
            raise CheckpointError(f"{start}: this rank cannot see it; put the run folder where all machines can")
        checkpoint = load_checkpoint(Path(start)) if start else None
    return run, checkpoint


def _choose(recipe: Recipe, options: RunOptions, lock: FolderLock) -> tuple[RunFolder, Checkpoint | None]:
    source = "" if options.resume in ("auto", "never") else options.resume
    checkpoint = find_checkpoint(Path(source)) if source else None
    new = Path("runs", f"{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    own = checkpoint.path.resolve().parent.parent if checkpoint else new
    run = RunFolder(Path(options.out_dir or own))
    if checkpoint and not options.out_dir and checkpoint.path.resolve().parent != run.checkpoints:
        raise ValueError(f"out_dir: {checkpoint.path} lies in no run folder; give one with --out-dir")
    if run.checkpoints.is_dir():
        lock.take(run.path)
        recover_interrupted_replace(run.checkpoints)
    newest = max(run.updates(), default=0)
    if newest and options.resume == "never":
        raise ValueError(f"out_dir: {run.path} already holds a run; give another --out-dir or --resume auto")
    if newest and checkpoint is None:
        checkpoint = run.newest()
    elif newest and checkpoint and run.path.resolve() != own:
        checkpoint = run.newest()
        began = Path(checkpoint.state.get("branched_from", ""))
        if Path(source).resolve() not in (began, began.parent.parent):
            raise ValueError(
                f"out_dir: {run.path} already holds a run, which did not begin with {source}; give another --out-dir, "
                "or leave out --resume to go on with that run"
            )
    elif checkpoint and newest > checkpoint.state["update"]:
        raise ValueError(
            f"out_dir: {run.path} already goes on to update {newest}, past {checkpoint.path.name}; "
            "give another --out-dir"
        )
    if checkpoint is not None:
        check_same_recipe(checkpoint, recipe)
    return run, checkpoint


def check_same_recipe(checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Refuse to go on with another recipe than the checkpoint's, listing the differences."""
    check_resume(checkpoint.state, checkpoint.path)
    made = checkpoint.state["recipe"]
    ours, theirs = to_dict(recipe), to_dict(recipe_from_dict(made))
    if not recipe.model:  # told by the weights, at the start alone
        ours |= {key: theirs[key] for key in ("model", "norm", *(() if recipe.stem else ("stem",)))}
    keys = [key for key in ours if key != "name" and ours[key] != theirs[key]]
    if keys:
        differences = ", ".join(f"{key} {theirs[key]!r} → {ours[key]!r}" for key in keys)
        raise ValueError(
            f"resume: {checkpoint.path} was made by another recipe ({differences}); "
            "give the same flags, or another --out-dir"
        )
