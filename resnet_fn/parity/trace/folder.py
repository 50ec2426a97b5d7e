"""Write and read a trace: a folder with a recording in `manifest.json` and its arrays in
`arrays.npz`. Needs NumPy only.

A trace may come from a stranger. Nothing in a trace is executed, and loading needs no more memory
than the files have bytes. The manifest contains the SHA-256 of `arrays.npz`, and the SHA-256 of the
manifest's other entries. Several workers write a folder each (rank-0, rank-1, …).
"""

import dataclasses
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.optimizers import OPTIMIZERS
from resnet_fn.config.wording import first_line
from resnet_fn.parity.trace.data import Probe, Probes, Run, Ties, Trace
from resnet_fn.parity.trace.drop import Drop, Outcomes
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.plan import AveragePlan, LossPlan, NetPlan, OptimizerPlan, Plan
from resnet_fn.parity.trace.ranks import merge
from resnet_fn.parity.trace.source import ProbeAnswer, Source
from resnet_fn.parity.trace.stages import ArrayId, StageId
from resnet_fn.runtime.disk import sha256, sha256_of_file

FORMAT, VERSION = "resnet_fn parity trace", 4

MANIFEST, ARRAYS = "manifest.json", "arrays.npz"


def _optimizer(**fields: Any) -> OptimizerPlan:
    """Make the optimizer of a stored plan.

    Raises one of `MALFORMED` if a setting that the optimizer reads is not there, or is no number.
    """
    plan = OptimizerPlan(**fields)
    for name in OPTIMIZERS[plan.name].settings:
        float(plan.settings[name])
    return plan


# Name of a dataclass → the function that builds an object from the fields.
_CLASSES: dict[str, Callable[..., Any]] = {
    kind.__name__: kind
    for kind in (
        Trace,
        Plan,
        LossPlan,
        AveragePlan,
        NetPlan,
        Run,
        Layer,
        Drop,
        Outcomes,
        Probe,
        Ties,
        StageId,
        ArrayId,
    )
} | {"OptimizerPlan": _optimizer}

MALFORMED = (
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OSError,
    ValueError,
    zipfile.BadZipFile,
)


