"""Files are written so that they are complete or absent, and survive a loss of power."""

import contextlib
import hashlib
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def sha256(data: Any) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file of any size, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file; it is on the disk when this returns. A FileExistsError if the file exists."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def no_room(path: Path, error: OSError, run: Path) -> OSError:
    """Return the OSError to raise when `path`, in the run folder `run`, cannot be written because of `error`."""
    return OSError(
        f"{path}: cannot be saved ({error.strerror or error}); make room, then give the same command with "
        f"--out-dir {run} to resume from the last checkpoint"
    )


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """In this context, write to the yielded temporary file beside `path`; it replaces `path` at the end.

    After an error `path` stays as it was. The new file has the umask's mode (MindSpore's writers leave 0400).
    """
    # The name also has a random part: on a shared disk two machines may have equal process numbers.
    temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        temporary.unlink()
        yield temporary
        temporary.chmod(mode)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk's error has none
        raise
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str, errors: str = "strict") -> None:
    """Replace a file's contents by `text` in UTF-8, completely or not at all."""
    with replace_file(path) as file:
        file.write_text(text, encoding="utf-8", errors=errors)


def finite_or_null(value: Any) -> Any:
    """Return a nested value for JSON, with None in place of NaN and infinity, and lists in place of tuples."""
    if isinstance(value, dict):
        return {key: finite_or_null(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
