"""What msrun starts instead of a worker: a small process that knows the worker's exit code (see launch.py).

    python scripts/launch_worker.py STATUS_FOLDER COMMAND…

It passes signals on, and dies with msrun, the worker with it.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


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


if __name__ == "__main__":
    sys.exit(run_worker(Path(sys.argv[1]), sys.argv[2:]))
