"""A lock lets only one process at a time write to a folder."""

import fcntl
import os
import platform
import time
from pathlib import Path
from typing import TextIO

from resnet_fn.config.printing import warn

_HOLDER = "process "


def was_locked(folder: Path, has_run: bool = False) -> bool:
    """Return whether a run has written the lock file in `folder`.

    A loss of power can empty the file. If the folder has a run (`has_run`), this function therefore
    returns True for an empty file. Do not call this function while this process holds the lock,
    because reading the file releases the lock.
    """
    try:
        text = (folder / "lock").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.startswith(_HOLDER) or (has_run and not text.strip("\0"))


class FolderLock:
    """Locks a folder in `take`, and releases the lock at the end of the `with` block.

    The end of the process releases the lock too. Forked processes do not hold the lock. The lock
    works over NFS.
    """

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def take(self, folder: Path) -> bool:
        """Lock `folder`, or print a warning and return False if the file system has no locks."""
        if self._file is not None:
            return True
        locked = True
        try:
            # The file stays open as long as the lock is held.
            file = open(folder / "lock", "a+", encoding="utf-8", errors="replace")  # noqa: SIM115
        except OSError as error:
            raise ValueError(
                f"out_dir: {folder} cannot be written ({error.strerror}); give another folder"
            ) from None
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            holder = file.read() or "another process"
            file.close()
            raise ValueError(
                f"out_dir: {folder} is in use by {holder}; wait, or give another --out-dir"
            ) from None
        except OSError as error:
            warn(f"{folder} cannot be locked ({error.strerror}); start no other run there")
            locked = False
        file.seek(0)
        if (text := file.read().strip("\0")) and not text.startswith(_HOLDER):
            file.close()
            raise ValueError(
                f"out_dir: {folder}/lock was not written by a run; give another --out-dir"
            )
        file.truncate(0)
        file.write(
            f"{_HOLDER}{os.getpid()} on {platform.node()} since "
            f"{time.strftime('%Y-%m-%d %H:%M:%S')}"
        )
        file.flush()
        self._file = file
        return locked

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
