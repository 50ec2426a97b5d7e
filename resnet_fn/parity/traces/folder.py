"""A trace as a folder: `manifest.json` and arrays in .npz files, data only. Needs NumPy only.

The manifest names each file with its SHA-256, and holds its own; a trace that is damaged is refused by name, and
nothing in it is executed. docs/parity.md describes the format.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_fn.config.hints import finite_or_null, first_line
from resnet_fn.config.recipe import recipe_from_dict
from resnet_fn.parity.stages import Rounding
from resnet_fn.parity.ties import Flipped
from resnet_fn.parity.traces.array_files import ArrayFiles
from resnet_fn.parity.traces.batches import Arrays, Tree
from resnet_fn.parity.traces.layer import Layer
from resnet_fn.parity.traces.trace import Recording, Task, Trace

FORMAT, VERSION = "resnet_fn parity trace", 1
_MANIFEST = "manifest.json"
_ARRAYS = ("eval_outputs", "start", "gradients", "clipped", "average")
_LISTS = ("after", "train_outputs", "parts")


def save_recording(recording: Recording, folder: Path, layers: str = "all") -> int:
    """Write a recording into a new folder.

    Args:
        recording: of either side.
        folder: must not exist, or be empty.
        layers: "all", or "none": without the layers' inputs and outputs.

    Returns:
        Its size, bytes.

    Raises:
        ValueError: something is there already, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"out: {folder} is not empty; give a new folder")
        files = ArrayFiles(folder)
        manifest = _describe(recording, files, layers)
        text = json.dumps({**manifest, "sha256": _hash_of_manifest(manifest)}, indent=1, allow_nan=False) + "\n"
        (folder / _MANIFEST).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"out: {folder} cannot be written ({error.strerror}); give another folder") from None
    return sum(path.stat().st_size for path in folder.iterdir())


def _describe(recording: Recording, files: ArrayFiles, layers: str) -> dict[str, Any]:
    trace, task = recording.trace, recording.task
    batch_arrays: Arrays = {}
    batches = [_tree(tuple(batch), batch_arrays) for batch in task.batches]
    files.write("batches", batch_arrays)
    files.write("initial", recording.initial)
    for name in _ARRAYS:
        files.write(name.replace("_", "-"), getattr(trace, name))
    for name in _LISTS:
        for index, arrays in enumerate(getattr(trace, name)):
            files.write(f"{name.replace('_', '-')}-{index + 1}", arrays)
    for kind, arrays in trace.state.items():
        files.write(_state_file(kind), arrays)
    described = {mode: _layers(mode, executions, files, layers) for mode, executions in recording.layers.items()}
    flipped = recording.flipped.all_widths() if recording.flipped else {}
    return finite_or_null(
        {
            "format": FORMAT,
            "version": VERSION,
            "framework": recording.framework,
            "task": {
                "recipe": dataclasses.asdict(task.recipe),
                "batches": batches,
                "accumulate": task.accumulate,
                "seed": task.seed,
                "own_loss": task.own_loss,
                "own_optimizer": task.own_optimizer,
            },
            "losses": trace.losses,
            "norms": trace.norms,
            "rates": trace.rates,
            "states": list(trace.state),
            "counts": {name: len(getattr(trace, name)) for name in _LISTS},
            "layers": described,
            "rounding": recording.rounding,
            "flipped": [{"width": w, "ties": ties, "rounding": found} for w, (found, ties) in flipped.items()],
            "tied": [list(names) for names in recording.tied],
            "trainable": recording.trainable,
            "constants": recording.constants,
            "notes": recording.notes,
            "random_eval": recording.random_eval,
            "files": files.known,
        }
    )


def _layers(mode: str, executions: Sequence[Layer], files: ArrayFiles, which: str) -> list[dict[str, Any]]:
    arrays: Arrays = {}
    found = []
    for index, layer in enumerate(executions):
        fields = {field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)}
        for name in ("input", "output"):
            value = fields.pop(name)
            if value is not None and which == "all":
                arrays[f"{index} {name}"] = value
        found.append(fields)
    files.write(f"layers-{mode}", arrays)
    return found


