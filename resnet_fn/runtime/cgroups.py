"""Find the cgroups (v1 or v2) of this process, which may limit what it gets of the machine."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


def cgroup_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders of the cgroups of this process that a controller ("cpu", "memory") may
    have. A folder may be missing.
    """
    text = ""
    with contextlib.suppress(OSError):  # no /proc: not Linux
        text = (root / "proc/self/cgroup").read_text()
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        named = controllers.split(",")
        if controllers and controller not in named:
            continue
        mount = root / "sys/fs/cgroup" / controllers
        # in a container this may be a path of the host, which does not exist
        folder = mount / path.lstrip("/")
        yield folder
        while folder != mount:
            folder = folder.parent
            yield folder
