"""Graphs in files: whole, of the key that they are asked for by, and not more of them than a disk has room for."""

import contextlib
import os
import stat
import time
from pathlib import Path

from resnet_fn.runtime.disk import replace_file, sha256

LARGEST = 256 * 2**20  # bytes in the folder; beyond that, graphs that were not used for longest go
A_DAY = 86400.0  # seconds; a temporary file so old is of a writer that was killed


def _seal(key: str, graph: bytes) -> bytes:
    return sha256(key.encode() + graph).encode() + b"\n"


def write_graph(path: Path, key: str, graph: bytes) -> None:
    """Keep a graph, whole or not at all, whoever else writes it; for this user alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        temporary.write_bytes(_seal(key, graph) + graph)
    path.chmod(0o600)


def read_graph(path: Path, key: str) -> bytes | None:
    """A kept graph; None where there is none, the file is not what was written under this key, or others may write it.

    The seal tells damage, not intent: what a graph computes is up to who wrote it.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
                return None
            seal, end, graph = file.read().partition(b"\n")
    except OSError:
        return None
    return graph if seal + end == _seal(key, graph) else None


def prune(folder: Path) -> None:
    """Remove what was not used for longest, down to LARGEST bytes, and what writers that were killed have left."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process prunes, too
            if path.is_file():
                found.append((path.stat().st_mtime, path.stat().st_size, path))
    total = 0
    for used, size, path in sorted(found, reverse=True):
        total += size
        if total > LARGEST or (path.name.startswith(".tmp-") and used < time.time() - A_DAY):
            path.unlink(missing_ok=True)
