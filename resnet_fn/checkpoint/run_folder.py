"""A run folder contains config.json, recipe.toml, metrics.jsonl, TensorBoard's events, checkpoints/
and lock.
"""

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.folder import MANIFEST, Checkpoint, CheckpointError, load_checkpoint
from resnet_fn.config.fields import to_dict
from resnet_fn.config.hints import near_run
from resnet_fn.config.options import RunOptions
from resnet_fn.config.packages import installed
from resnet_fn.config.printing import warn
from resnet_fn.config.reading import read_json
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.contents import BAD_FILES, CONTENTS, VALIDATION
from resnet_fn.data.sources.kept import EarlierRun
from resnet_fn.runtime.disk import file_system, replace_text, sha256, sha256_of_file
from resnet_fn.runtime.lock import FolderLock, was_locked
from resnet_fn.runtime.workers import Workers, broadcast_text

_STEP = re.compile(r"step-(\d{8})")
# A killed run leaves half-written folders in `checkpoints`, and half-written files in the run
# folder.
_LEFT = re.compile(r"step-\d{8}\.tmp-(\d+|pruned)")
_LEFT_FILE = re.compile(
    r"\.tmp-\d+-[0-9a-f]{8}-(config|recipe|metrics|validation|contents|bad_files)\.\w+"
)
# Files that a run writes first. Another program may also have written files of these names.
_FILES = ("config.json", "recipe.toml", "metrics.jsonl", VALIDATION, CONTENTS, BAD_FILES)


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of a run, which may not exist yet."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Return the folder that contains this run's checkpoints."""
        return self.path / "checkpoints"

    def checkpoint_path(self, update: int) -> Path:
        """Return the path of the checkpoint that is saved after `update` updates."""
        return self.checkpoints / f"step-{update:08d}"

    def updates(self) -> list[int]:
        """Return the update numbers of this run's checkpoints, in ascending order."""
        if not self.checkpoints.is_dir():
            return []
        matches = (_STEP.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def newest(self) -> Checkpoint:
        """Load the newest checkpoint that is not damaged.

        Prints a warning for each newer, damaged checkpoint.
        """
        updates = self.updates()
        if not updates:
            nearest_run = near_run(self.path, "give a run folder or a checkpoint folder")
            raise CheckpointError(f"{self.path} contains no checkpoint; {nearest_run}")
        for update in reversed(updates):
            try:
                return load_checkpoint(self.checkpoint_path(update))
            except CheckpointError as error:
                warn(f"{error}; trying the checkpoint before it")
        raise CheckpointError(
            f"{self.path}: all {len(updates)} checkpoints are damaged; start a new run"
        )

    def best(self) -> Checkpoint:
        """Load the checkpoint with the best value of the monitored metric."""
        best = self.newest().state["best"]
        if best is None:
            raise CheckpointError(
                f"{self.path} has no best checkpoint before the first evaluation; use --which last"
            )
        return load_checkpoint(self.checkpoint_path(best["update"]))

    def prune(
        self, newest: int, keep_last: int, keep_every: int = 0, best: int | None = None
    ) -> None:
        """Remove incomplete saves, and old checkpoints that are not kept.

        Of the checkpoints up to update `newest`, the last `keep_last` are kept. The checkpoint of
        update `best` and checkpoints at multiples of `keep_every` are kept too. Damaged checkpoints
        after `newest` are not removed.
        """
        for update in [update for update in self.updates() if update <= newest][:-keep_last]:
            if update != best and not (keep_every and update % keep_every == 0):
                # The folder is renamed first, because a half-removed folder must not have a
                # checkpoint's name.
                self.checkpoint_path(update).rename(
                    self.checkpoint_path(update).with_suffix(".tmp-pruned")
                )
        for path in self.checkpoints.iterdir():
            if _LEFT.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def open(self, lock: FolderLock) -> None:
        """Lock an existing run folder, and undo an interrupted replacement of a checkpoint."""
        others = [name for name in _FILES if (self.path / name).exists()]
        if others and not self.updates() and not was_locked(self.path, has_run=bool(self.config())):
            raise ValueError(
                f"out_dir: {self.path}/{others[0]} was not written by a run; give another --out-dir"
            )
        if self.checkpoints.is_dir():
            lock.take(self.path)
            recover_interrupted_replace(self.checkpoints)

    def reserve(self, workers: Workers, is_new: bool) -> "RunFolder":
        """Return the run's folder.

        If `is_new`, rank 0 creates a folder with a free name. Every rank must call this.
        """
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
        """Create the run folder, lock the folder, and check that files can be written in it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.take(self.path)
            self.checkpoints.mkdir(exist_ok=True)
            # a folder may exist and still refuse new files
            tempfile.TemporaryFile(dir=self.checkpoints).close()
            check_rename(self.checkpoints)
        except OSError as error:
            raise ValueError(
                f"out_dir: {self.path} cannot be written ({error.strerror}); give another path"
            ) from None

    def config(self) -> dict[str, Any]:
        """Return the contents of config.json, or {} if the file is missing or no run wrote it."""
        try:
            config = read_json(self.path / "config.json")
        except (OSError, ValueError):
            return {}
        return config if isinstance(config, dict) and {"recipe", "options"} <= config.keys() else {}

    def write_config(
        self, recipe: Recipe, options: RunOptions, workers: Workers, recipe_file: str
    ) -> list[str]:
        """Write config.json and recipe.toml.

        A recipe.toml that a user has changed is kept, and a note is returned.
        """
        from resnet_fn import __version__

        packages = {name: installed(name) for name in ("mindspore", "numpy")}
        config = {
            "recipe": to_dict(recipe),
            "options": to_dict(options),
            "workers": workers.size,
            "versions": {"resnet_fn": __version__, **packages, "python": platform.python_version()},
        }
        # a killed run left them, because the lock keeps others out
        for left in self.path.iterdir():
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
        return (
            [f"{path} has been changed since the run wrote it, and stays as it is"]
            if changed
            else []
        )


def check_rename(folder: Path) -> None:
    """Raise ValueError if folders inside `folder` cannot be renamed, as each checkpoint must be.

    Raises OSError if the disk is full, or nothing can be written.
    """
    # After a kill, `prune` removes folders of both names.
    temporary = folder / f"step-00000000.tmp-{os.getpid()}"
    renamed = temporary.with_suffix(".tmp-pruned")
    try:
        for left in (temporary, renamed):
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()
        (temporary / MANIFEST).touch()  # a bucket may rename folders only while they are empty
        try:
            temporary.rename(renamed)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            fault = f"cannot rename folders ({error.strerror}), so it cannot hold checkpoints"
            fix = "give an --out-dir on another disk, and copy the run afterwards"
            raise ValueError(f"out_dir: {folder}: {file_system(folder)} {fault}; {fix}") from None
    finally:
        for left in (temporary, renamed):
            shutil.rmtree(left, ignore_errors=True)


def recover_interrupted_replace(checkpoints: Path) -> None:
    """Rename `step-NNNNNNNN.old` back to `step-NNNNNNNN` if a crash interrupted the replacement of
    a checkpoint.
    """
    for old in checkpoints.glob("step-*.old"):
        folder = old.with_suffix("")
        if not folder.exists():
            old.rename(folder)


def run_of(checkpoint: Path) -> Path:
    """Return the run folder of a checkpoint."""
    # The path is not resolved, because `checkpoints` may be a link to another disk.
    named = Path(os.path.abspath(checkpoint))
    return (named if named.parent.name == "checkpoints" else named.resolve()).parent.parent


def locate(path: Path) -> tuple[Path, bool]:
    """Return the run folder of `path`, and whether `path` is a single checkpoint."""
    named = Path(os.path.abspath(path))
    if named.name == "checkpoints" and RunFolder(named.parent).updates():
        path = path.parent if path.name == named.name else named.parent
    is_one = (path / MANIFEST).exists() or _STEP.fullmatch(path.resolve().name) is not None
    return (run_of(path) if is_one else path), is_one


def holds_checkpoint(path: str | Path) -> bool:
    """Return whether `path` is a checkpoint or the folder of a run with checkpoints."""
    folder, is_one = locate(Path(path))
    return is_one or bool(RunFolder(folder).updates())


def find_checkpoint(path: Path, which: str = "last") -> Checkpoint:
    """Load the checkpoint `path`, or the "last" or "best" checkpoint of the run folder `path`."""
    folder, is_one = locate(Path(path))
    if not Path(path).exists():
        raise CheckpointError(f"{path} does not exist; {near_run(Path(path), 'give a run folder')}")
    if is_one:
        return load_checkpoint(Path(path))
    return RunFolder(folder).best() if which == "best" else RunFolder(folder).newest()


def earlier_run(weights: str | Path, recipe: Recipe) -> EarlierRun | None:
    """Return the run whose weights a net starts with, or None if `weights` is not a run or a
    checkpoint of a run.
    """
    if not weights or not Path(weights).is_dir():
        return None
    before = settings_of(str(weights))["recipe"]
    settings = [
        (before.get("split_seed", 0), before.get("group_by", "")),
        (recipe.split_seed, recipe.group_by),
    ]
    return EarlierRun(locate(Path(weights))[0], settings[0] == settings[1])


def settings_of(path: str) -> dict[str, Any]:
    """Return a dict with the "recipe" and the "options" of a run or checkpoint, as JSON types."""
    config = RunFolder(locate(Path(path))[0]).config()
    return config or {"recipe": find_checkpoint(Path(path)).state["recipe"], "options": {}}
