"""This module checks image files before training: their sizes, and whether Pillow can decode
them.
"""

import dataclasses
import json
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from resnet_fn.config.reading import NOT_REGULAR, read_regular
from resnet_fn.config.wording import first_few
from resnet_fn.data.agreement import require_alike
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.image_file import (
    DAMAGED,
    MOST_BYTES,
    MOST_PIXELS,
    NO_IMAGE,
    describe_unopened,
    is_files_fault,
    open_image,
    raise_unless_files_fault,
)
from resnet_fn.data.preprocess import NO_WHITE, has_no_white
from resnet_fn.data.sources.contents import BAD_FILES, UNKNOWN, Fingerprint, fingerprint
from resnet_fn.data.sources.duplicates import describe_duplicates
from resnet_fn.data.sources.files import READERS, FileSplit, how_to_convert, read_ahead
from resnet_fn.runtime.disk import replace_text
from resnet_fn.runtime.workers import Workers, exchange_numbers, gather_texts

# by default, files are decoded if both splits together have at most this many
MOST_CHECKED = 20_000
# no decoder needs more memory than this
_BYTES_PER_PIXEL = 16
_LEAST_MEMORY = 128 << 20
_ONE_AT_A_TIME = threading.Lock()  # so that threads do not take each other's memory
# a thread gets this many files at once, because handing over single files takes long
_AT_A_TIME = 32


class Examined(NamedTuple):
    """The result of `examine`."""

    size: int  # bytes
    fault: str  # "" for a good file
    fingerprint: Fingerprint = UNKNOWN  # see `contents.fingerprint`


