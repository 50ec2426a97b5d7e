"""How much memory this process can have."""

import contextlib
import sys
from pathlib import Path

from resnet_fn.runtime.cgroups import cgroup_folders

_LIMITS = ("memory.max", "memory.limit_in_bytes")  # of cgroups v2 and v1


def machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes of the machine's memory, or fewer if a cgroup limits them; `sys.maxsize` if
    they are not known.
    """
    size = sys.maxsize
    with contextlib.suppress(OSError):  # no /proc: not Linux
        for line in (root / "proc/meminfo").read_text().splitlines():
            name, _, amount = line.partition(":")
            if name == "MemTotal":
                size = 1024 * int(amount.split()[0])
    for folder in cgroup_folders("memory", root):
        for name in _LIMITS:
            with contextlib.suppress(OSError, ValueError):  # no limit here; "max"
                size = min(size, int((folder / name).read_text()))
    return size
