"""A checkpoint is a folder that is either complete or absent, for example
checkpoints/step-00000440.

The folder of a checkpoint contains these files:
    - weights.safetensors: weights, BatchNorm statistics and buffers, float32 in this package's
      nets, under the net's own names.
    - training.safetensors: state of the optimizer, the loss scaler and the moving average.
    - state.json: progress of the run, and values that a resume compares (`save` in run/resume.py).
    - manifest.json: number of the format, sizes of the files, hashes of state.json, of headers and
      of arrays.

A new checkpoint is written to a temporary folder, synced to the disk, and then renamed. Reading
compares the files with the hashes in the manifest, because safetensors files contain no checksum.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from resnet_fn.checkpoint.tensor_file import read_tensor_file, write_tensor_files
from resnet_fn.runtime.disk import sha256, sync_folder, write_synced

if TYPE_CHECKING:
    from mindspore import Parameter

    from resnet_fn.models.untrained import Buffer

MANIFEST = "manifest.json"
FORMAT = 2  # format of the files and of the entries in state.json; other formats are rejected
WEIGHTS, TRAINING, _STATE = "weights.safetensors", "training.safetensors", "state.json"
Arrays = Mapping[str, np.ndarray]


class CheckpointError(ValueError):
    """Raised if a checkpoint is missing or damaged, belongs to another net, or would contain NaN or
    infinity.
    """


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint folder whose hashes are correct."""

    path: Path
    # weights, BatchNorm statistics and buffers of the net, by name
    weights: dict[str, np.ndarray]
    # state of the optimizer, the loss scaler and the moving average, by name
    training: dict[str, np.ndarray]
    state: dict[str, Any]  # contents of state.json; see `save` in run/resume.py


def save_checkpoint(
    folder: Path,
    weights: "Sequence[Parameter | Buffer]",
    training: "Sequence[Parameter]",
    state: Mapping[str, Any],
    infinite: Collection[str] = (),
) -> Path:
    """Write a checkpoint folder completely or not at all. Return the folder's path when the files
    are on the disk.

    Args:
        folder: Path of the folder, `…/step-NNNNNNNN`. An existing folder is replaced.
        weights: Parameters and buffers of the net, as in `TrainState.of_net`.
        training: Parameters of the optimizer, the loss scaler and the moving average, as in
            `TrainState.training`.
        state: Other values to save, of JSON types, for example {"update": 10}.
        infinite: Names of Parameters and buffers that may contain infinity, as in
            `TrainState.infinite`.

    Raises:
        CheckpointError: If `weights` or `training` contain NaN, or infinity outside `infinite`.
            Nothing is saved.
        OSError: If the folder cannot be written. If writing fails, an existing folder is not
            replaced.
    """
    # The arrays need not be copied, because the caller waits and cannot change the Parameters
    # meanwhile.
    weights_now, training_now = (
        {p.name: p.numpy() for p in parameters} for parameters in (weights, training)
    )
    return write_checkpoint(folder, weights_now, training_now, state, infinite)


def write_checkpoint(
    folder: Path,
    weights: Arrays,
    training: Arrays,
    state: Mapping[str, Any],
    infinite: Collection[str] = (),
    links: bool = False,
) -> Path:
    """Write arrays as `save_checkpoint` does.

    The arrays must not change during the call. Any thread may call this. With `links`, the existing
    checkpoint `folder` contains the same arrays, and its files are linked instead of written anew,
    if the file system has hard links.
    """
    folder = Path(folder)
    temporary = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        try:
            files = _link_tensor_files(folder, temporary) if links else {}
            if not files:
                arrays = {WEIGHTS: weights, TRAINING: training}
                files = write_tensor_files(temporary, arrays, infinite)
        except ValueError as error:
            raise CheckpointError(
                f"{folder} was not saved, because {error}; lower the learning rate"
            ) from None
        text = (json.dumps(state, indent=1, allow_nan=False) + "\n").encode()
        write_synced(temporary / _STATE, text)
        files[_STATE] = {"size": len(text), "sha256": sha256(text)}
        body: dict[str, Any] = {"format": FORMAT, "files": files}
        # The manifest has a checksum too, so that a flipped bit in it does not look like damage to
        # another file.
        body["sha256"] = sha256(json.dumps(body, sort_keys=True).encode())
        write_synced(temporary / MANIFEST, (json.dumps(body, indent=1) + "\n").encode())
        sync_folder(temporary)
        # rename() cannot replace a folder that contains files. If the process dies between the two
        # renames, `recover_interrupted_replace` (run_folder.py) puts the old folder back.
        old = folder.with_name(f"{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def _link_tensor_files(saved: Path, folder: Path) -> dict[str, Any]:
    """Link the tensor files of the checkpoint `saved` into `folder`.

    Returns:
        Their entries in the manifest, or {} if they cannot be linked.
    """
    names = (WEIGHTS, TRAINING)
    try:
        files = _read_manifest(saved)["files"]
        for name in names:
            os.link(saved / name, folder / name)
    except (OSError, ValueError):  # no hard links, or the earlier save has failed
        for name in names:
            (folder / name).unlink(missing_ok=True)
        return {}
    return {name: files[name] for name in names}


def load_checkpoint(folder: Path) -> Checkpoint:
    """Return the contents of a checkpoint folder, after comparing all files with the hashes in
    manifest.json.

    Raises:
        CheckpointError: If a file is missing or damaged.
        ValueError: If the checkpoint has the format of another version of this package.
    """
    folder = Path(folder)
    read: dict[str, Any] = {}
    for name, expected in _read_manifest(folder)["files"].items():
        path = folder / name
        try:
            if "tensors" in expected:
                read[name] = read_tensor_file(path, expected)
            else:
                read[name] = path.read_bytes()
                if sha256(read[name]) != expected["sha256"]:
                    raise ValueError("the sha256 of the file is wrong")
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be read ({error.strerror}); use another checkpoint"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} is damaged ({error}); use another checkpoint") from None
    return Checkpoint(folder, read[WEIGHTS], read[TRAINING], json.loads(read[_STATE]))


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        expected = manifest.pop("sha256")
        if expected != sha256(json.dumps(manifest, sort_keys=True).encode()):
            raise ValueError("the sha256 of the manifest is wrong")
        number = manifest["format"]
        if number == FORMAT and not {WEIGHTS, TRAINING, _STATE} <= manifest["files"].keys():
            raise KeyError
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} contains no {MANIFEST}; give the folder of a checkpoint"
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{folder / MANIFEST} is damaged ({error}); use another checkpoint"
        ) from None
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(
            f"{folder / MANIFEST} is damaged (not a manifest); use another checkpoint"
        ) from None
    # no CheckpointError, because `newest` would then try older checkpoints of the same format
    if number != FORMAT:
        fix = "use the version of resnet_fn that wrote it, or start a new run"
        raise ValueError(
            f"{folder} has format {number}, but this version reads format {FORMAT}; {fix}"
        )
    return manifest
