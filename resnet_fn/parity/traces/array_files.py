"""Groups of named arrays, each in one .npz file that is checked before it is opened. Needs NumPy only."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.parity.traces.batches import Arrays

_NAME = re.compile(r"[a-z]+(-[a-z0-9_]+)*\.npz")


class ArrayFiles:
    """The files of one folder.

    Attributes:
        folder: where they are.
        known: of each file, its hash, its size in bytes and the names of its arrays: what a manifest keeps.
    """

    def __init__(self, folder: Path, known: dict[str, dict[str, Any]] | None = None) -> None:
        self.folder = folder
        self.known = {} if known is None else known

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a group; nothing where there are no arrays."""
        if not arrays:
            return
        path = self.folder / f"{name}.npz"
        np.savez(path, **{str(index): _smallest(array) for index, array in enumerate(arrays.values())})
        self.known[path.name] = {"sha256": _hash_of(path), "bytes": path.stat().st_size, "names": list(arrays)}

    def read(self, name: str) -> Arrays:
        """A group's arrays; none where it has no file."""
        entry = self.known.get(f"{name}.npz")
        if entry is None:
            return {}
        with np.load(self.folder / f"{name}.npz", allow_pickle=False) as file:
            return {key: file[str(index)] for index, key in enumerate(entry["names"])}

    def check(self) -> None:
        """Compare every file with its hash.

        Raises:
            ValueError: one is missing, damaged, or has a name that no trace has.
        """
        for name, entry in self.known.items():
            path = self.folder / name
            if not _NAME.fullmatch(name):
                raise ValueError(f"{self.folder}: names a file {name!r}, which no trace has; record it again")
            if not path.is_file():
                raise ValueError(f"{path}: is missing; copy the whole folder, or record it again")
            if path.stat().st_size != entry["bytes"] or _hash_of(path) != entry["sha256"]:
                raise ValueError(f"{path}: damaged (its hash is not the manifest's); copy or record it again")


def _smallest(array: np.ndarray) -> np.ndarray:
    """In float32 where that loses nothing."""
    if array.dtype != np.float64:
        return array
    small = array.astype(np.float32)
    return small if np.array_equal(small, array, equal_nan=True) else array


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
