"""What checks of image files found, kept for every run on the same data: a row for each file, found by its path's hash.

A run reads it once and replaces it once, whole, so that any number of runs may use it at a time. Where two replace it
at the same moment the later one stays, and what the other had found is looked at again; so is everything after damage.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from resnet_fn.data.sources.files import FileSplit
from resnet_fn.runtime.disk import replace_file, sha256

OFF = "off"  # the setting that turns the check off
UNKNOWN = 255  # the code of a file that no scan has seen
_VERSION = 3  # of what a scan knows: the first left EXIF orientation alone, the second was of whole lists of files
_BESIDE = ".resnet_fn-scan.npz"  # in the data's folder; a file, for what reads folders takes each for a class
_A_DAY = 86400.0  # seconds; a temporary file so old is of a writer that was killed


@dataclasses.dataclass(frozen=True)
class Scan:
    """What is known of files; arrays [N].

    Attributes:
        sizes, times: bytes, and nanoseconds of the last change, when they were checked; int64.
        codes: uint8, places in `scan.REASONS`; `UNKNOWN`: never checked.
        converted: bool, whether MindSpore's decoder does not read the file as PIL does, or turn it as EXIF says.
    """

    sizes: np.ndarray
    times: np.ndarray
    codes: np.ndarray
    converted: np.ndarray

    @classmethod
    def of_nothing(cls, count: int) -> "Scan":
        """A scan of files that nothing is known of."""
        sizes, times = np.zeros((2, count), np.int64)
        return cls(sizes, times, np.full(count, UNKNOWN, np.uint8), np.zeros(count, bool))

    def rows(self, places: np.ndarray) -> "Scan":
        """The scan of those files."""
        return Scan(*(column[places] for column in vars(self).values()))


@dataclasses.dataclass(frozen=True)
class ScanCache:
    """Where scans of a data folder are kept.

    Attributes:
        data_dir: the folder; files go by their paths from there, so that it may be moved or mounted elsewhere.
        places: the files that are read, the last first; the first that can be written is.
    """

    data_dir: str
    places: tuple[Path, ...]

    @classmethod
    def of(cls, setting: str, data_dir: str, runs: Sequence[Path] = ()) -> "ScanCache":
        """By the setting `scan_cache` (a folder, or "": beside the data), with run folders where that takes no file."""
        name = f"scan-{sha256(os.path.realpath(data_dir).encode('utf-8', 'surrogateescape'))[:16]}.npz"
        shared = Path(setting) / name if setting else Path(data_dir) / _BESIDE
        return cls(data_dir, (shared, *(run / name for run in runs)))

    def keys(self, split: FileSplit) -> np.ndarray:
        """A hash of each file's path: uint64 [N]. (Two that meet must have one size and time, too, to be confused.)"""
        root = os.path.relpath(os.path.realpath(split.root), os.path.realpath(self.data_dir))
        paths = (os.path.normpath(os.path.join(root, name)) for name in split.names)
        encoded = (path.encode("utf-8", "surrogateescape") for path in paths)
        hashes = (int.from_bytes(blake2b(path, digest_size=8).digest(), "little") for path in encoded)
        return np.fromiter(hashes, np.uint64, len(split))

    def find(self, keys: np.ndarray) -> Scan:
        """What is known of the files with these keys: a run's own folder, where it had to be used, knows best."""
        found = Scan.of_nothing(len(keys))
        for path in reversed(self.places):
            known, scan = _read(path)
            if not len(known):
                continue
            places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            new = (known[places] == keys) & (found.codes == UNKNOWN)
            for column, theirs in zip(vars(found).values(), vars(scan.rows(places)).values(), strict=True):
                column[new] = theirs[new]
        return found

    def add(self, keys: np.ndarray, scan: Scan) -> str:
        """Keep a scan beside what is kept already; returns why it cannot be kept where it should, "" if it is."""
        failure = ""
        for path in self.places:
            before, known = _read(path)
            both, first = np.unique(np.concatenate((keys, before)), return_index=True)
            columns = zip(vars(scan).values(), vars(known).values(), strict=True)
            rows = Scan(*(np.concatenate(column)[first] for column in columns))
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with replace_file(path) as file:
                    np.savez(file, version=_VERSION, keys=both, **vars(rows))
                _remove_abandoned(path)
                return failure
            except OSError as error:
                failure = failure or f"{path.parent} takes no files ({error.strerror or error})"
        return failure


def _remove_abandoned(path: Path) -> None:
    for other in path.parent.glob(f".tmp-*-{path.name}"):
        with contextlib.suppress(OSError):  # another run may be at it
            if time.time() - other.stat().st_mtime > _A_DAY:
                other.unlink()


def _read(path: Path) -> tuple[np.ndarray, Scan]:
    """Ascending keys and their rows; none where there is no such file, or a damaged one."""
    try:
        with open(path, "rb") as file, np.load(file) as arrays:
            if arrays["version"] == _VERSION:
                return arrays["keys"], Scan(*(arrays[field.name] for field in dataclasses.fields(Scan)))
    except Exception:  # a damaged zip file raises almost anything
        pass
    return np.zeros(0, np.uint64), Scan.of_nothing(0)
