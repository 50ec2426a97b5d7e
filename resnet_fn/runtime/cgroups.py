"""Find the cgroups (v1 or v2) of this process, which may limit what it gets of the machine."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


def cgroup_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders of the cgroups of this process that a controller ("cpu", "memory") may
    have. A folder may be missing.
    """
    with contextlib.suppress(OSError):  # no /proc: not Linux
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                mount = root / "sys/fs/cgroup" / controllers
                # in a container this may be a path of the host, which does not exist
                place = mount / path.lstrip("/")
                yield from (place, *place.parents[: len(place.parts) - len(mount.parts)])
