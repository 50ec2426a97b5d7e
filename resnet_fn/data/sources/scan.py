"""Bad image files, found before the first update.

A JPEG that is cut inside its header kills the whole process in MindSpore's C++ decoder, one that is cut later decodes
silently to grey. So every file is decoded once by PIL, which raises on both; at an eighth of its size, which reads
every byte and computes little.
"""

import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from resnet_fn.data.dataset import DataSet
from resnet_fn.data.preprocess import orientation_of
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.runtime.disk import replace_file
from resnet_fn.runtime.workers import Workers, sum_over_ranks

MOST_PIXELS = 178_956_970  # PIL's own limit: 512 MB as RGB
REASONS = (
    "good",
    "cannot be read",
    "empty",
    "not an image",
    "cut or damaged",
    f"larger than {MOST_PIXELS:,} pixels",
    "missing",
)
_VERSION = 2  # of what a scan knows: the first left EXIF orientation alone
_GOOD, _UNREADABLE, _EMPTY, _NO_IMAGE, _DAMAGED, _TOO_LARGE, _MISSING = range(7)  # places in REASONS


@dataclasses.dataclass(frozen=True)
class Scan:
    """What is known of a split's files; int64 arrays [N].

    Attributes:
        sizes, times: bytes, and nanoseconds of the last change, when they were checked.
        codes: places in REASONS.
        converted: 1 where MindSpore's decoder does not read the file as PIL does, or does not turn it as EXIF says.
    """

    sizes: np.ndarray
    times: np.ndarray
    codes: np.ndarray
    converted: np.ndarray


def examine(path: str) -> tuple[int, int, int, int]:
    """(size, time, code, converted) of one file; see `Scan`."""
    try:
        status = os.stat(path)
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        return 0, 0, _MISSING if isinstance(error, FileNotFoundError) else _UNREADABLE, 0
    code, converted = _examine_bytes(data)
    return len(data), status.st_mtime_ns, code, int(converted)


def _examine_bytes(data: bytes) -> tuple[int, bool]:
    from PIL import Image

    if not data:
        return _EMPTY, False
    try:
        image = Image.open(io.BytesIO(data))
    except Image.DecompressionBombError:
        return _TOO_LARGE, False
    except Exception:
        # A JPEG's first bytes before something that is no header are a cut file, not another kind of file.
        return (_DAMAGED if data[:2] == b"\xff\xd8" else _NO_IMAGE), False
    if image.width * image.height > MOST_PIXELS:
        return _TOO_LARGE, False
    native = image.format == "JPEG" or (image.format in ("PNG", "BMP") and image.mode in ("RGB", "L"))
    try:
        image.draft("RGB", (1, 1))  # decode every 8x8 block of a JPEG to one pixel
        image.load()
    except Exception:
        return _DAMAGED, False
    return _GOOD, not native or orientation_of(image) != 1


def scan_files(split: FileSplit, known: Scan | None, workers: Workers, progress: bool) -> Scan:
    """Examine a split's files, each on one rank; all ranks know all afterwards.

    Args:
        split: the files; each rank reads with its threads.
        known: of an earlier scan of the same names: files of the same size and time are not read again.
        workers: the ranks that share the work.
        progress: show a bar on rank 0.
    """
    own = range(workers.rank, len(split), workers.size)
    table = np.zeros((4, len(split)), np.int64)

    def look(index: int) -> tuple[int, int, int, int]:
        if known is not None and known.codes[index] == _GOOD:
            try:
                status = os.stat(split.path(index))
            except OSError:
                return examine(split.path(index))
            if (status.st_size, status.st_mtime_ns) == (known.sizes[index], known.times[index]):
                return status.st_size, status.st_mtime_ns, _GOOD, int(known.converted[index])
        return examine(split.path(index))

    hidden = None if progress and workers.is_main else True  # None: where stderr is no terminal
    with ThreadPoolExecutor(split.threads) as pool:
        results = tqdm(pool.map(look, own), total=len(own), desc="checking images", unit="file", disable=hidden)
        for index, result in zip(own, results, strict=True):
            table[:, index] = result
    return Scan(*_exchange(table, workers))


