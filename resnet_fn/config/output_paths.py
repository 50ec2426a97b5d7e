"""Checks of files and folders to be written, which `add_argument` takes as `type`."""

import argparse
import os
from pathlib import Path


def file_to_write(text: str) -> str:
    """Check that the file `text` can be written, and return `text`."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be written; give a file in a folder that exists"
        )
    return text


def folder_to_write(text: str) -> str:
    """Check that the folder `text` can be written or made, and return `text`."""
    existing = next(
        folder for folder in (Path(text), *Path(text).absolute().parents) if folder.exists()
    )
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; give another folder")
    return text


def new_folder(text: str) -> str:
    """Check that the folder `text` can be made, or is empty and writable, and return `text`."""
    if Path(folder_to_write(text)).is_dir() and any(Path(text).iterdir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not empty; give a new folder")
    return text
