"""A run folder holds a run's files; this module decides which of its checkpoints are used and which are removed.

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
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.folder import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    recover_interrupted_replace,
)
from resnet_fn.config.fields import to_dict
from resnet_fn.config.hints import near_run
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.runtime.disk import replace_text, sha256, sha256_of_file
from resnet_fn.runtime.lock import FolderLock, was_locked
from resnet_fn.runtime.versions import installed
from resnet_fn.runtime.workers import Workers, broadcast_text

_STEP = re.compile(r"step-(\d{8})")
# Names of what a killed run leaves half written: folders in `checkpoints`, files in the run folder.
_LEFT = re.compile(r"step-\d{8}\.tmp-(\d+|pruned)")
_LEFT_FILE = re.compile(r"\.tmp-\d+-[0-9a-f]{8}-(config|recipe|metrics|validation|bad_files)\.\w+")
# Files that a run writes at its start; another program may have written files of these names.
_FILES = ("config.json", "recipe.toml", "metrics.jsonl")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run folder, which may not exist yet."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Return the folder of this run's checkpoints."""
        return self.path / "checkpoints"

    def checkpoint_path(self, update: int) -> Path:
        """Return the checkpoint folder that holds the state after `update` updates."""
        return self.checkpoints / f"step-{update:08d}"

    def updates(self) -> list[int]:
        """Return the update numbers of all complete checkpoints, ascending."""
        if not self.checkpoints.is_dir():
            return []
        matches = (_STEP.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def newest(self) -> Checkpoint:
        """Load the newest intact checkpoint and warn of damaged newer ones; a CheckpointError if none is intact."""
        updates = self.updates()
        if not updates:
            hint = near_run(self.path, "give a run folder or a checkpoint folder")
            raise CheckpointError(f"{self.path}: holds no checkpoint; {hint}")
        for update in reversed(updates):
            try:
                return load_checkpoint(self.checkpoint_path(update))
            except CheckpointError as error:
                print(f"warning: {error}; trying the one before", file=sys.stderr, flush=True)
        raise CheckpointError(f"{self.path}: none of its {len(updates)} checkpoints is intact; start a new run")

    def best(self) -> Checkpoint:
        """Load the checkpoint with the best monitored metric, which is recorded in the newest intact checkpoint."""
        best = self.newest().state["best"]
        if best is None:
            raise CheckpointError(f"{self.path}: has not been evaluated yet, so none is best; use --which last")
        return load_checkpoint(self.checkpoint_path(best["update"]))

    def prune(self, newest: int, keep_last: int, keep_every: int = 0, best: int | None = None) -> None:
        """Keep the last `keep_last` checkpoints up to update `newest`; remove older ones and incomplete saves.

        The checkpoint of update `best` and those at multiples of `keep_every` are kept too. Checkpoints after `newest`
        are damaged; they stay until the resumed run overwrites them.
        """
        for update in [update for update in self.updates() if update <= newest][:-keep_last]:
            if update != best and not (keep_every and update % keep_every == 0):
                # It is renamed before it is removed: a half-removed folder must not have a checkpoint's name.
                self.checkpoint_path(update).rename(self.checkpoint_path(update).with_suffix(".tmp-pruned"))
        for path in self.checkpoints.iterdir():
            if _LEFT.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def open(self, lock: FolderLock) -> None:
        """Lock a folder with checkpoints, and undo a half-done replacement; a ValueError if it is in use."""
        others = [name for name in _FILES if (self.path / name).exists()]
        if others and not self.updates() and not was_locked(self.path, has_run=bool(self.config())):
            raise ValueError(f"out_dir: {self.path}/{others[0]} was not written by a run; give another --out-dir")
        if self.checkpoints.is_dir():
            lock.take(self.path)
            recover_interrupted_replace(self.checkpoints)

    def reserve(self, workers: Workers, is_new: bool) -> "RunFolder":
        """Make a new run's folder on rank 0, as `path-2`, `path-3` … if it exists; all ranks call this, and get it."""
        path = self.path
        if workers.is_main and is_new:
            with contextlib.suppress(OSError):  # `create` reports the error
                path.parent.mkdir(parents=True, exist_ok=True)
                for number in itertools.count(2):
                    try:
                        path.mkdir()
                        break
                    except FileExistsError:
                        path = self.path.with_name(f"{self.path.name}-{number}")
        return RunFolder(Path(broadcast_text(str(path), workers)))

    def create(self, lock: FolderLock) -> None:
        """Make the folder and lock it; a ValueError if this is impossible or another run has locked it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.take(self.path)
            self.checkpoints.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.checkpoints):
                pass  # a folder may exist and still refuse new files
        except OSError as error:
            raise ValueError(f"out_dir: {self.path} cannot be written ({error.strerror}); give another") from None

    def config(self) -> dict[str, Any]:
        """Return the contents of config.json; {} if no run wrote it."""
        try:
            config = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):  # RecursionError: JSON that is nested too deeply
            return {}
        return config if isinstance(config, dict) and {"recipe", "options"} <= config.keys() else {}

    def write_config(self, recipe: Recipe, options: RunOptions, workers: Workers, recipe_file: str) -> list[str]:
        """Write config.json, and `recipe_file` as recipe.toml; keep and report a recipe.toml that a user changed."""
        from resnet_fn import __version__

        config = {
            "recipe": to_dict(recipe),
            "options": to_dict(options),
            "workers": workers.size,
            "versions": {
                "resnet_fn": __version__,
                **{name: installed(name) for name in ("mindspore", "numpy")},
                "python": platform.python_version(),
            },
        }
        for left in self.path.iterdir():  # a killed process left them: the lock keeps living ones out
            if _LEFT_FILE.fullmatch(left.name):
                left.unlink()
        path = self.path / "recipe.toml"
        written = self.config().get("recipe_file")
        changed = written is not None and path.exists() and sha256_of_file(path) != written
        if not changed:
            replace_text(path, recipe_file, "surrogateescape")
            written = sha256(recipe_file.encode("utf-8", "surrogateescape"))
        config["recipe_file"] = written
        # config.json is written last: if it exists, recipe.toml does too.
        replace_text(self.path / "config.json", json.dumps(config, indent=1) + "\n")
        return [f"{path} has been changed since the run wrote it, and stays as it is"] if changed else []


def run_of(checkpoint: Path) -> Path:
    """Return a checkpoint's run folder, from the path as it was given: `checkpoints` may be a link to another disk."""
    named = Path(os.path.abspath(checkpoint))
    return (named if named.parent.name == "checkpoints" else named.resolve()).parent.parent


def locate(path: Path) -> tuple[Path, bool]:
    """Return the run folder that `path` is, or is inside of, and whether `path` is one checkpoint."""
    named = Path(os.path.abspath(path))
    if named.name == "checkpoints" and RunFolder(named.parent).updates():
        path = path.parent if path.name == named.name else named.parent
    is_one = (path / MANIFEST).exists() or _STEP.fullmatch(path.resolve().name) is not None
    return (run_of(path) if is_one else path), is_one


def find_checkpoint(path: Path, which: str = "last") -> Checkpoint:
    """Load `path`, a checkpoint folder, or a run folder's "last" or "best" (`which`); a CheckpointError if none."""
    folder, is_one = locate(Path(path))
    if not Path(path).exists():
        raise CheckpointError(f"{path}: does not exist; {near_run(Path(path), 'give a run folder')}")
    if is_one:
        return load_checkpoint(Path(path))
    return RunFolder(folder).best() if which == "best" else RunFolder(folder).newest()


def settings_of(path: str) -> dict[str, Any]:
    """Return a dict with "recipe" and "options" of a run or checkpoint, as JSON types; a CheckpointError if none."""
    config = RunFolder(locate(Path(path))[0]).config()
    return config or {"recipe": find_checkpoint(Path(path)).state["recipe"], "options": {}}
