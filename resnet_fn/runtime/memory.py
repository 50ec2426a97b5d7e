"""How much memory this process can have."""

import contextlib
import os
from pathlib import Path

from resnet_fn.runtime.cgroups import cgroup_folders

_LIMITS = ("memory.max", "memory.limit_in_bytes")  # of cgroups v2 and v1


def machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes of the machine's memory, or fewer if a cgroup limits them."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for folder in cgroup_folders("memory", root):
        for name in _LIMITS:
            with contextlib.suppress(OSError, ValueError):  # no limit here; "max"
                size = min(size, int((folder / name).read_text()))
    return size
