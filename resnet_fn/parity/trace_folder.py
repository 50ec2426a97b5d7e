"""A trace as a folder: `manifest.json` and arrays in .npz files, data only. Needs NumPy only.

The manifest has the SHA-256 of each file and its own; loading a damaged trace raises an error that names the file, and
executes nothing. docs/parity.md describes the format.
"""

import dataclasses
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.hints import finite_or_null, first_line
from resnet_fn.config.recipe import recipe_from_dict
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.trace import Arrays, Flipped, Recording, Task, Trace, Tree
from resnet_fn.runtime.disk import sha256, sha256_of_file

_NAME = re.compile(r"[a-z]+(-[a-z0-9_]+)*\.npz")


class ArrayFiles:
    """The files of a folder; `known` has the hash of each, its size in bytes and the names of its arrays."""

    def __init__(self, folder: Path, known: dict[str, dict[str, Any]]) -> None:
        self.folder, self.known = folder, known

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a group; an empty one has no file."""
        if arrays:
            path = self.folder / f"{name}.npz"
            np.savez(path, **{str(index): _smallest(array) for index, array in enumerate(arrays.values())})
            hashed = {"sha256": sha256_of_file(path), "bytes": path.stat().st_size}
            self.known[path.name] = {**hashed, "names": list(arrays)}

    def read(self, name: str) -> Arrays:
        """A group's arrays; none if it has no file."""
        entry = self.known.get(f"{name}.npz")
        if entry is None:
            return {}
        path = self.folder / f"{name}.npz"
        _check_members(path)
        with np.load(path, allow_pickle=False) as file:
            return {key: file[str(index)] for index, key in enumerate(entry["names"])}

    def check(self) -> None:
        """Raise a ValueError if a file is missing or damaged, or has a name that no trace has."""
        for name, entry in self.known.items():
            path = self.folder / name
            if not _NAME.fullmatch(name):
                raise ValueError(f"{self.folder}: names a file {name!r}, which no trace has; record it again")
            if not path.is_file():
                raise ValueError(f"{path}: is missing; copy the whole folder, or record it again")
            if path.stat().st_size != entry["bytes"] or sha256_of_file(path) != entry["sha256"]:
                raise ValueError(f"{path}: damaged (its hash is not the manifest's); copy or record it again")


def _check_members(path: Path) -> None:
    """Raise a ValueError if reading a file would take more memory than its bytes."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError(f"{path.name}: its arrays are compressed, which no trace's are")
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise ValueError(f"{path.name}: its arrays are larger than the file")
        for member in members:
            with archive.open(member) as stream:
                np.lib.format.read_magic(stream)
                shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"{path.name}: array {list(shape)} is larger than its {member.file_size} bytes")


def _printable(value: Any) -> Any:
    """The value with the control characters in its texts escaped: a trace may be of a stranger's."""
    if isinstance(value, str):
        return "".join(one if one.isprintable() else repr(one)[1:-1] for one in value)
    if isinstance(value, dict):
        return {_printable(key): _printable(one) for key, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list) else value


def _smallest(array: np.ndarray) -> np.ndarray:
    """The array in float32 if that loses nothing."""
    if array.dtype != np.float64:
        return array
    small = array.astype(np.float32)
    return small if np.array_equal(small, array, equal_nan=True) else array


FORMAT, VERSION = "resnet_fn parity trace", 2
_MANIFEST = "manifest.json"
# Of a trace: groups of arrays, lists of groups, numbers. Of a recording and its task: fields that JSON takes.
_ARRAYS = ("eval_outputs", "start", "gradients", "clipped", "average", "last_outputs")
_LISTS = ("after", "train_outputs", "parts", "builds")
_STATES = ("state", "alone")
_NUMBERS = ("losses", "norms", "rates")
_PLAIN = ["framework", "tied", "trainable", "constants", "notes", "environment", "random_eval", "random_train", "drops"]
_PLAIN += ["file"]
_TASK = ("accumulate", "seed", "own_loss", "own_optimizer")


