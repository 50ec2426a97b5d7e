"""One training run, killed (SIGKILL) again and again and resumed each time: train_and_die.py RUN DEATHS FLAGS…

DEATHS is JSON, one process for each: "mid-write" and its like: at that point of the third save of the process; a
number: so many seconds after its first checkpoint. After the last death a process runs to the end. The processes are
forked from one that has imported the package and started nothing, which saves their imports.

The faults are put into the dying process alone, around the operating system's calls: the package knows nothing of it.
"""

import builtins
import json
import os
import signal
import sys
import time
from pathlib import Path

import resnet_fn.run.loop  # noqa: F401  (what takes long to import)
from resnet_fn.checkpoint import tensor_file
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config import cli
from resnet_fn.runtime import disk
from resnet_fn.train import main

NTH = 3


class Patched:
    """The module `os` as the package sees it, with some functions replaced."""

    def __init__(self, module, **replaced):
        self._module, self._replaced = module, replaced

    def __getattr__(self, name):
        return self._replaced.get(name) or getattr(self._module, name)


class Torn:
    """A file that runs `die` when half of a large piece is written."""

    def __init__(self, file, die):
        self._file, self._die = file, die

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, data):
        if len(data) > 1000:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            self._die()
            self._file.write(data[len(data) // 2 :])
        else:
            self._file.write(data)


def die_at(wanted):
    """Put the fault into this process."""
    saves = [0]

    def at(point):
        if point == wanted and saves[0] >= NTH:
            os.kill(os.getpid(), signal.SIGKILL)

    def fsync(descriptor):
        at("before-sync")
        os.fsync(descriptor)

    def open_file(*arguments):
        if str(arguments[0]).endswith("weights.safetensors") and arguments[1] == "xb":
            saves[0] += 1  # the first file of each save
            at("before-write")
        return Torn(builtins.open(*arguments), lambda: at("mid-write"))

    rename = Path.rename

    def rename_or_die(path, target):
        if ".tmp-" in path.name:
            at("before-rename")
        if "pruned" in str(target):
            at("before-prune")
        return rename(path, target)

    Path.rename = rename_or_die
    tensor_file.os = disk.os = Patched(os, fsync=fsync)
    tensor_file.open = disk.open = open_file


def wait_for_checkpoint(folder, beyond, pid):
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if max(RunFolder(folder).updates(), default=0) > beyond:
            return
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "ended before its death"
        time.sleep(0.005)
    raise AssertionError(f"no checkpoint after {beyond}")


def live(folder, death, flags):
    """One process's life; returns its exit code as subprocess gives it."""
    newest = max(RunFolder(folder).updates(), default=0)
    pid = os.fork()
    if pid == 0:
        if isinstance(death, str):
            die_at(death)
        cli.run("train", main, [*flags, "--out-dir", str(folder)])
    if isinstance(death, float):
        wait_for_checkpoint(folder, newest, pid)
        time.sleep(death)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    run, deaths, *flags = sys.argv[1:]
    for death in json.loads(deaths):
        code = live(Path(run), death, flags)
        assert code == -signal.SIGKILL, (death, code)
    sys.exit(live(Path(run), None, flags))
