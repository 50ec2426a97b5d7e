"""This package's commands as a user types them: each a process of its own, with its output kept."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import resnet_fn
from resnet_fn.checkpoint.run_folder import RunFolder

_LONGEST = 1800.0  # seconds: a command that takes longer hangs


class CommandError(Exception):
    """A command failed; its own words, and where its output is."""


class Commands:
    """Runs commands one after the other, for one check after the other.

    Args:
        out: where it all goes: output to `logs/CHECK.log`; the commands run in `work/CHECK`.
        device, threads: what every command is given.
        workers: how many a launched command has.

    Attributes:
        work: the folder of all checks' folders.
        folder: that of the check at hand.
        typed: its commands, as they can be typed again there.
    """

    def __init__(self, out: Path, device: str, threads: int, workers: int) -> None:
        self.out, self.device, self.workers = out.absolute(), device, workers
        self.work, self._logs = self.out / "work", self.out / "logs"
        self._is_new = not self.out.exists()
        for path in (self.work, self._logs):
            path.mkdir(parents=True, exist_ok=True)
        self._where = ["--device", device, *(["--threads", str(threads)] if threads else [])]
        source = str(Path(resnet_fn.__file__).resolve().parents[1])  # where it may be found from here alone
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}

    def begin(self, check: str) -> None:
        """What follows belongs to this check."""
        self.typed: list[str] = []
        self.log, self.folder = self._logs / f"{check}.log", self.work / check
        self.folder.mkdir()

    def last_error(self) -> str:
        """What the check's last command named as its error; what it said last where it named none."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return ([text for text in lines if ": error: " in text] or lines)[-1]

    def remove(self) -> None:
        """Leave nothing behind: what is in the way of a start is no finding."""
        for made in (self.work, self._logs):
            shutil.rmtree(made)
        if self._is_new:
            self.out.rmdir()

    def run(self, command: str, *words: str, codes: tuple[int, ...] = (0,)) -> int:
        """Run `python -m resnet_fn.COMMAND WORDS` to its end; returns its exit code.

        Raises:
            CommandError: the code is none of `codes`, or it hangs.
        """
        return self._wait(["-m", f"resnet_fn.{command}", *words, *self._where], codes)

    def launch(self, command: str, *words: str) -> None:
        """The same on several workers.

        Raises:
            CommandError: see `run`.
        """
        words = ("python", "-m", f"resnet_fn.{command}", *words, *self._where)
        self._wait(["-m", "resnet_fn.launch", "--workers", str(self.workers), "--", *words], (0,))

    def train_and_kill(self, run: str, update: int, *words: str) -> int:
        """Train, and end the process with SIGKILL when a checkpoint of `update` or a later one is there.

        Returns:
            The newest checkpoint's update.

        Raises:
            CommandError: the command ended before.
        """
        process = self._start(["-m", "resnet_fn.train", *words, "--out-dir", run, *self._where])
        deadline = time.monotonic() + _LONGEST
        try:
            while (newest := max(RunFolder(self.folder / run).updates(), default=0)) < update:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise self._error(f"it had saved update {newest}, and was to be killed after {update}")
                time.sleep(0.002)
        finally:
            process.kill()
        if process.wait() != -signal.SIGKILL:
            raise self._error("it was at its end before it could be killed")
        return newest

    def _start(self, words: list[str]) -> subprocess.Popen:
        self.typed.append(shlex.join(["python", *words]))
        with open(self.log, "ab") as log:
            log.write(f"$ {self.typed[-1]}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _wait(self, words: list[str], codes: tuple[int, ...]) -> int:
        process = self._start(words)
        try:
            code = process.wait(_LONGEST)
        except subprocess.TimeoutExpired:
            raise self._error(f"it took more than {_LONGEST / 60:.0f} minutes") from None
        finally:
            process.kill()  # its workers save and end then; nothing where it has ended
            process.wait()
        if code not in codes:
            raise self._error(f"exit code {code}: {self.last_error()}")
        return code

    def _error(self, text: str) -> CommandError:
        return CommandError(f"{self.typed[-1]}: {text} ({self.log.relative_to(self.out)})")