def save_recording(recording: Recording, folder: Path, layers: str = "all") -> int:
    """Write a recording into a new or empty folder (else a ValueError); its size in bytes.

    `layers` is "all", or "none": without the layers' inputs and outputs.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"out: {folder} is not empty; give a new folder")
        manifest = _describe(recording, ArrayFiles(folder, {}), layers)
        text = json.dumps({**manifest, "sha256": hash_of_manifest(manifest)}, indent=1, allow_nan=False) + "\n"
        (folder / _MANIFEST).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"out: {folder} cannot be written ({error.strerror}); give another folder") from None
    return sum(path.stat().st_size for path in folder.iterdir())


def _describe(recording: Recording, files: ArrayFiles, layers: str) -> dict[str, Any]:
    """Write the arrays; returns the manifest."""
    trace, task = recording.trace, recording.task
    batch_arrays: Arrays = {}
    batches = [_tree(tuple(batch), batch_arrays) for batch in task.batches]
    files.write("batches", batch_arrays)
    files.write("initial", recording.initial)
    for name in _ARRAYS:
        files.write(_file(name), getattr(trace, name))
    for name in _LISTS:
        for index, arrays in enumerate(getattr(trace, name)):
            files.write(f"{_file(name)}-{index + 1}", arrays)
    for name in _STATES:
        for kind, arrays in getattr(trace, name).items():
            files.write(_state_file(name, kind), arrays)
    for index, later in enumerate(trace.later):
        for name, arrays in _of_batch(later).items():
            files.write(f"{name}-later-{index + 1}", arrays)
    described = {mode: _layers(mode, executions, files, layers) for mode, executions in recording.layers.items()}
    flipped = recording.flipped.all_widths() if recording.flipped else {}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "task": {"recipe": dataclasses.asdict(task.recipe), "batches": batches}
        | {name: getattr(task, name) for name in _TASK},
        **{name: getattr(trace, name) for name in _NUMBERS},
        "states": list(trace.state),
        "alone": list(trace.alone),
        "losses_alone": trace.losses_alone,
        "later": [later.losses[0] for later in trace.later],
        "settings": trace.settings,
        "moved": trace.moved,
        "counts": {name: len(getattr(trace, name)) for name in _LISTS},
        "layers": described,
        "rounding": recording.rounding,
        "flipped": [{"width": width, "ties": ties, "rounding": errors} for width, (errors, ties) in flipped.items()],
        **{name: getattr(recording, name) for name in _PLAIN},
        "files": files.known,
    }
    return finite_or_null(manifest, lambda number: {"float": str(number)})


def _of_batch(trace: Trace) -> dict[str, Arrays]:
    """The arrays of one of `Trace.later`."""
    return {"eval": trace.eval_outputs, "train": trace.train_outputs[0], "gradients": trace.gradients}


def _number(value: dict[str, Any]) -> Any:
    """Decode NaN and infinities, {"float": "-inf"}; other objects are unchanged."""
    return float(value["float"]) if list(value) == ["float"] and isinstance(value["float"], str) else value


def _file(name: str) -> str:
    return name.replace("_", "-")


def _layers(mode: str, executions: Sequence[Layer], files: ArrayFiles, which: str) -> list[dict[str, Any]]:
    arrays: Arrays = {}
    described = []
    for index, layer in enumerate(executions):
        fields = dict(vars(layer))
        named = {f"state {number}": state for number, state in enumerate(fields.pop("states"))}
        for name, value in {"input": fields.pop("input"), "output": fields.pop("output"), **named}.items():
            if value is not None and which == "all":
                arrays[f"{index} {name}"] = value
        described.append(fields)
    files.write(f"layers-{mode}", arrays)
    return described


def load_recording(folder: Path) -> Recording:
    """Read a trace folder.

    Raises:
        ValueError: it is no trace, has another version, or is damaged; names the file.
    """
    path = folder / _MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder}: there is no {_MANIFEST}; give the folder that `parity record --out` wrote")
    try:
        text = path.read_text(encoding="utf-8")
        manifest = json.loads(text)
        own = manifest.pop("sha256")
        if manifest.get("format") != FORMAT:
            raise ValueError("it is no trace")
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{path}: damaged, or no trace ({first_line(error)}); record it again") from None
    if manifest.get("version") != VERSION:
        raise ValueError(f"{path}: version {manifest.get('version')}, this package reads {VERSION}; record it again")
    if own != hash_of_manifest(manifest):
        raise ValueError(f"{path}: damaged (its hash is another); record it again")
    files = ArrayFiles(folder, manifest["files"])
    files.check()
    try:
        files.known = _printable(manifest["files"])
        return _recording(_printable(json.loads(text, object_hook=_number)), files)
    except (KeyError, TypeError, IndexError, AttributeError, OSError, ValueError) as error:
        words = f"not a trace that this version reads ({first_line(error)}); record it again"
        raise ValueError(f"{folder}: {words}") from None


def _recording(manifest: Mapping[str, Any], files: ArrayFiles) -> Recording:
    batch_arrays = files.read("batches")
    described = manifest["task"]
    batches = [_untree(batch, batch_arrays) for batch in described["batches"]]
    task = Task(recipe_from_dict(described["recipe"]), batches, **{name: described[name] for name in _TASK})
    counts = manifest["counts"]
    if excess := [name for name in _LISTS if counts[name] > len(files.known)]:
        raise ValueError(f"{counts[excess[0]]} groups {excess[0]} in {len(files.known)} files")
    fields: dict[str, Any] = {
        **{name: files.read(_file(name)) for name in _ARRAYS},
        **{name: manifest[name] for name in _NUMBERS},
        **{name: [files.read(f"{_file(name)}-{index + 1}") for index in range(counts[name])] for name in _LISTS},
        "state": {kind: files.read(_state_file("state", kind)) for kind in manifest["states"]},
        "alone": {update: files.read(_state_file("alone", update)) for update in manifest["alone"]},
        "losses_alone": manifest["losses_alone"],
        "settings": manifest["settings"],
        "moved": manifest.get("moved", {}),
    }
    fields["later"] = []
    for index, loss in enumerate(manifest["later"]):
        outputs, train, gradients = (files.read(f"{name}-later-{index + 1}") for name in ("eval", "train", "gradients"))
        one = Trace(outputs, start=fields["start"], rates=[], losses=[loss], train_outputs=[train], gradients=gradients)
        fields["later"].append(one)
    layers = {}
    for mode, described in manifest["layers"].items():
        arrays = files.read(f"layers-{mode}")
        layers[mode] = [_layer(fields, index, arrays) for index, fields in enumerate(described)]
    known = {entry["width"]: (entry["rounding"], entry["ties"]) for entry in manifest["flipped"]}
    plain = {name: manifest[name] for name in _PLAIN}
    drops = None if plain.get("drops") is None else [tuple(drop) for drop in plain["drops"]]
    return Recording(
        task=task,
        initial=files.read("initial"),
        layers=layers,
        trace=Trace(**fields),
        rounding=manifest["rounding"],
        flipped=Flipped(list(known), known.__getitem__) if known else None,
        **{**plain, "tied": [tuple(names) for names in plain["tied"]], "drops": drops},
    )


def _layer(fields: Mapping[str, Any], index: int, arrays: Arrays) -> Layer:
    values = {name: arrays.get(f"{index} {name}") for name in ("input", "output")}
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in fields["settings"].items()}
    parameters = tuple((leaf, tuple(shape)) for leaf, shape in fields["parameters"])
    states = tuple(arrays[f"{index} state {number}"] for number in range(2) if f"{index} state {number}" in arrays)
    plain = {**fields, "settings": settings, "parameters": parameters, **values}
    return Layer(states=states, **plain)


def _state_file(name: str, kind: str) -> str:
    return f"{name}-{re.sub('[^a-z0-9]+', '_', kind.lower())}"


def _tree(tree: Tree, arrays: Arrays) -> Any:
    """The structure of a tree as JSON; adds its arrays to `arrays`."""
    if isinstance(tree, Mapping):
        return {"dict": {key: _tree(branch, arrays) for key, branch in tree.items()}}
    if isinstance(tree, tuple | list):
        return {"tuple": [_tree(branch, arrays) for branch in tree]}
    arrays[str(len(arrays))] = tree
    return {"array": str(len(arrays) - 1)}


def _untree(described: Mapping[str, Any], arrays: Arrays) -> Tree:
    if "dict" in described:
        return {key: _untree(branch, arrays) for key, branch in described["dict"].items()}
    if "tuple" in described:
        return tuple(_untree(branch, arrays) for branch in described["tuple"])
    return arrays[described["array"]]


def hash_of_manifest(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of a manifest without its own."""
    return sha256(json.dumps(manifest, sort_keys=True, allow_nan=False).encode())
