"""The command that started this process, as its user typed it."""

import os
import sys
from pathlib import Path

from resnet_fn.runtime.workers import launched_by_msrun


def typed_command() -> list[str]:
    """Its words; of a worker those of what started all workers: msrun, or `python -m resnet_fn.launch` around it."""
    words = sys.orig_argv
    if launched_by_msrun():
        count = os.environ.get("MS_WORKER_NUM", "1")
        words = ["msrun", "--worker_num", count, "--local_worker_num", count, "--join", "True", *words]
        for above in _ancestors():
            names = [Path(word).name for word in above[:4]]
            if "msrun" in names:
                words = ["msrun", *above[names.index("msrun") + 1 :]]
            elif "resnet_fn.launch" in names:
                words = [*above, *([] if "--" in above else ["--"])]
    return words


def _ancestors() -> list[list[str]]:
    """The command lines of the processes above this one, the nearest first; none where there is no /proc."""
    found = []
    pid = os.getppid()
    try:
        while pid > 1:
            place = Path(f"/proc/{pid}")
            found.append(os.fsdecode((place / "cmdline").read_bytes()).split("\0")[:-1])
            pid = int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        pass
    return found
