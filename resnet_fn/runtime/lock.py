"""A lock lets only one process and thread at a time write to a folder."""

import contextlib
import fcntl
import os
import platform
import stat
import threading
import time
from pathlib import Path

from resnet_fn.config.printing import warn
from resnet_fn.runtime.disk import writing

_HOLDER = "process "
# The lock files that this process has locked: (device, inode) → text. The system's lock is the
# process's, so it keeps out no other thread; and it ends when any thread closes the file.
_held: dict[tuple[int, int], str] = {}
_changing = threading.Lock()  # of `_held`
# seconds after which another run has written to the file that it has created
_CREATE_TO_WRITE = 0.2


def _forget_locks() -> None:
    global _changing
    _held.clear()
    _changing = threading.Lock()  # another thread of the parent may hold it


os.register_at_fork(after_in_child=_forget_locks)


def was_locked(folder: Path, has_run: bool = False) -> bool:
    """Return whether a run has written the lock file in `folder`.

    A loss of power can empty the file. If the folder has a run (`has_run`), this function therefore
    returns True for an empty file.
    """
    path = folder / "lock"
    with _changing:  # otherwise another thread could take the lock before the file is closed
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if _identity(status) in _held:  # to close the file would release the lock
            return True
        if not stat.S_ISREG(status.st_mode):  # a FIFO's end may never come
            return False
        text = path.read_text(encoding="utf-8", errors="replace")
    return text.startswith(_HOLDER) or (has_run and not text.strip("\0"))


class FolderLock:
    """Locks a folder in `take`, and releases the lock at the end of the `with` block.

    The end of the process releases the lock too. Forked processes do not hold the lock. The lock
    works over NFS.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None  # of the lock file, open as long as the lock is held
        self._key = (0, 0)  # of the file in `_held`

    def take(self, folder: Path, has_run: bool = False) -> bool:
        """Lock `folder`, or print a warning and return False if the file system has no locks.

        If the folder has a run (`has_run`), an empty lock file is the run's, after a loss of power.
        Otherwise it is another program's.

        Raises ValueError if another process or thread has locked the folder, or if the lock file is
        another program's or cannot be written.
        """
        if self._descriptor is not None:
            return True
        path = folder / "lock"
        with writing(f"out_dir: {path}", "give another --out-dir"), _changing:
            return self._take(path, has_run)

    def _take(self, path: Path, has_run: bool) -> bool:
        if path.exists() and (holder := _held.get(_identity(os.stat(path)))):
            raise _in_use(path, f"{holder}, in another thread")
        descriptor, is_new = _open(path)
        try:
            locked = _lock(descriptor, path)
            if not is_new:
                _check_writer(descriptor, path, has_run)
                os.ftruncate(descriptor, 0)
                _write_holder(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._key = _identity(os.fstat(descriptor))
        _held[self._key] = _holder()
        return locked

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            with _changing:
                os.close(self._descriptor)
                self._descriptor = None
                _held.pop(self._key, None)  # a forked process holds none


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _holder() -> str:
    """Describe this process, for a lock file."""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"{_HOLDER}{os.getpid()} on {platform.node()} since {since}"


def _in_use(path: Path, holder: str) -> ValueError:
    return ValueError(
        f"out_dir: {path.parent} is in use by {holder}; wait, or give another --out-dir"
    )


def _open(path: Path) -> tuple[int, bool]:
    """Open a lock file, and return its descriptor and whether this call created the file.

    A new file gets its text at once, so that other runs do not take it for another program's.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666), False
    try:
        _write_holder(descriptor)
    except OSError:
        os.close(descriptor)
        path.unlink()
        raise
    return descriptor, True


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 1000, 0).decode(errors="replace")


def _write_holder(descriptor: int) -> None:
    os.pwrite(descriptor, _holder().encode(), 0)
    with contextlib.suppress(OSError):  # the file system may lack it
        os.fsync(descriptor)  # so that a loss of power leaves no empty file


def _lock(descriptor: int, path: Path) -> bool:
    """Lock an open file, or print a warning and return False if the file system has no locks."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise _in_use(path, _read(descriptor) or "another process") from None
    except OSError as error:
        warn(f"{path.parent} cannot be locked ({error.strerror}); start no other run there")
        return False
    return True


def _check_writer(descriptor: int, path: Path, has_run: bool) -> None:
    """Raise ValueError if the lock file `path`, which is open, was not written by a run."""
    for pause in (0, _CREATE_TO_WRITE):
        time.sleep(pause)
        if text := _read(descriptor).strip("\0"):
            break
    if not text.startswith(_HOLDER) and (text or not has_run):
        raise ValueError(f"out_dir: {path} was not written by a run; give another --out-dir")
