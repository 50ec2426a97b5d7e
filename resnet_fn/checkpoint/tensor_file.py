"""These functions write and read safetensors files (https://github.com/huggingface/safetensors).

A file begins with 8 bytes, the length of the header (little endian). The header is JSON, padded
with spaces: {name: {"dtype", "shape", "data_offsets"}}. The bytes of the arrays follow without
gaps.

The safetensors package only reads files here. The package's writer sorts arrays, and does not sync
or hash them. To save a ResNet-50 with momentum, the package's writer and a separate hash pass take
1.5 times as long as this module.
"""

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.reading import read_regular
from resnet_fn.runtime.disk import sha256

Arrays = Mapping[str, np.ndarray]  # by name
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
_CODES = {name: code for code, name in _DTYPES.items()}
_CHUNK = 1 << 16  # number of elements that are hashed at a time


def write_safetensors(
    path: Path, arrays: Arrays, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file that keeps the order of `arrays` and contains `metadata` in the
    header.
    """
    with open(path, "wb") as file:
        file.write(_header(arrays, metadata))
        file.writelines(map(_bytes, arrays.values()))


def read_safetensors(data: bytes) -> Arrays:
    """Return the arrays of a safetensors file in the order of the file. bfloat16 becomes
    float32.
    """
    from safetensors import SafetensorError, deserialize  # installed with MindSpore

    try:
        entries = dict(deserialize(data))
    except SafetensorError as error:
        raise ValueError(str(error).removeprefix("Error while deserializing: ")) from None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    arrays = {}
    for name in (name for name in header if name != "__metadata__"):
        entry = entries[name]
        if entry["dtype"] == "BF16":
            flat = float32_of_bfloat16(np.frombuffer(entry["data"], np.uint16))
        elif entry["dtype"] in _DTYPES:
            flat = np.frombuffer(entry["data"], _DTYPES[entry["dtype"]])
        else:
            raise ValueError(
                f"{name}: dtype {entry['dtype']} is unknown; known dtypes are "
                f"{', '.join(_DTYPES)}, BF16"
            )
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


def float32_of_bfloat16(halves: np.ndarray) -> np.ndarray:
    """Return bfloat16 values, given as their bits in uint16, as float32."""
    # A bfloat16 is the upper half of a float32.
    return (halves.astype(np.uint32) << 16).view(np.float32)


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata in the header of a safetensors file: texts by name, {} if there are none.

    No array is read. Raises ValueError if `path` is no intact safetensors file.
    """
    from safetensors import SafetensorError, safe_open  # installed with MindSpore

    try:
        with safe_open(path, "numpy") as file:
            return file.metadata() or {}
    except SafetensorError:
        raise ValueError(f"{path} has no intact safetensors header; copy the file again") from None


def write_tensor_files(
    folder: Path, files: Mapping[str, Arrays], infinite: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Write and sync new safetensors files, and return sizes and hashes.

    Raise ValueError if a value is NaN, or is infinite in an array that is not named in `infinite`.
    """
    headers = {name: _header(arrays) for name, arrays in files.items()}
    # Two threads hash, so that hashing ends before the disk does. One thread is only about as fast
    # as write().
    with ThreadPoolExecutor(2) as hashers:
        described = {
            name: hashers.map(partial(_describe, infinite), arrays, arrays.values())
            for name, arrays in files.items()
        }
        for name, arrays in files.items():
            with open(folder / name, "xb") as file:
                file.write(headers[name])
                for array in arrays.values():
                    file.write(_bytes(array))
                file.flush()
                os.fsync(file.fileno())
        return {
            name: {
                "size": (folder / name).stat().st_size,
                "header_sha256": sha256(headers[name]),
                "tensors": dict(zip(arrays, described[name], strict=True)),
            }
            for name, arrays in files.items()
        }


def read_tensor_file(path: Path, expected: Mapping[str, Any]) -> Arrays:
    """Read a safetensors file and compare it with `expected`, an entry that `write_tensor_files`
    returned.
    """
    data = read_regular(path, at_most=expected["size"])
    if len(data) != expected["size"]:
        raise ValueError(f"the file has {len(data)} bytes instead of {expected['size']}")
    length = 8 + int.from_bytes(data[:8], "little")
    if sha256(data[:length]) != expected["header_sha256"]:
        raise ValueError("the sha256 of the header is wrong")
    arrays = read_safetensors(data)
    for name, entry in expected["tensors"].items():
        if sha256(arrays[name].reshape(-1)) != entry["sha256"]:
            raise ValueError(f"the sha256 of {name} is wrong")
    return arrays


def check_dtype(name: str, dtype: object) -> None:
    """Raise ValueError if a safetensors file of this module cannot store arrays of `dtype`."""
    if str(dtype) not in _CODES:
        raise ValueError(f"{name}: dtype {dtype} cannot be stored; use one of {', '.join(_CODES)}")


def bad_values(array: np.ndarray, may_be_infinite: bool = False) -> np.ndarray:
    """Return an array of bools that marks NaN, and infinity unless it is allowed."""
    return np.isnan(array) if may_be_infinite else ~np.isfinite(array)


def _header(arrays: Arrays, metadata: Mapping[str, str] | None = None) -> bytes:
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        check_dtype(name, array.dtype)
        end = offset + array.nbytes
        entries[name] = {
            "dtype": _CODES[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _describe(infinite: Collection[str], name: str, array: np.ndarray) -> dict[str, Any]:
    digest = hashlib.sha256()
    flat = array.reshape(-1)
    # each chunk is still in the cache when `isfinite` reads it
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        digest.update(_bytes(part))
        if array.dtype.kind == "f" and bad_values(part, name in infinite).any():
            raise ValueError(f"{name} contains NaN or infinity; lower the learning rate")
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest.hexdigest()}