def load_recording(folder: Path) -> Recording:
    """Read a trace folder.

    Raises:
        ValueError: it is no trace, one of another version, or damaged; the file is named.
    """
    path = folder / _MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder}: there is no {_MANIFEST}; give the folder that `parity record --out` wrote")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        own = manifest.pop("sha256")
        if manifest.get("format") != FORMAT:
            raise ValueError("it is no trace")
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{path}: damaged, or no trace ({first_line(error)}); record it again") from None
    if manifest.get("version") != VERSION:
        raise ValueError(f"{path}: version {manifest.get('version')}, this package reads {VERSION}; record it again")
    if own != _hash_of_manifest(manifest):
        raise ValueError(f"{path}: damaged (its hash is another); record it again")
    files = ArrayFiles(folder, manifest["files"])
    files.check()
    try:
        return _recording(manifest, files)
    except (KeyError, TypeError, IndexError, AttributeError, OSError, ValueError) as error:
        raise ValueError(
            f"{folder}: not a trace that this version reads ({first_line(error)}); record it again"
        ) from None


def _recording(manifest: Mapping[str, Any], files: ArrayFiles) -> Recording:
    batch_arrays = files.read("batches")
    told = manifest["task"]
    task = Task(
        recipe_from_dict(told["recipe"]),
        [_untree(batch, batch_arrays) for batch in told["batches"]],
        told["accumulate"],
        told["seed"],
        told["own_loss"],
        told["own_optimizer"],
    )
    trace = Trace(
        eval_outputs=files.read("eval-outputs"),
        start=files.read("start"),
        rates=manifest["rates"],
        losses=_numbers(manifest["losses"]),
        norms=_numbers(manifest["norms"]),
        gradients=files.read("gradients"),
        clipped=files.read("clipped"),
        average=files.read("average"),
        state={kind: files.read(_state_file(kind)) for kind in manifest["states"]},
    )
    for name in _LISTS:
        count = manifest["counts"][name]
        setattr(trace, name, [files.read(f"{name.replace('_', '-')}-{index + 1}") for index in range(count)])
    layers = {}
    for mode, described in manifest["layers"].items():
        arrays = files.read(f"layers-{mode}")
        layers[mode] = [_layer(fields, index, arrays) for index, fields in enumerate(described)]
    known = {entry["width"]: (_rounding(entry["rounding"]), entry["ties"]) for entry in manifest["flipped"]}
    return Recording(
        framework=manifest["framework"],
        task=task,
        initial=files.read("initial"),
        layers=layers,
        trace=trace,
        rounding=_rounding(manifest["rounding"] or {}),
        flipped=Flipped((), None, known) if known else None,
        tied=[tuple(names) for names in manifest["tied"]],
        trainable=manifest["trainable"],
        constants=manifest["constants"],
        notes=manifest["notes"],
        random_eval=manifest.get("random_eval", False),
    )


def _layer(fields: Mapping[str, Any], index: int, arrays: Arrays) -> Layer:
    values = {name: arrays.get(f"{index} {name}") for name in ("input", "output")}
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in fields["settings"].items()}
    parameters = tuple((leaf, tuple(shape)) for leaf, shape in fields["parameters"])
    return Layer(**{**fields, "settings": settings, "parameters": parameters, **values})


def _state_file(kind: str) -> str:
    return f"state-{re.sub('[^a-z0-9]+', '_', kind.lower())}"


def _rounding(found: Mapping[str, Mapping[str, float | None]]) -> Rounding:
    return {
        stage: {name: math.inf if error is None else error for name, error in errors.items()}
        for stage, errors in found.items()
    }


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _tree(tree: Tree, arrays: Arrays) -> Any:
    """The structure of a tree as JSON; its arrays are added to `arrays`."""
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


def _hash_of_manifest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True, allow_nan=False).encode()).hexdigest()
