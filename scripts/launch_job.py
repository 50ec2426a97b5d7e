"""msrun and all that hangs below it on this machine (see launch.py)."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import launch_worker
from launch_worker import SIGNALS, die_with_parent, read_notes


class Job:
    """A running job: its workers, their signals and their ends."""

    def __init__(self, given: argparse.Namespace, status: Path, logs: Path, port: int) -> None:
        self._status, self._logs = status, logs
        self._local = given.workers // given.nnodes
        self.first = given.node_rank * self._local  # this machine's first rank; rank 0 is the one that logs
        self._asked: list[int] = []
        self._told: dict[int, int] = {}  # how many of the signals each worker has got
        flags: dict[str, object] = {
            "--worker_num": given.workers,
            "--local_worker_num": self._local,
            "--master_addr": given.master_addr,
            "--master_port": port,
            "--log_dir": logs,
            "--join": True,
            "--tail_worker_log": given.workers,  # no such worker: `follow` shows the log, no `tail` is left behind
        }
        if given.nnodes > 1:
            flags["--node_rank"] = given.node_rank
        # msrun looks for `python` on PATH: it must find this one.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        msrun = shutil.which("msrun", path=path)
        if msrun is None:
            raise FileNotFoundError("msrun is not on PATH; install mindspore")
        words = [msrun, *(str(word) for pair in flags.items() for word in pair)]
        words += ["python", os.path.abspath(launch_worker.__file__), str(status), *given.command]
        for rank in range(self.first, self.first + self._local):  # of an earlier job: not to be shown as this one's
            self.log(f"worker-{rank}").unlink(missing_ok=True)
        with open(logs / "msrun.log", "wb") as own_log:
            self.msrun = subprocess.Popen(
                words,
                env={**os.environ, "PATH": path},
                stdout=own_log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the workers through this process, once
                preexec_fn=self._prepare,
            )

    @staticmethod
    def _prepare() -> None:
        die_with_parent()
        for number in SIGNALS:  # msrun's answer to them is to leave the workers behind, or to kill them
            signal.signal(number, signal.SIG_IGN)

    def ask(self, number: int, _: FrameType | None) -> None:
        """Handler of this process: note the signal; `tell` passes it on."""
        self._asked.append(number)

    def tell(self) -> None:
        """Pass signals on to every worker, also to those that start only now."""
        for worker in read_notes(self._status, "worker-*.started"):
            pid = worker["pid"]
            for number in self._asked[self._told.get(pid, 0) :]:
                if self._runs(pid):
                    os.kill(pid, number)
            self._told[pid] = len(self._asked)

    def failed(self) -> tuple[str, int] | None:
        """Name and exit code of the first process that ended with an error, workers before the scheduler; or None."""
        bad = []
        for start in read_notes(self._status, "*.started"):  # the scheduler's too: it sees deaths on other machines
            name, runs = start["name"], self._runs(start["pid"])
            ended = self._status / f"{name}.ended"
            if ended.exists():
                end = json.loads(ended.read_text())
                bad.append(((name == "scheduler", end["time"]), name, end["code"]))
            elif not runs:  # killed before it could note anything: by msrun or by us, after another's death, mostly
                bad.append(((2, 0), name, 128 + signal.SIGKILL))
        return next(((name, code) for _, name, code in sorted(bad) if code), None)

    def finished(self) -> bool:
        """Whether all workers of this machine ended well."""
        ends = read_notes(self._status, "worker-*.ended")
        return len(ends) == self._local and not any(end["code"] for end in ends)

    def log(self, name: str) -> Path:
        """The file with a process's output, as msrun calls it."""
        return self._logs / f"{name.replace('-', '_')}.log"

    def end(self) -> None:
        """Leave nothing behind."""
        if self.msrun.poll() is None:
            self.msrun.kill()  # and with it, one below the other, launch_worker.py's processes and what they run
        self.msrun.wait()
        patience = time.monotonic() + 2
        while any(self._runs(process["pid"]) for process in read_notes(self._status, "*.started")):
            if time.monotonic() > patience:
                break
            time.sleep(0.02)

    def _runs(self, pid: int) -> bool:
        try:
            return str(self._status).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
