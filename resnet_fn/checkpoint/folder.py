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

from resnet_fn.checkpoint.manifest import (
    STATE,
    TRAINING,
    WEIGHTS,
    CheckpointError,
    is_checkpoint,
    read_manifest,
    reading,
    write_manifest,
)
from resnet_fn.checkpoint.replace import replace_folder, temporary_name
from resnet_fn.checkpoint.tensor_file import Arrays, read_tensor_file, write_tensor_files
from resnet_fn.config.reading import read_regular
from resnet_fn.runtime.disk import sha256, sync_folder, write_synced

if TYPE_CHECKING:
    from mindspore import Parameter

    from resnet_fn.models.untrained import Buffer


class SavedState(dict[str, Any]):
    """The contents of a checkpoint's state.json. An entry that is missing is a CheckpointError."""

    def __init__(self, path: Path, entries: Mapping[str, Any]) -> None:
        super().__init__(entries)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise CheckpointError(
            f"{self._path} has no {name!r}; give a checkpoint that a run of train or fit has saved"
        )


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint folder whose hashes are correct."""

    path: Path
    # weights, BatchNorm statistics and buffers of the net, by name
    weights: Arrays
    # state of the optimizer, the loss scaler and the moving average, by name
    training: Arrays
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
        folder: Path of the folder, `…/step-NNNNNNNN`. An existing checkpoint is replaced,
            and a link to one too, whose target stays.
        weights: Parameters and buffers of the net, as in `TrainState.of_net`.
        training: Parameters of the optimizer, the loss scaler and the moving average, as in
            `TrainState.training`.
        state: Other values to save, of JSON types, for example {"update": 10}.
        infinite: Names of Parameters and buffers that may contain infinity, as in
            `TrainState.infinite`.

    Raises:
        CheckpointError: If `weights` or `training` contain NaN, or infinity outside `infinite`, or
            have a dtype that safetensors files cannot store, or if `folder` exists and is no
            checkpoint. Nothing is saved.
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
    if os.path.lexists(folder) and not _may_be_replaced(folder):
        raise CheckpointError(
            f"folder: {folder} exists and is no checkpoint, so it is not replaced; give another "
            f"path, for example {folder / 'step-00000001'}"
        )
    temporary = temporary_name(folder)
    try:
        temporary.mkdir(parents=True)
        try:
            files = _link_tensor_files(folder, temporary) if links else {}
            if not files:
                arrays = {WEIGHTS: weights, TRAINING: training}
                files = write_tensor_files(temporary, arrays, infinite)
        except ValueError as error:
            raise CheckpointError(f"{folder} was not saved, because {error}") from None
        text = (json.dumps(state, indent=1, allow_nan=False) + "\n").encode()
        write_synced(temporary / STATE, text)
        files[STATE] = {"size": len(text), "sha256": sha256(text)}
        write_manifest(temporary, files)
        sync_folder(temporary)
        replace_folder(folder, temporary)
        sync_folder(folder.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            error.filename = error.filename or str(folder)  # a full disk's error has none
        raise
    return folder


def _link_tensor_files(saved: Path, folder: Path) -> dict[str, Any]:
    """Link the tensor files of the checkpoint `saved` into `folder`.

    Returns:
        Their entries in the manifest, or {} if they cannot be linked.
    """
    names = (WEIGHTS, TRAINING)
    try:
        files = read_manifest(saved)
        for name in names:
            os.link(saved / name, folder / name)
    except (OSError, ValueError):  # no hard links, or the earlier save has failed
        for name in names:
            (folder / name).unlink(missing_ok=True)
        return {}
    return {name: files[name] for name in names}


def _may_be_replaced(folder: Path) -> bool:
    """Return whether `folder` is a checkpoint, a link to one, which may be replaced because its
    target stays, or an empty folder.
    """
    if not folder.is_dir():
        return False
    return is_checkpoint(folder) or not (folder.is_symlink() or any(folder.iterdir()))


def load_checkpoint(folder: Path) -> Checkpoint:
    """Return the contents of a checkpoint folder, after comparing all files with the hashes in
    manifest.json.

    Raises:
        CheckpointError: If a file is missing, or differs from the manifest.
        OSError: If the system cannot read a file. The checkpoint may be intact.
        ValueError: If the checkpoint has the format of another version of this package, or does
            not fit into memory.
    """
    folder = Path(folder)
    files = read_manifest(folder)
    arrays = {}
    for name in (WEIGHTS, TRAINING):
        path = folder / name
        with reading(path):
            arrays[name] = read_tensor_file(path, files[name])
    return Checkpoint(folder, arrays[WEIGHTS], arrays[TRAINING], _read_state(folder, files))


def load_state(folder: Path) -> SavedState:
    """Return a checkpoint's state without reading its arrays. Errors are as in `load_checkpoint`."""
    return _read_state(folder, read_manifest(folder))


def _read_state(folder: Path, files: Mapping[str, Any]) -> SavedState:
    path = folder / STATE
    with reading(path):
        text = read_regular(path, at_most=files[STATE]["size"])
        if sha256(text) != files[STATE]["sha256"]:
            raise ValueError("the sha256 of the file is wrong")
        entries = json.loads(text)
        if not isinstance(entries, dict):
            raise ValueError("not a JSON object")
        return SavedState(path, entries)