def examine(path: str, decode: bool = True) -> Examined:
    """Return a file's size, fault and fingerprint. Without `decode`, the file is not read.

    Raises OSError or MemoryError if the disk or a limit prevents reading or decoding.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return Examined(0, NOT_REGULAR)
        if status.st_size > MOST_BYTES:
            return Examined(status.st_size, f"larger than {MOST_BYTES:,} bytes")
        if not decode:
            return Examined(status.st_size, "" if status.st_size else "empty")
        # Without a buffer, reading is faster by about the time that a fingerprint takes.
        with open(path, "rb", buffering=0) as file:
            data = file.read()
    except OSError as error:
        raise_unless_files_fault(error, path)
        return Examined(0, "missing" if isinstance(error, FileNotFoundError) else "unreadable")
    return Examined(len(data), _examine_bytes(data, path), fingerprint(data))


def _examine_bytes(data: bytes, path: str) -> str:
    from PIL import Image, UnidentifiedImageError

    too_large = f"larger than {MOST_PIXELS:,} pixels"
    try:
        image = open_image(data)
    except Image.DecompressionBombError:
        return too_large
    except UnidentifiedImageError:
        hint = how_to_convert([path])
        return f"{NO_IMAGE} ({hint})" if hint else describe_unopened(data)
    except Exception as error:
        return _damage(error)
    pixels = image.width * image.height
    if pixels > MOST_PIXELS:
        return too_large
    if has_no_white(image):
        return NO_WHITE
    try:
        image.draft("RGB", (1, 1))  # decode every 8x8 block of a JPEG to one pixel
        image.load()
    except Exception as error:
        return _damage(error, pixels)
    return ""


def _damage(error: Exception, pixels: int = 0) -> str:
    """Return the fault of a file that cannot be decoded, or raise an error that is not its own."""
    if not is_files_fault(error):
        raise error
    # Decoders of JPEG 2000, WebP and progressive JPEG report a lack of memory as damage. Then this
    # raises MemoryError.
    with _ONE_AT_A_TIME:
        np.empty(max(_BYTES_PER_PIXEL * pixels, _LEAST_MEMORY), np.uint8)
    return DAMAGED


def scan_files(
    split: FileSplit, decode: bool, workers: Workers, progress: bool
) -> tuple[FileSplit, dict[int, str]]:
    """Examine a split's files on all workers.

    Returns the split with sizes, and with fingerprints if `decode` is true, and the faults by
    sample number.
    """
    local = range(workers.rank, len(split), workers.size)
    sizes = np.zeros(len(split), np.int64)
    faults = dict[int, str]()
    prints = np.zeros((len(split) if decode else 0, 2), np.int64)

    def look_at(part: range) -> list[Examined]:
        return [examine(split.path(index), decode) for index in part]

    # None: hidden unless stderr is a terminal
    hidden = None if progress and decode and workers.is_main else True
    parts = (local[start : start + _AT_A_TIME] for start in range(0, len(local), _AT_A_TIME))
    with tqdm(total=len(local), desc="checking images", unit="file", disable=hidden) as bar:
        for part, results in read_ahead(look_at, parts, max(READERS, 2 * split.threads)):
            for index, examined in zip(part, results, strict=True):
                sizes[index] = examined.size
                if decode:
                    prints[index] = examined.fingerprint
                if examined.fault:
                    faults[index] = examined.fault
            bar.update(len(part))
    if workers.size > 1:
        sizes = exchange_numbers(sizes, workers)  # each size is zero on all workers except one
        prints = exchange_numbers(prints, workers) if decode else prints
        for text in gather_texts(json.dumps(list(faults.items())), workers):
            faults.update(json.loads(text))
    split = dataclasses.replace(split, sizes=sizes, fingerprints=prints)
    return split, dict(sorted(faults.items()))


# Long: which files are read, decoded and reported depends on the same lists.
def check_files(
    dataset: DataSet,
    on_bad: str = "error",
    check: str = "auto",
    workers: Workers = Workers(),
    progress: bool = False,
    splits: Sequence[str] = ("train", "test"),
    left_out: tuple[str, ...] | None = None,
) -> DataSet:
    """Check image files, and return the data set with file sizes and without bad files.

    Args:
        on_bad: with "error", bad files raise ValueError. With "skip", all files are decoded and bad
            files are left out.
        check: "yes" decodes all files, "no" decodes none, and "auto" decodes sets of at most
            `MOST_CHECKED` files.
        left_out: lines of a resumed run's bad_files.txt. If given, their files are left out, and no
            file is decoded.
    """
    halves: Any = (("train", dataset.train, "training"), ("test", dataset.test, "validation"))
    files = [half for half in halves if isinstance(half[1], FileSplit)]
    count = sum(len(split) for _, split, _ in files)
    skip = on_bad == "skip" and left_out is None
    decode = left_out is None and (
        skip or check == "yes" or (check == "auto" and count <= MOST_CHECKED)
    )
    lines = list(left_out or ())
    known = {line.rpartition("\t")[0] for line in lines}
    notes = list(dataset.notes)
    counts = []
    all_faults = []
    checked: dict[str, Any] = {}
    for half, split, kind in files:
        if half not in splits:
            continue
        if known:
            wanted = [name not in known for name in _names(split, dataset)]
            split = split.keep(np.array(wanted, bool))
        require_alike({f"{kind} files": len(split)}, workers, "give all workers the same data")
        split, bad = scan_files(split, decode, workers, progress)
        good = np.ones(len(split), bool)
        good[list(bad)] = False
        checked[half] = split.keep(good)
        if bad:
            counts.append(f"{len(bad)} of {len(split)} {kind}")
            names = _names(split, dataset)
            lines += [f"{names[index]}\t{fault}" for index, fault in bad.items()]
            faults = [f"{split.path(index)!r} is {fault}" for index, fault in bad.items()]
            all_faults += faults
            notes.append(f"skipping {counts[-1]} files: {first_few(faults, 3, '; ')}")
            if skip and not good.any():
                raise ValueError(
                    f"data_dir: all {len(bad)} {kind} files are bad: "
                    f"{first_few(faults, 3, '; ')}; fix them"
                )
    if counts and not skip:
        fix = "fix them, or give --on-bad-sample skip"
        if on_bad == "skip":
            fix = (
                "they became bad after the run began, so restore them; "
                f"a resume leaves out only what {BAD_FILES} lists"
            )
        raise ValueError(
            f"on_bad_sample: {' and '.join(counts)} files are bad: "
            f"{first_few(all_faults, 3, '; ')}; {fix}"
        )
    if left_out:
        notes.append(f"leaving out {len(left_out)} files that the run's {BAD_FILES} lists")
    elif left_out is None and checked and not decode:
        why = "--no-check-files" if check == "no" else f"{count:,} are more than {MOST_CHECKED:,}"
        notes.append(
            f"image files are not checked ({why}), so the command stops at a bad file; "
            "give --check-files to decode all files first"
        )
    notes += describe_duplicates(checked.get("train"), checked.get("test"))
    bad_files = tuple(lines) if on_bad == "skip" and checked else None
    return dataclasses.replace(dataset, **checked, notes=tuple(notes), bad_files=bad_files)


def _names(split: FileSplit, dataset: DataSet) -> list[str]:
    """Return the file paths relative to the data folder, each on one line.

    Such paths stay valid if the data folder is moved.
    """
    folder = os.path.relpath(os.path.realpath(split.root), os.path.realpath(dataset.input.data_dir))
    paths = (os.path.normpath(os.path.join(folder, name)) for name in split.names)
    return [path.replace("\n", "\\n").replace("\r", "\\r") for path in paths]


def write_bad_files(folder: Path, dataset: DataSet) -> None:
    """Write bad_files.txt with a line "path, tab, fault" for each skipped file.

    Without `bad_files`, write no file.
    """
    if dataset.bad_files is not None:
        replace_text(
            folder / BAD_FILES,
            "".join(f"{line}\n" for line in dataset.bad_files),
            "surrogateescape",
        )


def read_bad_files(folder: Path) -> tuple[str, ...] | None:
    """Return the lines of bad_files.txt in `folder`, or None if there is no such file."""
    try:
        text = read_regular(folder / BAD_FILES).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    return tuple(text.split("\n")[:-1])
