"""These functions hash files, and write files so that they survive a loss of power."""

import contextlib
import errno
import functools
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resnet_fn.config.output_paths import fix_for_write
from resnet_fn.config.printing import warn

# Errors of an operation that a file system, for example a mounted bucket, does not have.
_MISSING = (errno.EINVAL, errno.ENOSYS, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP)


def sha256(data: Any) -> str:
    """Return the SHA-256 hash of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 hash of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until the data is on the disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until a file's contents are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until a folder's entries are on the disk.

    If the file system cannot sync folders, a warning is printed.
    """
    effect = "a loss of power can undo the newest saves"
    with _missing_is_a_warning(path, "cannot sync folders", effect):
        sync(path)


@contextlib.contextmanager
def _missing_is_a_warning(path: Path, fault: str, effect: str, *more: int) -> Iterator[None]:
    """Turn the OSError of an operation that a file system does not have into one warning."""
    try:
        yield
    except OSError as error:
        if error.errno not in (*_MISSING, *more):
            raise
        _warn_once(f"{file_system(path)} {fault} ({error.strerror}): {effect}")


@functools.cache
def _warn_once(text: str) -> None:
    warn(text)


def _mounts() -> Iterator[tuple[Path, str]]:
    """Yield the place and the kind of each mounted file system. Where PyTorch's side is recorded,
    there is no psutil.
    """
    try:
        mounts = os.fsdecode(Path("/proc/self/mounts").read_bytes()).splitlines()
    except OSError:  # not Linux
        return
    for line in mounts:
        _, name, kind, *_ = line.split(" ")
        yield Path(name.replace("\\040", " ")), kind  # the file's spelling of a space


def is_mount(path: Path) -> bool:
    """Return whether a file system is mounted at `path`, as at files that a container gets."""
    real = Path(os.path.realpath(path))
    return any(mount == real for mount, _ in _mounts())


def file_system(path: Path) -> str:
    """Describe the file system of `path`, such as "the file system fuse.gcsfuse at /mnt/bucket"."""
    real = Path(os.path.realpath(path))
    nearest = Path()
    kind = ""
    for mount, its_kind in _mounts():
        # A later mount at the same place hides an earlier one.
        if real.is_relative_to(mount) and len(mount.parts) >= len(nearest.parts):
            nearest = mount
            kind = its_kind
    return f"the file system {kind} at {nearest}" if kind else f"the file system of {path}"


@contextlib.contextmanager
def saving(path: Path, run: Path) -> Iterator[None]:
    """Turn an OSError inside a `with` block that saves `path` into one that explains how to resume
    the run in folder `run`.
    """
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{path}: cannot be saved ({error.strerror or error}); {fix_for_write(error)}, and run "
            f"the same command with --out-dir {run} to resume from the last checkpoint"
        ) from None


@contextlib.contextmanager
def writing(target: str, fix: str) -> Iterator[None]:
    """Turn an OSError into a ValueError with a fix inside a `with` block that writes to `target`."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or error
        raise ValueError(f"{target} cannot be written ({cause}); {fix}") from None


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Let a `with` block write a temporary file, and then replace the file `path` by the temporary
    file.

    Yields the path of the temporary file. If the block raises an error, `path` stays as it was.
    """
    # The name also has a random part: on a shared disk two machines may have equal process numbers.
    temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        temporary.unlink()
        yield temporary
        if temporary.stat().st_mode != mode:  # MindSpore's writers leave 0400
            effect = "files keep the mode 0400"
            with _missing_is_a_warning(path, "cannot change modes", effect, errno.EPERM):
                temporary.chmod(mode)
        sync(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk's error has none
        raise
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str, errors: str = "strict") -> None:
    """Replace the contents of a file by `text` in UTF-8, completely or not at all."""
    with replace_file(path) as file:
        file.write_text(text, encoding="utf-8", errors=errors)


def replace_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Replace the contents of a file by `value` in JSON, completely or not at all.

    JSON is in ASCII, which holds names of any bytes.
    """
    replace_text(path, json.dumps(value, indent=indent) + "\n")


def finite_or_null(value: Any) -> Any:
    """Replace NaN and infinity in a nested value by None, because JSON has neither of them."""
    if isinstance(value, dict):
        return {key: finite_or_null(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
