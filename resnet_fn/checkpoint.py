"""Checkpoints: folders that are whole or not there.

    checkpoints/step-00000440/
        weights.safetensors     the net: weights and BatchNorm statistics, float32, under the net's own names
        training.safetensors    momentum and loss scaler
        state.json              update, epoch, best metric, recipe, data set (classes, preprocessing)
        manifest.json           written last: sha256 and size of each file; name, shape, dtype of each tensor

A folder is written under a temporary name, its files and itself synced, then renamed. Nothing is trusted that the
manifest does not vouch for: MindSpore loads a cut `.ckpt` silently short, and safetensors has no payload checksum.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, ops
from mindspore import load_checkpoint as read_tensors
from mindspore import save_checkpoint as write_tensors

MANIFEST = "manifest.json"
FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint that is damaged, missing, or of another net; the message names file and fix."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a verified checkpoint folder holds.

    Attributes:
        path: the folder.
        weights, training: arrays by name.
        state: the JSON state: "update", "epoch", "best", "recipe", "dataset".
    """

    path: Path
    weights: dict[str, np.ndarray]
    training: dict[str, np.ndarray]
    state: dict[str, Any]


def save_checkpoint(
    folder: Path, weights: Sequence[Parameter], training: Sequence[Parameter], state: Mapping[str, Any]
) -> Path:
    """Write `folder` so that it either exists whole or not at all.

    Args:
        folder: its final name, `…/step-NNNNNNNN`; replaced if it exists.
        weights: the net's Parameters.
        training: Parameters of the optimizer and the scaler.
        state: JSON types.

    Returns:
        `folder`.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    folder = Path(folder)
    temporary = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        tensors = {}
        for file, parameters in (("weights.safetensors", weights), ("training.safetensors", training)):
            arrays = {parameter.name: parameter.asnumpy() for parameter in parameters}
            # MindSpore appends the ending itself where it is missing; given whole it writes just this file.
            records = [{"name": name, "data": Tensor(array)} for name, array in arrays.items()]
            write_tensors(records, str(temporary / file), format="safetensors")
            tensors[file] = {name: _describe(array) for name, array in arrays.items()}
        (temporary / "state.json").write_text(json.dumps(state, indent=1, allow_nan=False) + "\n")
        files = {
            path.name: {"sha256": _sha256(path.read_bytes()), "size": path.stat().st_size}
            for path in sorted(temporary.iterdir())
        }
        body = {"format": FORMAT, "files": files, "tensors": tensors}
        # The manifest vouches for itself too: a flipped bit in it must not pass for a damaged file elsewhere.
        body["sha256"] = _sha256(json.dumps(body, sort_keys=True).encode())
        (temporary / MANIFEST).write_text(json.dumps(body, indent=1) + "\n")
        for path in temporary.iterdir():
            _sync(path)
        _sync(temporary)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        _sync(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read and verify a checkpoint folder.

    Raises:
        CheckpointError: a file is missing, or anything differs from what the manifest says.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    for name, expected in manifest["files"].items():
        try:
            data = (folder / name).read_bytes()
        except OSError as error:
            raise CheckpointError(
                f"{folder / name}: cannot be read ({error.strerror}); use another checkpoint"
            ) from None
        if len(data) != expected["size"] or _sha256(data) != expected["sha256"]:
            raise CheckpointError(f"{folder / name}: damaged (its sha256 differs); use another checkpoint")
    arrays = {}
    for name, expected in manifest["tensors"].items():
        read = read_tensors(str(folder / name), format="safetensors") if expected else {}
        arrays[name] = {key: parameter.asnumpy() for key, parameter in read.items()}
        found = {key: _describe(array) for key, array in arrays[name].items()}
        if found != expected:
            raise CheckpointError(
                f"{folder / name}: holds other tensors than its manifest says; use another checkpoint"
            )
    state = json.loads((folder / "state.json").read_text())
    return Checkpoint(folder, arrays["weights.safetensors"], arrays["training.safetensors"], state)


def assign_all(parameters: Sequence[Parameter], arrays: Mapping[str, np.ndarray], source: object) -> None:
    """Put arrays into Parameters by exact name and shape: nothing missing, nothing extra.

    With `ops.assign`, which compiled functions see; `set_data` and `load_param_into_net` they do not.

    Raises:
        CheckpointError: lists what is missing, unexpected or of another shape. Nothing has been assigned then.
    """
    wanted = {parameter.name: parameter for parameter in parameters}
    missing = sorted(set(wanted) - set(arrays))
    unexpected = sorted(set(arrays) - set(wanted))
    shapes = [
        f"{name} {tuple(arrays[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in sorted(set(wanted) & set(arrays))
        if tuple(arrays[name].shape) != tuple(wanted[name].shape)
    ]
    if missing or unexpected or shapes:
        faults = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        text = "; ".join(f"{kind}: {_few(names)}" for kind, names in faults if names)
        raise CheckpointError(f"{source}: belongs to another net ({text}); give the recipe it was saved with")
    for name, parameter in wanted.items():
        ops.assign(parameter, Tensor(np.array(arrays[name])).astype(parameter.dtype))


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        said = manifest.pop("sha256")
        if said != _sha256(json.dumps(manifest, sort_keys=True).encode()) or manifest["format"] != FORMAT:
            raise ValueError("its own sha256 differs")
        return manifest
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: is not a checkpoint (no {MANIFEST})") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder / MANIFEST}: damaged ({error}); use another checkpoint") from None


def _describe(array: np.ndarray) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": _sha256(array.tobytes())}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
