"""A checkpoint's manifest.json contains the sizes and hashes of the checkpoint's other files.

What differs from the manifest is damaged. An error of the system, such as "Too many open files",
is no damage.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resnet_fn.config.reading import is_refused, read_json
from resnet_fn.runtime.disk import sha256, write_synced

MANIFEST = "manifest.json"
FORMAT = 2  # format of the files and of the entries in state.json; other formats are rejected
WEIGHTS = "weights.safetensors"
TRAINING = "training.safetensors"
STATE = "state.json"
_ENTRIES = {"format", "files", "sha256"}


class CheckpointError(ValueError):
    """Raised if a checkpoint is missing or damaged, belongs to another net, would contain NaN or
    infinity, or would replace something else.
    """


def write_manifest(folder: Path, files: dict[str, Any]) -> None:
    """Write and sync the manifest of a new checkpoint. `files` has an entry for each file."""
    body: dict[str, Any] = {"format": FORMAT, "files": files}
    # The manifest has a checksum too, so that a flipped bit in it does not look like damage to
    # another file.
    body["sha256"] = sha256(json.dumps(body, sort_keys=True).encode())
    write_synced(folder / MANIFEST, (json.dumps(body, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the entry of each file of a checkpoint.

    Raises:
        CheckpointError: If the manifest is missing or damaged.
        OSError: If the system cannot read the manifest.
        ValueError: If the manifest has the format of another version of this package.
    """
    path = folder / MANIFEST
    with reading(path):
        try:
            manifest = _read_entries(path)
        except (FileNotFoundError, NotADirectoryError):
            raise CheckpointError(
                f"{folder} contains no {MANIFEST}; give the folder of a checkpoint"
            ) from None
        expected = manifest.pop("sha256")
        if expected != sha256(json.dumps(manifest, sort_keys=True).encode()):
            raise ValueError("the sha256 of the manifest is wrong")
    number = manifest["format"]
    # no CheckpointError, because `newest` would then try older checkpoints of the same format
    if number != FORMAT:
        raise ValueError(
            f"{folder} has format {number}, but this version reads format {FORMAT}; "
            "use the version of resnet_fn that wrote it, or start a new run"
        )
    return manifest["files"]


def is_checkpoint(folder: Path) -> bool:
    """Return whether `folder` has the manifest of a checkpoint.

    The checkpoint may be damaged, or of another version of this package.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return False
    try:
        _read_entries(path)
    except ValueError:
        return False
    except OSError as error:
        if not (isinstance(error, FileNotFoundError) or is_refused(error)):
            raise
        return False
    return True


def _read_entries(path: Path) -> dict[str, Any]:
    manifest = read_json(path)
    if not isinstance(manifest, dict) or not manifest.keys() >= _ENTRIES:
        raise ValueError("not a manifest")
    return manifest


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file `path` in the errors of a `with` block that reads the file.

    Raises:
        CheckpointError: If the file is missing or no regular file, or the block raises an error
            because the file's contents are not those that were written.
        OSError: If the system cannot read the file.
        ValueError: If the file does not fit into memory.
    """
    try:
        yield
    except MemoryError:
        raise ValueError(
            f"{path}: its {path.stat().st_size / 1e9:.3g} GB do not fit into memory; "
            "use a machine with more memory"
        ) from None
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        cause = getattr(error, "strerror", None) or error
        if isinstance(error, OSError) and not (
            isinstance(error, FileNotFoundError) or is_refused(error)
        ):
            raise OSError(
                f"{path}: cannot be read ({cause}), so the checkpoint was not checked and may be "
                "intact; remove the cause, and run the same command again"
            ) from None
        raise CheckpointError(f"{path} is damaged ({cause}); use another checkpoint") from None
