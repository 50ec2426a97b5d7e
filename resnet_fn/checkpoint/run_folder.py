"""A run folder contains config.json, recipe.toml, metrics.jsonl, TensorBoard's events, checkpoints/
and lock.
"""

import contextlib
import dataclasses
import errno
import itertools
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from resnet_fn.checkpoint.folder import Checkpoint, load_checkpoint, load_state
from resnet_fn.checkpoint.manifest import MANIFEST, CheckpointError, is_checkpoint
from resnet_fn.checkpoint.replace import (
    recover_interrupted_replace,
    remove_folder,
    remove_leftovers,
    temporary_name,
)
from resnet_fn.checkpoint.run_state import check_run_state
from resnet_fn.config.draft import Draft, Resolved
from resnet_fn.config.options import RunOptions
from resnet_fn.config.packages import installed_version
from resnet_fn.config.path_hints import near_run
from resnet_fn.config.printing import warn
from resnet_fn.config.reading import read_json, reading
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.values import expand_home, to_dict
from resnet_fn.runtime.disk import (
    file_system,
    replace_json,
    replace_text,
    sha256,
    sha256_of_file,
    writing,
)
from resnet_fn.runtime.lock import FolderLock, was_locked
from resnet_fn.runtime.workers import Workers, broadcast_text

if TYPE_CHECKING:
    from resnet_fn.data.sources.kept import EarlierRun

