"""Runs of two workers, started by `python -m resnet_fn.launch` or by msrun alone, for the tests of
both.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder

FLAGS = shlex.split("--model resnet8 --norm none --image-size 8 --batch-size 120 --epochs 2")
# 11 updates an epoch. Compiling takes most of such a run; what is tested while it compiles asks for
#    `--mode graph`.
RUN = [*FLAGS, "--checkpoint-every", "1", "--threads", "1", "--no-progress", "--mode", "pynative"]
# What to start a process with that may use all CPUs, where tests keep to one: NumPy has a thread of
# its own for each.
ALL_CPUS = (
    "import os, sys; os.sched_setaffinity(0, range(os.cpu_count())); os.execv(sys.argv[1], "
    "sys.argv[1:])"
)


class Launcher:
    """Starts jobs and looks at what becomes of them, with the fixtures of those names."""

    all_cpus = (sys.executable, "-c", ALL_CPUS)

    def __init__(self, msrun, processes, wait_until):
        self.msrun = msrun
        self.processes = processes
        self.wait_until = wait_until

    def start(self, folder, *words, options=(), inside=(), more=()):
        """Start the launcher; the run's name is in every worker's command line, by which they can
        be found.

        Args:
            words: a command in place of resnet_fn.train.
            options: more flags of the launcher.
            inside: what the launcher is started with, `ip netns exec …`.
            more: more flags of the command.
        """
        launch = shlex.split("-m resnet_fn.launch --workers 2")
        command = [*inside, sys.executable, *launch, *options, "--", *words]
        words = [*command, *RUN, *more, "--out-dir", str(folder)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def train(self, *more, command=("-m", "resnet_fn.train"), inside=(), **popen):
        """Start training in one process, with these flags more."""
        words = [*inside, sys.executable, *map(str, command), *RUN, *map(str, more)]
        return subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **popen
        )

    def finish(self, *arguments, code=0, seconds=200, **options):
        """Start the launcher as `start` does; what it printed, once it has ended with this exit
        code.
        """
        process = self.start(*arguments, **options)
        output, _ = process.communicate(timeout=seconds)
        assert process.returncode == code, output
        return output

    @staticmethod
    def end_tails():
        """msrun leaves behind the `tail` processes that show the logs."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    path.joinpath("cwd").readlink() == Path.cwd()
                    and b"tail" in path.joinpath("cmdline").read_bytes()
                ):
                    os.kill(int(path.name), signal.SIGKILL)
            except OSError:
                continue

    def start_msrun(self, folder, port, *words, join=True, options=(), inside=()):
        """Start msrun as README does, or in the background.

        Args:
            words: a command in place of resnet_fn.train.
            options: more flags of msrun.
            inside: what msrun is started with, `ip netns exec …`.
        """
        command = ["python", *(words or ("-m", "resnet_fn.train")), *RUN, "--out-dir", str(folder)]
        waits = ["--join", "True"] if join else []
        flags = [*waits, "--master_port", str(port), *options]
        return self.msrun(2, *flags, *command, inside=inside)

    def workers_of(self, folder):
        """The pids of the training processes themselves, the scheduler's too."""
        others = ("resnet_fn.launch", "bin/msrun")
        return [
            pid
            for pid, words in self.processes(folder).items()
            if not any(other in words for other in others)
        ]

    def worker(self, folder, rank):
        """The pid of a rank's training process; None while it is not there."""
        for pid in self.workers_of(folder):
            try:
                if self.rank_of(pid) == rank:
                    return pid
            except (OSError, KeyError):
                continue
        return None

    @staticmethod
    def rank_of(pid):
        """The rank that msrun gave a process; None for the scheduler."""
        environment = dict(
            entry.split(b"=", 1)
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if b"=" in entry
        )
        return None if environment.get(b"MS_ROLE") != b"MS_WORKER" else int(environment[b"RANK_ID"])

    def wait_for_update(self, folder, process, beyond=None):
        """Until the run has saved an update after `beyond`, by default after those that it has."""
        run = RunFolder(folder)
        beyond = max(run.updates(), default=0) if beyond is None else beyond
        self.wait_until(lambda: max(run.updates(), default=0) > beyond, 200, process)

    def wait_for_nobody(self, folder, seconds=60):
        """Until no process of a run is left; what stays is killed, and the test fails."""
        try:
            self.wait_until(lambda: not self.processes(folder), seconds)
        finally:
            for pid in self.processes(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def all_cpus():
    return Launcher.all_cpus


@pytest.fixture(scope="session")
def launcher(start_msrun, processes, wait_until):
    return Launcher(start_msrun, processes, wait_until)


@pytest.fixture(scope="session")
def unbroken_pair(launcher, last_state, tmp_path_factory):
    """The last arrays of a run of two workers that nothing happened to."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert "best top-1" in launcher.finish(folder, seconds=300)
    assert not launcher.processes(folder)
    return last_state(folder)[1]
