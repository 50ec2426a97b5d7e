"""These functions read files that others made, which may be anything.

A FIFO or a device may never end, a sparse file can be larger than the memory, and JSON can be
nested more deeply than Python reads it.
"""

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from resnet_fn.config.wording import first_line

NOT_REGULAR = "not a regular file"  # the text of an error about a FIFO or a device
_DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")
_LARGEST_TEXT = 1 << 30  # bytes; contents.json of 10 million files has 0.8 GB


class NotRegularError(OSError):
    """Raised for a FIFO or a device. Its number, EINVAL, can have other causes."""


def read_regular(path: str | Path, at_most: int | None = None) -> bytes:
    """Read a file.

    Raises OSError if `path` is not a regular file or has more than `at_most` bytes, and MemoryError
    if it does not fit into memory.
    """
    size = _size_of_regular(path)
    if at_most is not None and size > at_most:
        raise OSError(errno.EFBIG, f"{size:,} bytes, of at most {at_most:,}", str(path))
    check_memory(size, path)
    with open(path, "rb") as file:
        return file.read()


def check_memory(size: int, path: str | Path) -> None:
    """Raise MemoryError if `size` bytes of a file are more than the machine's memory.

    If the system promises more memory than there is, reading them would end the process.
    """
    if size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise MemoryError(f"{path}: {size:,} bytes do not fit into memory")


def is_refused(error: OSError) -> bool:
    """Return whether `read_regular` refused a file for what it is.

    All other errors, such as a limit of descriptors or a fault of the disk, are not the file's.
    """
    return isinstance(error, NotRegularError) or error.errno in (errno.EISDIR, errno.EFBIG)


def read_json(path: str | Path) -> Any:
    """Read a JSON file. Raises OSError as `read_regular`, or ValueError if it is no JSON."""
    data = read_regular(path, _LARGEST_TEXT)
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextlib.contextmanager
def reading(
    path: Path,
    fix: str,
    fault: str = "cannot be read",
    errors: tuple[type[Exception], ...] = (ValueError,),
) -> Iterator[None]:
    """Turn an error inside a `with` block that reads a file into a ValueError with a fix, if it is
    one of `errors`, or `read_regular` refused the file.
    """
    try:
        yield
    except Exception as error:
        refused = isinstance(error, OSError) and is_refused(error)
        if not (refused or isinstance(error, errors)):
            raise
        cause = getattr(error, "strerror", None) or first_line(error)
        raise ValueError(f"{path}: {fault} ({cause}); {fix}") from None


def open_user_file(path: str | Path) -> BufferedReader:
    """Open a file that the user names, to read its bytes. It can be what a shell opened, as in
    `--val-list <(command)` and `--list /dev/stdin`.

    Raises OSError for other pipes and devices.
    """
    if not _DESCRIPTOR.fullmatch(os.fspath(path)):
        _size_of_regular(path)
    return open(path, "rb")


def _size_of_regular(path: str | Path) -> int:
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(errno.EINVAL, NOT_REGULAR, str(path))
    return status.st_size