_ATTEMPTS = 9  # reads of checkpoints that a run changes meanwhile
_STEP = re.compile(r"step-(\d{8})")
# A killed run leaves half-written files in the run folder.
_LEFT_FILE = re.compile(
    r"\.tmp-\d+-[0-9a-f]{8}-(config|recipe|metrics|validation|contents|bad_files)\.\w+"
)


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of a run, which may not exist yet."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Return the folder that contains this run's checkpoints."""
        return self.path / "checkpoints"

    @property
    def log(self) -> Path:
        """Return the path of this run's log."""
        return self.path / "metrics.jsonl"

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

        Prints a warning for each newer, damaged checkpoint. Raises OSError if the system cannot
        read a checkpoint, which may be intact.
        """
        return self._load(partial(self._newest, load_run_checkpoint))

    def best(self) -> Checkpoint:
        """Load the checkpoint with the best value of the monitored metric.

        Which one it is stands in the state of the newest checkpoint that is not damaged. The
        newest checkpoint's arrays are read only if it is the best one itself.
        """
        return self._load(self._best)

    def _load(self, choose: Callable[[list[str]], Checkpoint]) -> Checkpoint:
        """Return the checkpoint that `choose` loads, and print the warnings that it adds to a list.

        If a run replaces or removes checkpoints meanwhile, call `choose` again.
        """
        for attempt in itertools.count():
            manifests = self._manifests()
            warnings = list[str]()
            try:
                checkpoint = choose(warnings)
            except (CheckpointError, OSError):
                if attempt == _ATTEMPTS or self._manifests() == manifests:
                    _warn(warnings)
                    raise
            else:
                if not warnings or attempt == _ATTEMPTS or self._manifests() == manifests:
                    break
        _warn(warnings)
        return checkpoint

    def _manifests(self) -> list[tuple[int, int, int]]:
        """Return the update of each checkpoint, and the identity of its manifest.

        Manifests that are missing or that the system cannot read are left out.
        """
        manifests = []
        for update in self.updates():
            with contextlib.suppress(OSError):
                status = (self.checkpoint_path(update) / MANIFEST).stat()
                manifests.append((update, status.st_ino, status.st_mtime_ns))
        return manifests

    def _newest(self, load: Callable[[Path], Checkpoint], warnings: list[str]) -> Checkpoint:
        updates = self.updates()
        if not updates:
            nearest_run = near_run(self.path, "give a run folder or a checkpoint folder")
            raise CheckpointError(f"{self.path} contains no checkpoint; {nearest_run}")
        for update in reversed(updates):
            try:
                return load(self.checkpoint_path(update))
            except CheckpointError as error:
                if len(updates) == 1:
                    raise
                warnings.append(f"{error}; trying the checkpoint before it")
        raise CheckpointError(
            f"{self.path}: all {len(updates)} checkpoints are damaged; start a new run"
        )

    def _best(self, warnings: list[str]) -> Checkpoint:
        newest = self._newest(self._load_if_best, warnings)
        best = newest.state["best"]
        if best is None:
            raise CheckpointError(
                f"{self.path} has no best checkpoint before the first evaluation; use --which last"
            )
        path = self.checkpoint_path(best["update"])
        return newest if path == newest.path else load_run_checkpoint(path)

    def _load_if_best(self, folder: Path) -> Checkpoint:
        """Load a checkpoint, without its arrays if it is not the best one by its state."""
        state = load_state(folder)
        check_run_state(state, folder)
        best = state["best"]
        if best and self.checkpoint_path(best["update"]) == folder:
            return load_run_checkpoint(folder)
        return Checkpoint(folder, {}, {}, state)

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
                remove_folder(self.checkpoint_path(update))
        remove_leftovers(self.checkpoints)

    def open(self, lock: FolderLock) -> None:
        """Lock an existing run folder, and undo an interrupted replacement of a checkpoint."""
        # imported here, because this import slows the start of commands
        from resnet_fn.data.sources.contents import BAD_FILES, CONTENTS, VALIDATION

        if self.checkpoints.is_symlink() and not self.checkpoints.exists():
            raise ValueError(
                f"out_dir: {self.checkpoints} is a link to {os.readlink(self.checkpoints)}, which "
                "does not exist; mount its disk, or give another --out-dir for a new run"
            )
        # Files that a run writes first. Another program may also have written files of these names.
        first = ("config.json", "recipe.toml", "metrics.jsonl", VALIDATION, CONTENTS, BAD_FILES)
        others = [name for name in first if (self.path / name).exists()]
        if others and not self.updates() and not was_locked(self.path, self.has_run):
            raise ValueError(
                f"out_dir: {self.path}/{others[0]} was not written by a run; give another --out-dir"
            )
        if self.checkpoints.is_dir():
            lock.take(self.path, self.has_run)
            recover_interrupted_replace(self.checkpoints)

    def reserve(self, workers: Workers, is_new: bool) -> "RunFolder":
        """Return the run's folder.

        If `is_new`, rank 0 creates a folder with a free name. Every worker must call this.
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

    def create(self, lock: FolderLock, is_new: bool = False) -> None:
        """Create the run folder, lock the folder, and check that files can be written in it.

        If the run `is_new`, raises ValueError if the folder has checkpoints: since `find_start`,
        which locks no new folder, another process may have run there.
        """
        with writing(f"out_dir: {self.path}", "give another path"):
            self.path.mkdir(parents=True, exist_ok=True)
            lock.take(self.path, self.has_run)
            if is_new and self.updates():
                raise self.already_holds_a_run()
            self.checkpoints.mkdir(exist_ok=True)
            # a folder may exist and still refuse new files
            tempfile.TemporaryFile(dir=self.checkpoints).close()
            check_rename(self.checkpoints)

    def already_holds_a_run(self) -> ValueError:
        """Return the error of a new run in the folder of another."""
        return ValueError(
            f"out_dir: {self.path} already holds a run; give another --out-dir or --resume auto"
        )

    @property
    def has_run(self) -> bool:
        """Return whether a run has written checkpoints or config.json to this folder."""
        return bool(self.config()) or any(
            is_checkpoint(self.checkpoint_path(update)) for update in self.updates()
        )

    def set_aside(self, after: int) -> None:
        """Rename checkpoints after update `after` that lost their manifest.

        The run will save checkpoints of these names, but `save_checkpoint` replaces only folders
        with a manifest.
        """
        for update in self.updates():
            path = self.checkpoint_path(update)
            if update > after and not is_checkpoint(path):
                aside = temporary_name(path, "damaged")
                path.rename(aside)
                _warn([f"{path} has no intact {MANIFEST}, and is now {aside}"])

    def config(self) -> dict[str, Any]:
        """Return the contents of config.json, or {} if the file is missing or no run wrote it."""
        try:
            return self._read_config()
        except ValueError:
            return {}

    def checked_config(self) -> dict[str, Any]:
        """Return the contents of config.json, or {} if the file is missing.

        Raises ValueError if the file is damaged.
        """
        fix = "restore it, or delete it to go on with default options"
        with reading(self.path / "config.json", fix):
            return self._read_config()

    def _read_config(self) -> dict[str, Any]:
        try:
            config = read_json(self.path / "config.json")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        parts = ("recipe", "options")
        is_of_run = isinstance(config, dict) and all(
            isinstance(config.get(name), dict) for name in parts
        )
        if not is_of_run:
            raise ValueError("not a run's settings")
        return cast(dict[str, Any], config)

    def write_config(
        self, recipe: Recipe, options: RunOptions, workers: Workers, recipe_file: str
    ) -> list[str]:
        """Write config.json and recipe.toml.

        A recipe.toml that a user has changed is kept, and a note is returned. Without the hash in
        config.json, the file beside checkpoints may be a user's, too.
        """
        from resnet_fn import __version__

        packages = {name: installed_version(name) for name in ("mindspore", "numpy")}
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
        new = sha256(recipe_file.encode("utf-8", "surrogateescape"))
        present = sha256_of_file(path) if path.exists() else ""
        change = ""
        if present and present != new and written is None and self.updates():
            change = "may have been changed (delete it to have it written again)"
        elif present and written is not None and present != written:
            change = "has been changed since the run wrote it"
        else:
            replace_text(path, recipe_file, "surrogateescape")
            written = new
        config["recipe_file"] = written
        # config.json is written last: if it exists, recipe.toml does too.
        replace_json(self.path / "config.json", config)
        return [f"{path} {change}, and stays as it is"] if change else []


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        warn(line)


