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
  - with several machines, the end of one ends all of them: the launchers watch each other (launch_peers.py);
  - nothing is left behind, even when this process is killed.

Each worker runs below a small process (launch_worker.py), which knows its exit code, passes signals on and dies with
msrun. Needs Linux and Python's standard library.
"""

import argparse
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NoReturn

from launch_job import Job
from launch_peers import Peers
from launch_worker import SIGNALS

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
        (0 <= given.master_port < 65535, f"--master-port: {given.master_port} is not in 0..65534"),
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


def watch(job: Job, peers: Peers) -> int:
    """Wait for the job's end; returns its exit code."""
    follower = Follower(job.log(f"worker-{job.first}"))
    deadline = float("inf")
    lost, failed = None, None
    while job.msrun.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
        follower.show()
        job.tell()
        before, failed = failed, job.failed()
        lost = None if failed and not lost else peers.lost()  # whichever came first
        if failed and not before:
            peers.farewell(failed[1])
        if failed or lost or job.finished():
            deadline = min(deadline, time.monotonic() + (AFTER_FAILURE if failed or lost else AFTER_END))
    job.end()
    follower.show()
    if job.finished():  # whatever became of the scheduler then
        return 0
    name, code = job.failed() or ("msrun", job.msrun.returncode)
    what = f"{name.replace('-', ' ')} ended with exit code {code}"
    if lost:
        what, code = lost
    if code - 128 not in SIGNALS:  # else stopped as asked
        print(f"launch: {what}; {'this' if lost else 'its'} log ends:\n{_tail(job.log(name))}", file=sys.stderr)
    return int(code) if code > 0 else 1


def _tail(path: Path, lines: int = 20) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({path}: {error.strerror})"


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    port = claim_port(given.master_addr, given.master_port) if given.node_rank == 0 else given.master_port
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        status, logs = Path(folder) / "status", Path(given.log_dir or Path(folder) / "logs").absolute()
        for path in (status, logs):
            path.mkdir(parents=True, exist_ok=True)
        try:
            peers = Peers(given, port)
            job = Job(given, status, logs, port)
        except OSError as error:
            fail(str(error))
        code = 1
        try:
            for number in SIGNALS:
                signal.signal(number, job.ask)
            code = watch(job, peers)
            return code
        finally:
            job.end()
            peers.farewell(code)
            peers.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