def save_recording(
    recording: Trace, folder: Path, layers: str = "all", source: Source | None = None
) -> int:
    """Write a recording into a new or empty folder, and return the folder's size in bytes.

    If `layers` is "none", the inputs and outputs of layers are left out. All answers of a live
    `source` are stored, too.
    """
    if layers == "none":
        bare: dict[str, Any] = {"input": None, "output": None}
        kept = {
            mode: [dataclasses.replace(layer, **bare) for layer in run]
            for mode, run in recording.layers.items()
        }
        # others need outputs
        of_net: Probes = {name: probes for name, probes in recording.probes.items() if not name}
        recording = dataclasses.replace(recording, layers=kept, probes=of_net)
    if source is not None:
        recording = _with_answers(recording, source)
    arrays: dict[int, tuple[int, np.ndarray]] = {}
    packed = pack(recording, arrays)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"out: {folder} is not empty; give a new folder")
        path = folder / ARRAYS
        with zipfile.ZipFile(path, "w") as archive:
            for index, array in arrays.values():
                with archive.open(f"{index}.npy", "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, _smallest(array), allow_pickle=False)
        write_manifest(folder, {"recording": packed, "arrays": sha256_of_file(path)})
    except OSError as error:
        raise ValueError(
            f"out: {folder} cannot be written ({error.strerror}); give another folder"
        ) from None
    return sum(path.stat().st_size for path in folder.iterdir())


def _with_answers(recording: Trace, source: Source) -> Trace:
    """Return a trace with all answers of a live source."""
    flips = {width: source.flipped_ties(width) for width in source.tie_widths}
    flipped = {width: flip for width, flip in flips.items() if flip is not None}
    if not recording.probes:
        return dataclasses.replace(recording, flipped=flipped)
    asked = {layer: list(probes) for layer, probes in recording.probes.items()}
    answer = source.probe_rounding(asked) or ProbeAnswer({})
    if answer.failed:
        problem = f"the rounding of the probes cannot be measured ({answer.failed})"
        notes = [*recording.notes, f"{problem}, so the trace has no probes"]
        return dataclasses.replace(recording, flipped=flipped, probes={}, notes=notes)
    probes = {
        layer: {
            title: dataclasses.replace(probe, rounding=dict(answer.rounding[layer][title]))
            for title, probe in of_layer.items()
        }
        for layer, of_layer in recording.probes.items()
    }
    return dataclasses.replace(recording, flipped=flipped, probes=probes)


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest of a trace, with its SHA-256."""
    manifest = {"format": FORMAT, "version": VERSION, **content}
    manifest["sha256"] = hash_of_manifest(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, allow_nan=False) + "\n", encoding="utf-8")


def pack(value: Any, arrays: dict[int, tuple[int, np.ndarray]]) -> Any:
    """Convert a value to JSON. Arrays are added to `arrays`, which maps the id of an array to
    (number, array).

    Types that JSON lacks become an object with one entry, for example {"tuple": […]}, {"float":
    "inf"} or {"Layer": {…}}.
    """
    if isinstance(value, np.ndarray):
        return {"array": arrays.setdefault(id(value), (len(arrays), value))[0]}
    if isinstance(value, np.generic):  # a setting or a rate of the user's may be a NumPy number
        return pack(value.item(), arrays)
    if isinstance(value, tuple):
        return {"tuple": [pack(item, arrays) for item in value]}
    if isinstance(value, list):
        return [pack(item, arrays) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: pack(getattr(value, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {type(value).__name__: fields}
    if not isinstance(value, Mapping):
        return value
    if not all(isinstance(key, str) for key in value):  # ids, or the numbers of updates
        pairs = [[pack(key, arrays), pack(item, arrays)] for key, item in value.items()]
        return {"pairs": pairs}
    packed = {key: pack(item, arrays) for key, item in value.items()}
    # One entry would look like a type that JSON lacks.
    return {"dict": packed} if len(packed) == 1 else packed


def _smallest(array: np.ndarray) -> np.ndarray:
    """Return the array in float32 if no number changes, or else the array itself."""
    if array.dtype != np.float64:
        return array
    small = array.astype(np.float32)
    return small if np.array_equal(small, array, equal_nan=True) else array


def check_version(path: Path, what: str, manifest: Mapping[str, Any], version: int) -> None:
    """Raise a ValueError if a stored trace has another version than is read."""
    got = manifest.get("version")
    if got != version:
        raise ValueError(
            f"{path}: the {what} has version {got}, but this package reads {version}; record it "
            "again"
        )


def load_recording(folder: Path) -> Trace:
    """Read a trace folder.

    Raises ValueError if a file is missing, damaged or of another version.
    """
    path, stored = folder / MANIFEST, folder / ARRAYS
    if not path.is_file():
        raise ValueError(
            f"{folder}: there is no {MANIFEST}; give the folder that `parity record --out` wrote"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        own = manifest.pop("sha256")
        if manifest.get("format") != FORMAT:
            raise ValueError("it is no trace")
    except MALFORMED as error:
        raise ValueError(
            f"{path}: the file is damaged, or is no trace ({first_line(error)}); record it again"
        ) from None
    check_version(path, "trace", manifest, VERSION)
    if own != hash_of_manifest(manifest):
        raise ValueError(f"{path}: the file has a wrong SHA-256; record it again")
    if "ranks" in manifest:
        folders = [folder / f"rank-{rank}" for rank in range(len(manifest["ranks"]))]
        recordings = [load_recording(rank_folder) for rank_folder in folders]
        if manifest["ranks"] != [sha256_of_file(rank_folder / MANIFEST) for rank_folder in folders]:
            raise ValueError(
                f"{folder}: one worker's folder comes from another run than {MANIFEST}; record it "
                "again"
            )
        return merge(recordings)
    if not stored.is_file():
        raise ValueError(
            f"{stored}: the file is missing; copy the whole folder, or record it again"
        )
    if sha256_of_file(stored) != manifest.get("arrays"):
        raise ValueError(
            f"{stored}: the SHA-256 is not the one in {MANIFEST}; copy or record it again"
        )
    try:
        _check_members(stored)
        with np.load(stored, allow_pickle=False) as file:
            trace: Trace = unpack(manifest["recording"], {name: file[name] for name in file.files})
            return trace
    except MALFORMED as error:
        cause = first_line(error)
        raise ValueError(
            f"{folder}: this version cannot read the trace ({cause}); record it again"
        ) from None


def _check_members(path: Path) -> None:
    """Raise ValueError if the arrays in a file would need more memory than the file has bytes."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError(
                f"{path.name}: the arrays are compressed, but `parity record` does not compress "
                "arrays"
            )
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise ValueError(f"{path.name}: the arrays are larger than the file")
        for member in members:
            with archive.open(member) as stream:
                np.lib.format.read_magic(stream)
                shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(
                    f"{path.name}: array {list(shape)} is larger than the stored "
                    f"{member.file_size} bytes"
                )


def unpack(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Convert the result of `pack` back.

    Control characters are escaped, because texts may be printed.
    """
    if isinstance(value, str):
        return "".join(
            character if character.isprintable() else repr(character)[1:-1] for character in value
        )
    if isinstance(value, list):
        return [unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        return {unpack(key, arrays): unpack(item, arrays) for key, item in value.items()}
    [(kind, content)] = value.items()
    if kind == "array":
        return arrays[str(content)]
    if kind == "float":
        return float(content)
    if kind == "pairs":
        return {unpack(key, arrays): unpack(item, arrays) for key, item in content}
    if kind == "tuple":
        return tuple(unpack(item, arrays) for item in content)
    fields = {unpack(key, arrays): unpack(item, arrays) for key, item in content.items()}
    return fields if kind == "dict" else _CLASSES[kind](**fields)


def hash_of_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest that has no entry "sha256" yet."""
    return sha256(json.dumps(manifest, sort_keys=True, allow_nan=False).encode())