def _exchange(table: np.ndarray, workers: Workers) -> np.ndarray:
    # Each entry is zero on all ranks but one. The sum is one of float32, exact for whole numbers below 2^24.
    parts = [(table >> shift) & 0xFFFF for shift in (0, 16, 32, 48)]
    sums = [sum_over_ranks(part.astype(np.float32), workers).astype(np.int64) for part in parts]
    return sums[0] | sums[1] << 16 | sums[2] << 32 | sums[3] << 48


def check_files(
    dataset: DataSet,
    on_bad: str,
    caches: Sequence[Path] = (),
    workers: Workers = Workers(),
    progress: bool = False,
    splits: Sequence[str] = ("train", "test"),
) -> DataSet:
    """Find the bad files of a data set of files; other sets come back as they are.

    Args:
        dataset: as it was listed.
        on_bad: "error", or "skip" to leave bad files out (on all ranks alike).
        caches: folders that may hold an earlier `write_scan`; the first that does counts.
        workers, progress: see `scan_files`.
        splits: which to check; the others stay unchecked.

    Returns:
        The data set of good files, with its `scans`.

    Raises:
        ValueError: bad files and `on_bad` is "error"; names the first ones and their faults.
    """
    scans: dict[str, tuple[FileSplit, Scan]] = {}
    for half in splits:
        split = getattr(dataset, half)
        if not isinstance(split, FileSplit):
            continue
        scan = scan_files(split, _read_scan(caches, half, split), workers, progress)
        scans[half] = split, scan
        good = scan.codes == _GOOD
        checked = dataclasses.replace(split, sizes=scan.sizes, converted=scan.converted.astype(bool))
        bad = np.flatnonzero(~good)
        if len(bad):
            named = "; ".join(f"{split.path(i)!r} is {REASONS[scan.codes[i]]}" for i in bad[:3])
            named = named.replace("is cannot", "cannot") + (f"; and {len(bad) - 3} more" if len(bad) > 3 else "")
            what = "training" if half == "train" else "evaluation"
            if on_bad == "error":
                raise ValueError(
                    f"on_bad_sample: {len(bad)} of {len(split)} {what} files are bad: {named}; "
                    "fix them, or give --on-bad-sample skip"
                )
            if not good.any():
                raise ValueError(f"data_dir: all {len(split)} {what} files are bad: {named}; fix them")
            note = f"skipping {len(bad)} of {len(split)} {what} files: {named}"
            dataset = dataclasses.replace(dataset, notes=(*dataset.notes, note))
        changed: dict[str, Any] = {half: checked.keep(good)}
        dataset = dataclasses.replace(dataset, **changed)
    return dataclasses.replace(dataset, scans=scans)


def write_scan(folder: Path, scans: Mapping[str, tuple[FileSplit, Scan]]) -> None:
    """Keep what was found in `folder` (scan-train.npz, …), and the bad files' names in bad_files.txt."""
    bad = []
    for half, (split, scan) in scans.items():
        names = np.frombuffer("\0".join(split.names).encode("utf-8", "surrogateescape"), np.uint8)
        with replace_file(folder / f"scan-{half}.npz") as file:
            np.savez(file, version=_VERSION, names=names, **vars(scan))
        bad += [f"{split.path(i)}: {REASONS[scan.codes[i]]}\n" for i in np.flatnonzero(scan.codes != _GOOD)]
    if bad:
        (folder / "bad_files.txt").write_text("".join(bad), encoding="utf-8", errors="surrogateescape")


def _read_scan(caches: Sequence[Path], half: str, split: FileSplit) -> Scan | None:
    for folder in caches:
        try:
            with open(folder / f"scan-{half}.npz", "rb") as file, np.load(file) as arrays:
                names = arrays["names"].tobytes().decode("utf-8", "surrogateescape")
                if names == "\0".join(split.names) and arrays["version"] == _VERSION:
                    return Scan(arrays["sizes"], arrays["times"], arrays["codes"], arrays["converted"])
        except Exception:  # a damaged zip file raises almost anything
            continue  # no cache, or a damaged one: look at every file again
    return None
