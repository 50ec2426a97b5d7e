"""Checks of files and folders to be written, and what helps if a write fails.

`add_argument` takes the checks as `type`.
"""

import argparse
import errno
import os
import tempfile
from pathlib import Path

# What helps after a failed write; other errors have no usual cause.
_FIXES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room in your quota of the disk",
    errno.EROFS: "make the disk writable",
    errno.EACCES: "get the permission to write",
    errno.EPERM: "get the permission to write",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
}


def file_to_write(text: str) -> str:
    """Check that the file `text` can be written, and return `text`."""
    path = Path(text)
    # unlike those of `Path`, these functions raise no error below an unreadable folder
    is_writable = os.access(path, os.W_OK) if os.path.exists(path) else _takes_files(path.parent)
    if os.path.isdir(path) or not is_writable:
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be written; give a file in a folder that exists and is writable"
        )
    return text


def folder_to_write(text: str) -> str:
    """Check that the folder `text` can be written or made, and return `text`."""
    path = Path(text)
    nearest_existing = next(
        folder for folder in (path, *path.absolute().parents) if os.path.exists(folder)
    )
    if not os.path.isdir(nearest_existing) or not _takes_files(nearest_existing):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; give another folder")
    return text


def _takes_files(folder: Path) -> bool:
    """Return whether a file can be made in a folder. For root, `os.access` would allow it in any,
    such as /proc.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)  # there may be room later


def new_folder(text: str) -> str:
    """Check that the folder `text` can be made, or is empty and writable, and return `text`."""
    if Path(folder_to_write(text)).is_dir() and any(Path(text).iterdir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not empty; give a new folder")
    return text


def fix_for_write(error: OSError) -> str:
    """Return what a user can do after the error of a failed write, such as "make room on the
    disk".
    """
    return _FIXES.get(error.errno or 0, "remove the cause")
