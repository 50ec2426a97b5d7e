"""A checkpoint is a folder that is complete or absent.

    checkpoints/step-00000440/
        weights.safetensors     the net: weights and BatchNorm statistics, float32, under the net's own names
        training.safetensors    the rest of `TrainState`: of the optimizer, the loss scaler, the moving average
        state.json              where the run stands, and what a resume compares: `save` in run/resume.py defines it
        manifest.json           written last: the format's number; size and sha256 of each file; name, shape, dtype,
                                sha256 of each tensor

A folder is written under a temporary name, its files and itself synced, then renamed. All that is read is checked
against the manifest: MindSpore loads a truncated `.ckpt` without an error, and safetensors has no payload checksum.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from resnet_fn.checkpoint.tensor_file import read_tensor_file, write_tensor_files
from resnet_fn.runtime.disk import sha256, sync, write_synced

if TYPE_CHECKING:
    from mindspore import Parameter

MANIFEST = "manifest.json"
FORMAT = 2  # of all that a checkpoint folder holds, state.json's entries included; another number is not read
_WEIGHTS, _TRAINING, _STATE = "weights.safetensors", "training.safetensors", "state.json"
Arrays = Mapping[str, np.ndarray]


class CheckpointError(ValueError):
    """A checkpoint is damaged, missing, or of another net; the message names the file and the fix."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The contents of a verified checkpoint folder."""

    path: Path
    weights: dict[str, np.ndarray]
    training: dict[str, np.ndarray]
    state: dict[str, Any]  # JSON types; see `save` in run/resume.py


def save_checkpoint(
    folder: Path, weights: "Sequence[Parameter]", training: "Sequence[Parameter]", state: Mapping[str, Any]
) -> Path:
    """Write `folder` (`…/step-NNNNNNNN`, replaced if it exists) completely or not at all; return it once on the disk.

    `weights` are the net's, `training` the optimizer's and the scaler's; `state` has JSON types.

    Raises:
        CheckpointError: a weight or state is not finite; such state is never saved.
        OSError: the folder cannot be written; an earlier checkpoint of that name stays intact.
    """
    # No copies: the caller waits for the write, and cannot change the Parameters meanwhile.
    weights_now, training_now = ({p.name: p.numpy() for p in parameters} for parameters in (weights, training))
    return write_checkpoint(folder, weights_now, training_now, state)


def write_checkpoint(folder: Path, weights: Arrays, training: Arrays, state: Mapping[str, Any]) -> Path:
    """Write copies of arrays as `save_checkpoint` does; may run in another thread beside training."""
    folder = Path(folder)
    temporary = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    tensors = {_WEIGHTS: weights, _TRAINING: training}
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        try:
            files = write_tensor_files(temporary, tensors)
        except ValueError as error:
            raise CheckpointError(f"{folder}: not saved ({error}); lower the learning rate") from None
        text = (json.dumps(state, indent=1, allow_nan=False) + "\n").encode()
        write_synced(temporary / _STATE, text)
        files[_STATE] = {"size": len(text), "sha256": sha256(text)}
        body = {"format": FORMAT, "files": files}
        # With a checksum of its own: a bit flipped in the manifest must not look like damage of another file.
        body["sha256"] = sha256(json.dumps(body, sort_keys=True).encode())
        write_synced(temporary / MANIFEST, (json.dumps(body, indent=1) + "\n").encode())
        sync(temporary)
        # rename() cannot replace a folder that holds files. If the process dies between the two renames,
        # `recover_interrupted_replace` puts the old folder back.
        old = folder.with_name(f"{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def recover_interrupted_replace(checkpoints: Path) -> None:
    """Put back the old checkpoint if a crash ended its replacement."""
    for old in checkpoints.glob("step-*.old"):
        folder = old.with_suffix("")
        if not folder.exists():
            old.rename(folder)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint folder; a CheckpointError if a file is missing or differs, a ValueError for another format."""
    folder = Path(folder)
    manifest = _read_manifest(folder)
    read: dict[str, Any] = {}
    for name, expected in manifest["files"].items():
        path = folder / name
        try:
            if "tensors" in expected:
                read[name] = read_tensor_file(path, expected)
            else:
                read[name] = path.read_bytes()
                if sha256(read[name]) != expected["sha256"]:
                    raise ValueError("its sha256 differs")
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror}); use another checkpoint") from None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: damaged ({error}); use another checkpoint") from None
    return Checkpoint(folder, read[_WEIGHTS], read[_TRAINING], json.loads(read[_STATE]))


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        expected = manifest.pop("sha256")
        if expected != sha256(json.dumps(manifest, sort_keys=True).encode()):
            raise ValueError("its own sha256 differs")
        number = manifest["format"]
        if number == FORMAT and not {_WEIGHTS, _TRAINING, _STATE} <= manifest["files"].keys():
            raise KeyError
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: is not a checkpoint (no {MANIFEST})") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / MANIFEST}: damaged ({error}); use another checkpoint") from None
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{folder / MANIFEST}: damaged (it is no manifest); use another checkpoint") from None
    if number != FORMAT:  # no CheckpointError: the one before would be of that format, too
        fix = "use the version of resnet_fn that wrote it, or start a new run"
        raise ValueError(f"{folder}: has format {number}, and this version reads {FORMAT}; {fix}")
    return manifest