def check_rename(folder: Path) -> None:
    """Raise ValueError if folders inside `folder` cannot be renamed, as each checkpoint must be.

    Raises OSError if the disk is full, or nothing can be written.
    """
    # After a kill, `prune` removes folders of such names.
    temporary, renamed = (temporary_name(folder / "step-00000000") for _ in range(2))
    try:
        temporary.mkdir()
        (temporary / MANIFEST).touch()  # a bucket may rename folders only while they are empty
        try:
            temporary.rename(renamed)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ValueError(
                f"out_dir: {folder}: {file_system(folder)} cannot rename folders "
                f"({error.strerror}), so it cannot hold checkpoints; "
                "give an --out-dir on another disk, and copy the run afterwards"
            ) from None
    finally:
        for left in (temporary, renamed):
            shutil.rmtree(left, ignore_errors=True)


def load_run_checkpoint(folder: Path) -> Checkpoint:
    """Return the contents of a checkpoint as `load_checkpoint`, after a check that a run can have
    saved its state.
    """
    checkpoint = load_checkpoint(folder)
    check_run_state(checkpoint.state, folder)
    return checkpoint


def run_of(checkpoint: Path) -> Path:
    """Return the run folder of a checkpoint."""
    folder = checkpoint.parent.parent
    if checkpoint.parent.name == "checkpoints" and folder.name not in ("", ".."):
        return folder
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


def draft_of_start(base: Draft, given: Mapping[str, Any]) -> Resolved:
    """Return the draft `base` with the flags `given`, after all checks.

    A run that is resumed need not obey rules that are newer than it. Raises ValueError with all
    faults.
    """
    return base.complete(given, resumes=_will_resume(base, given))


def _will_resume(base: Draft, given: Mapping[str, Any]) -> bool:
    """Return whether a draft with the settings `given` resumes a run.

    Then `find_start` finds its checkpoint. An invalid `out_dir`, which `Draft` reports, has no run.
    """
    resume, out_dir = (given.get(name, base.values[name].value) for name in ("resume", "out_dir"))
    if resume not in ("auto", "never"):
        return True
    if resume == "never" or not out_dir or not isinstance(out_dir, str):
        return False
    return bool(RunFolder(Path(expand_home(out_dir))).updates())


def find_checkpoint(path: Path, which: str = "last") -> Checkpoint:
    """Load the checkpoint `path`, or the "last" or "best" checkpoint of the run folder `path`."""
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; {near_run(path, 'give a run folder')}")
    folder, is_one = locate(path)
    if is_one:
        if which != "last":
            raise ValueError(
                f"which: {which!r} is for run folders, but {path} is a checkpoint; "
                f"give the run's folder, or leave out which={which!r}"
            )
        return load_run_checkpoint(path)
    run = RunFolder(folder)
    return run.best() if which == "best" else run.newest()


def earlier_run(weights: str | Path, recipe: Recipe) -> "EarlierRun | None":
    """Return the run whose weights a net starts with, or None if `weights` is not a run or a
    checkpoint of a run.
    """
    from resnet_fn.data.sources.kept import EarlierRun  # as in `RunFolder.open`

    if not weights or not Path(weights).is_dir():
        return None
    folder = locate(Path(weights))[0]
    # without an error for a damaged config.json: the checkpoint has the recipe, too
    before = (RunFolder(folder).config() or find_checkpoint(Path(weights)).state)["recipe"]
    settings_before = (before.get("split_seed", 0), before.get("group_by", ""))
    is_same_split = settings_before == (recipe.split_seed, recipe.group_by)
    return EarlierRun(folder, is_same_split)


def settings_of(path: str) -> dict[str, Any]:
    """Return a dict with the "recipe" and the "options" of a run or checkpoint, as JSON types.

    Without a config.json, the recipe is the checkpoint's, and "options" is empty.
    """
    run = RunFolder(locate(Path(path))[0])
    # a checkpoint outside of a run may lie beside another program's config.json
    config = run.checked_config() if run.updates() else run.config()
    return config or {"recipe": find_checkpoint(Path(path)).state["recipe"], "options": {}}
