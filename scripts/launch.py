"""Start a job on several workers with msrun, and do what msrun does not.

    python scripts/launch.py --workers 2 -- python -m resnet_fn.train
    python scripts/launch.py --workers 8 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 8118 \\
        -- python -m resnet_fn.train

msrun returns at once unless told to join, refuses counts other than 8 without --local_worker_num, waits 600 s at a
taken port, leaves the workers behind on SIGTERM, kills them without a save on SIGINT, returns 1 whatever went wrong,
and waits 30 s after a death. This starts it so that
  - a taken port is an error at once;
  - SIGTERM and SIGINT go to every worker, which then saves and ends;
  - the job ends within seconds of a worker's death, with the exit code of the first that failed, its log's end shown;
  - nothing is left behind, even when this process is killed.

Each worker runs below a small copy of this file (`--as-worker`), which knows its exit code, passes signals on and
dies with msrun. Needs Linux and Python's standard library.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AFTER_FAILURE = 3.0  # seconds for msrun to see it too: it looks once a second, then kills the other workers
AFTER_END = 10.0  # seconds for the scheduler to take its leave


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="launch.py", description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="workers of the whole job; default 2")
    parser.add_argument("--nnodes", type=int, default=1, metavar="N", help="machines that share them; default 1")
    parser.add_argument("--node-rank", type=int, default=0, metavar="N", help="this machine, 0..nnodes-1; default 0")
    parser.add_argument("--master-addr", default="127.0.0.1", metavar="IP", help="machine 0; default 127.0.0.1")
    parser.add_argument("--master-port", type=int, default=0, metavar="N", help="its port; default: any free one")
    parser.add_argument("--log-dir", default="", metavar="DIR", help="the workers' logs; default: a temporary folder")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="what every worker runs: python …")
    given = parser.parse_args(arguments)
    nodes = given.nnodes
    for good, message in (
        (given.workers >= 1, f"--workers: {given.workers} is too small; give 1 or more"),
        (nodes >= 1, f"--nnodes: {nodes} is too small; give 1 or more"),
        (0 <= given.node_rank < max(nodes, 1), f"--node-rank: {given.node_rank} is not in 0..{nodes - 1}"),
        (given.workers % max(nodes, 1) == 0, f"--workers: {given.workers} do not spread evenly over {nodes} machines"),
        (0 <= given.master_port < 65536, f"--master-port: {given.master_port} is not in 0..65535"),
        (nodes == 1 or given.master_port > 0, "--master-port: several machines must agree on one; give 8118"),
    ):
        if not good:
            fail(message, 2)
    return given


def fail(message: str, code: int = 1) -> NoReturn:
    print(f"launch: error: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


def claim_port(address: str, port: int) -> int:
    """The port, or a free one for 0. Refuses a taken one: msrun would find out after 600 s."""
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
            probe.bind(where)
            return int(probe.getsockname()[1])
    except OSError as error:
        fail(f"master port {port} at {address} cannot be used ({error.strerror}); give another --master-port")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# ----- one worker ---------------------------------------------------------------------------------------------------


def run_worker(status: Path, command: Sequence[str]) -> int:
    """Run the command as a child, note its end, pass signals on. The scheduler, which msrun runs so too, gets none."""
    die_with_parent()
    scheduler = os.environ.get("MS_ROLE") == "MS_SCHED"
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        if child is None:
            early.append(number)
        elif not scheduler and child.poll() is None:
            child.send_signal(number)

    def prepare() -> None:
        die_with_parent()
        for each in SIGNALS:  # whoever signals all processes of a job must not take the scheduler from under it
            signal.signal(each, signal.SIG_IGN if scheduler else signal.SIG_DFL)

    for number in SIGNALS:
        signal.signal(number, forward)
    name = "scheduler" if scheduler else f"worker-{os.environ['RANK_ID']}"
    write_note(status / f"{name}.started", {"pid": os.getpid(), "name": name})
    child = subprocess.Popen(command, preexec_fn=prepare)
    for missed in early:
        forward(missed, None)
    code = child.wait()
    code = 128 - code if code < 0 else code
    write_note(status / f"{name}.ended", {"code": code, "name": name, "time": time.time()})
    return code


def write_note(path: Path, content: dict[str, Any]) -> None:
    temporary = Path(f"{path}.tmp")
    temporary.write_text(json.dumps(content))
    temporary.rename(path)


def read_notes(status: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(status.glob(pattern))]


# ----- the job ------------------------------------------------------------------------------------------------------


class Job:
    """msrun and all that hangs below it on this machine."""

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
        msrun = shutil.which("msrun", path=path) or fail("msrun is not on PATH; install mindspore")
        words = [msrun, *(str(word) for pair in flags.items() for word in pair)]
        words += ["python", os.path.abspath(__file__), "--as-worker", str(status), *given.command]
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
            self.msrun.kill()  # and with it die, one below the other, the copies of this file and what they run
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


class Follower:
    """Shows a growing log on stdout."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def show(self) -> None:
        """Show what is new."""
        if self._file is None and self._path.exists():
            self._file = open(self._path, "rb")  # noqa: SIM115 (open as long as the job runs)
        if self._file is not None and (new := self._file.read()):
            sys.stdout.buffer.write(new)
            sys.stdout.buffer.flush()


def watch(job: Job) -> int:
    """Wait for the job's end; returns its exit code."""
    follower = Follower(job.log(f"worker-{job.first}"))
    deadline = float("inf")
    while job.msrun.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
        follower.show()
        job.tell()
        if job.failed() or job.finished():
            deadline = min(deadline, time.monotonic() + (AFTER_FAILURE if job.failed() else AFTER_END))
    job.end()
    follower.show()
    failed = job.failed()
    if job.finished():  # whatever became of the scheduler then
        return 0
    name, code = failed or ("msrun", job.msrun.returncode)
    if code - 128 not in SIGNALS:  # else stopped as asked
        who = name.replace("-", " ")
        print(f"launch: {who} ended with exit code {code}; its log ends:\n{_tail(job.log(name))}", file=sys.stderr)
    return int(code) if code > 0 else 1


def _tail(path: Path, lines: int = 20) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({path}: {error.strerror})"


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--as-worker"]:
        return run_worker(Path(arguments[1]), arguments[2:])
    given = parse(arguments)
    port = claim_port(given.master_addr, given.master_port) if given.node_rank == 0 else given.master_port
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        status, logs = Path(folder) / "status", Path(given.log_dir or Path(folder) / "logs").absolute()
        for path in (status, logs):
            path.mkdir(parents=True, exist_ok=True)
        job = Job(given, status, logs, port)
        try:
            for number in SIGNALS:
                signal.signal(number, job.ask)
            return watch(job)
        finally:
            job.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
