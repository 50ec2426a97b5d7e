"""A run folder stores which files trained and which validated.

validation.json is a list of the validation files that were split off the training files.
contents.json has the size and fingerprint of each training and validation file, if all files were
read before training. Later runs and evaluations use both files (kept.py).
"""

import hashlib
import os
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from resnet_fn.config.reading import read_json, reading
from resnet_fn.data.class_names import composed
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.names import Names
from resnet_fn.runtime.disk import replace_json

VALIDATION = "validation.json"
CONTENTS = "contents.json"
BAD_FILES = "bad_files.txt"  # the files that are left out, see scan.py
FORMAT = 1  # of contents.json
_SAMPLED = 1024  # about as many bytes of a file are hashed

Fingerprint = tuple[int, int]
UNKNOWN: Fingerprint = (0, 0)


def fingerprint(data: bytes) -> Fingerprint:
    """Return two numbers below 2^48 that only files with the same contents share.

    One is a checksum of all bytes, which shows the smallest change. The other is a hash of the size
    and of about a thousand bytes, which differs for other files with this checksum. A hash of all
    bytes would slow the check of image files by 10 to 20 %.
    """
    sample = data[:: len(data) // _SAMPLED + 1] + len(data).to_bytes(8, "little")
    value = hashlib.blake2b(sample, digest_size=6).digest()
    return zlib.crc32(data), int.from_bytes(value, "little")


class Contents(NamedTuple):
    """A run's files by relative path, each with the result of `as_text`, or "" if unknown."""

    training: Mapping[str, str]
    validation: Mapping[str, str]

    @property
    def are_known(self) -> bool:
        """Return whether the sizes and fingerprints of the files are known."""
        return bool(self.training)


def as_text(size: int, value: Collection[int]) -> str:
    """Return a file's size and fingerprint as they stand in contents.json."""
    return f"{size} {''.join(f'{part:012x}' for part in value)}"


def all_as_text(files: FileSplit) -> list[str]:
    """Return `as_text` of each file, or an empty list if the files were not read."""
    pairs = zip(files.sizes.tolist(), files.fingerprints.tolist(), strict=False)
    return [as_text(size, value) for size, value in pairs]


def relative_names(files: FileSplit) -> Names:
    """Return the files' paths relative to `files.root`."""
    root = files.root
    paths = (os.path.relpath(name, root) if os.path.isabs(name) else name for name in files.names)
    return Names(map(_plain, paths))


def _plain(name: str) -> str:
    """Return one spelling of a path: without "./", and with accents as most systems write them."""
    return composed(os.path.normpath(name) if "./" in name or "//" in name else name)


def write_split(run: Path, dataset: DataSet, is_new: bool) -> None:
    """Write validation.json and contents.json to the folder `run`.

    A resumed run, which is not new, keeps validation.json. Its files are added to contents.json.
    """
    if is_new:
        for name in (VALIDATION, CONTENTS):
            # A run that was stopped before its first checkpoint may have left them.
            (run / name).unlink(missing_ok=True)
    if dataset.is_split and is_new:
        names = relative_names(cast(FileSplit, dataset.test))
        replace_json(run / VALIDATION, sorted(names), indent=0)
    training = _describe(dataset.train)
    validation = _describe(dataset.test)
    if not training:
        return
    before = read_split(run)
    if before and before.are_known:
        training = {**before.training, **training}
        validation = {**before.validation, **validation}
        if before == (training, validation):
            return
    contents = {"format": FORMAT, "training": training, "validation": validation}
    replace_json(run / CONTENTS, contents, indent=0)


def _describe(files: object) -> dict[str, str]:
    if not isinstance(files, FileSplit):
        return {}
    return dict(zip(relative_names(files), all_as_text(files), strict=False))


def read_split(run: Path) -> Contents | None:
    """Read a run's validation.json and contents.json. Returns None if the run has neither."""
    contents = _read(run / CONTENTS, _are_contents)
    if contents is None:
        contents = {"format": FORMAT, "training": {}, "validation": {}}
    if contents["format"] != FORMAT:
        raise ValueError(
            f"{run / CONTENTS}: has format {contents['format']}, but this version reads {FORMAT}; "
            "use a newer resnet_fn, or remove the file"
        )
    validation = contents["validation"]
    listed = _read(run / VALIDATION, _are_names)
    if listed is not None:
        validation = {name: validation.get(name, "") for name in map(_plain, listed)}
    return Contents(contents["training"], validation) if validation else None


def _are_contents(value: Any) -> bool:
    if not isinstance(value, dict) or "format" not in value:
        return False
    halves = [value.get("training"), value.get("validation")]
    return value["format"] != FORMAT or all(
        isinstance(half, dict) and _are_names([*half.values()]) for half in halves
    )


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def has_split(run: Path) -> bool:
    """Return whether the run's validation files were split off its training files."""
    return (run / VALIDATION).exists()


def _read(path: Path, is_right: Callable[[Any], bool]) -> Any:
    """Return the contents of a JSON file for which `is_right` is true, or None without the file."""
    try:
        with reading(path, "restore the file from a copy", fault="is damaged"):
            value = read_json(path)
            if not is_right(value):
                raise ValueError(f"not what a run writes to {path.name}")
            return value
    except FileNotFoundError:
        return None
