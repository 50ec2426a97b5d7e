"""Bad image files, found before the first update.

A JPEG that is cut inside its header kills the whole process in MindSpore's C++ decoder (`--image-pipeline fast`), one
that is cut later decodes there silently to grey; Pillow raises on both, but a run should not end at its hundredth
update. So every file is decoded once by Pillow, at an eighth of its size, which reads every byte and computes little.
"""

import dataclasses
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from resnet_fn.data.dataset import DataSet
from resnet_fn.data.preprocess import reads_alike
from resnet_fn.data.read_ahead import READERS, read_ahead
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.scan_cache import Scan, ScanCache
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
_GOOD, _UNREADABLE, _EMPTY, _NO_IMAGE, _DAMAGED, _TOO_LARGE, _MISSING = range(7)  # places in REASONS
_AT_A_TIME = 32  # files that a thread looks at: to hand over one costs more than to see that it is known


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
    alike = reads_alike(image)
    try:
        image.draft("RGB", (1, 1))  # decode every 8x8 block of a JPEG to one pixel
        image.load()
    except Exception:
        return _DAMAGED, False
    return _GOOD, not alike


def scan_files(split: FileSplit, known: Scan, workers: Workers, progress: bool) -> tuple[Scan, bool]:
    """Examine a split's files, each on one rank; all ranks know all afterwards.

    Beside the result, a few thousand files are known of at a time, however many there are; so many are read ahead that
    a slow disk is not waited for.

    Args:
        split: the files.
        known: of earlier scans: good files of the same size and time are not read again.
        workers: the ranks that share the work.
        progress: show a bar on rank 0.

    Returns:
        The scan, and whether any file had to be read for it.
    """
    own = range(workers.rank, len(split), workers.size)
    scan, read = Scan.of_nothing(len(split)), np.zeros(1, np.float32)
    for column in (scan.codes, scan.converted):
        column[:] = 0  # those of other ranks must add nothing

    def look(index: int) -> tuple[bool, tuple[int, int, int, int]]:
        path = split.path(index)
        if known.codes[index] == _GOOD:
            try:
                status = os.stat(path)
            except OSError:
                return True, examine(path)
            if (status.st_size, status.st_mtime_ns) == (known.sizes[index], known.times[index]):
                return False, (status.st_size, status.st_mtime_ns, _GOOD, int(known.converted[index]))
        return True, examine(path)

    def look_at(part: range) -> list[tuple[bool, tuple[int, int, int, int]]]:
        return [look(index) for index in part]

    hidden = None if progress and workers.is_main else True  # None: where stderr is no terminal
    parts = (own[start : start + _AT_A_TIME] for start in range(0, len(own), _AT_A_TIME))
    with tqdm(total=len(own), desc="checking images", unit="file", disable=hidden) as bar:
        for part, results in read_ahead(look_at, parts, max(READERS, 2 * split.threads)):
            for index, (was_read, row) in zip(part, results, strict=True):
                scan.sizes[index], scan.times[index], scan.codes[index], scan.converted[index] = row
                read += was_read
            bar.update(len(part))
    columns = (_exchange(column, workers) for column in vars(scan).values())
    return Scan(*columns), bool(sum_over_ranks(read, workers)[0])


def _exchange(column: np.ndarray, workers: Workers) -> np.ndarray:
    # Each entry is zero on all ranks but one. The sum is one of float32, exact for whole numbers below 2^24.
    if workers.size == 1:
        return column
    shifts = (0, 16, 32, 48) if column.dtype == np.int64 else (0,)
    sums = (sum_over_ranks(((column >> shift) & 0xFFFF).astype(np.float32), workers) for shift in shifts)
    total = np.zeros(len(column), np.int64)
    for shift, part in zip(shifts, sums, strict=True):
        total |= part.astype(np.int64) << shift
    return total.astype(column.dtype)


def check_files(
    dataset: DataSet,
    on_bad: str,
    cache: ScanCache | None = None,
    workers: Workers = Workers(),
    progress: bool = False,
    splits: Sequence[str] = ("train", "test"),
) -> DataSet:
    """Find the bad files of a data set of files; other sets come back as they are.

    Args:
        dataset: as it was listed.
        on_bad: "error", or "skip" to leave bad files out (on all ranks alike).
        cache: what is known already, to which rank 0 adds what is found before anything is refused; None: nothing is.
        workers, progress: see `scan_files`.
        splits: which to check; the others stay unchecked.

    Returns:
        The data set of good files, with the others' names.

    Raises:
        ValueError: bad files and `on_bad` is "error"; names the first ones and their faults.
    """
    for half in splits:
        split = getattr(dataset, half)
        if not isinstance(split, FileSplit):
            continue
        scan, notes = _scan(split, cache, workers, progress)
        good = scan.codes == _GOOD
        bad = np.flatnonzero(~good)
        lines = [f"{split.path(i)}: {REASONS[scan.codes[i]]}" for i in bad]
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
            notes.append(f"skipping {len(bad)} of {len(split)} {what} files: {named}")
        checked = dataclasses.replace(split, sizes=scan.sizes, converted=scan.converted)
        changed: dict[str, Any] = {half: checked.keep(good) if len(bad) else checked}
        changed |= {"notes": (*dataset.notes, *notes), "bad_files": (*dataset.bad_files, *lines)}
        dataset = dataclasses.replace(dataset, **changed)
    return dataset


def _scan(split: FileSplit, cache: ScanCache | None, workers: Workers, progress: bool) -> tuple[Scan, list[str]]:
    """Scan with what is kept, and keep what is new; and what a user should know of that."""
    if cache is None:
        return scan_files(split, Scan.of_nothing(len(split)), workers, progress)[0], []
    keys = cache.keys(split)
    scan, is_new = scan_files(split, cache.find(keys), workers, progress)
    failure = cache.add(keys, scan) if is_new and workers.is_main else ""
    hint = "other runs will read all files again; give --scan-cache FOLDER"
    return scan, [f"warning: {failure} to keep what the check of {len(split)} files found: {hint}"] if failure else []


def write_bad_files(folder: Path, dataset: DataSet) -> None:
    """List the bad files and their faults in bad_files.txt, a line each; nothing where there are none."""
    if dataset.bad_files:
        with replace_file(folder / "bad_files.txt") as file:
            text = "".join(f"{line}\n" for line in dataset.bad_files)
            file.write_text(text, encoding="utf-8", errors="surrogateescape")
