"""Files of named arrays in the safetensors format, hashed while they are written.

Why not MindSpore's or the safetensors package's writer: a checkpoint must not take much longer than writing its
bytes, so every byte is touched once by the hash while the file system takes the others and the disk writes the file
before; neither of them gives the hashes, syncs the file, or runs beside a training step without copying everything
once more.

The format (https://github.com/huggingface/safetensors): 8 bytes with the header's length, little endian; the header,
JSON, {name: {"dtype", "shape", "data_offsets"}}, filled with spaces; the arrays' bytes without gaps.
"""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np

from resnet_fn.runtime.disk import sha256

_CODES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8"}
_CHUNK = 1 << 16  # elements that are hashed at a time


def write_tensor_files(folder: Path, files: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict[str, Any]]:
    """Write arrays to safetensors files, one after the other, and sync them all.

    Args:
        folder: where; none of the files may exist.
        files: contiguous arrays by name, by file name.

    Returns:
        For each file {"size": bytes, "header_sha256", "tensors": {name: {"shape", "dtype", "sha256"}}}: header and
        tensors together cover every byte of the file.

    Raises:
        ValueError: an array holds a value that is not finite, or its dtype has no code.
        OSError: a file cannot be written.
    """
    headers = {name: _header(arrays) for name, arrays in files.items()}
    # SHA-256 runs at about the speed of one core's write(): two threads, so that it ends before the disk does.
    with ThreadPoolExecutor(2) as hashers, contextlib.ExitStack() as opened:
        described = {name: hashers.map(_describe, arrays, arrays.values()) for name, arrays in files.items()}
        written = []
        for name, arrays in files.items():
            file = opened.enter_context(open(folder / name, "xb"))
            file.write(headers[name])
            for array in arrays.values():
                file.write(_bytes(array))
            _begin_write_back(file)
            written.append(file)
        for file in written:
            os.fsync(file.fileno())
        return {
            name: {
                "size": file.tell(),
                "header_sha256": sha256(headers[name]),
                "tensors": dict(zip(files[name], described[name], strict=True)),
            }
            for name, file in zip(files, written, strict=True)
        }


def _begin_write_back(file: IO[bytes]) -> None:
    """Have the disk begin with what was written, without waiting for it: it works while the next file is written."""
    file.flush()
    # "Not needed any more" makes Linux write the pages now. (sync_file_range, which says just this, is not in Python.)
    # Where it has no effect, fsync does all the work.
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_tensor_file(path: Path, expected: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Read a safetensors file and compare it with what `write_tensor_files` returned when it was written.

    Raises:
        ValueError: any byte differs; the text says which part.
        OSError: the file cannot be read.
    """
    data = memoryview(path.read_bytes())
    if len(data) != expected["size"]:
        raise ValueError(f"it has {len(data)} bytes instead of {expected['size']}")
    start = 8 + int.from_bytes(data[:8], "little")
    if sha256(data[:start]) != expected["header_sha256"]:
        raise ValueError("the sha256 of its header differs")
    header = json.loads(bytes(data[8:start]))
    if set(header) != set(expected["tensors"]):
        raise ValueError("it holds other tensors than its manifest says")
    arrays = {}
    for name, said in expected["tensors"].items():
        begin, end = header[name]["data_offsets"]
        part = data[start + begin : start + end]
        if sha256(part) != said["sha256"]:
            raise ValueError(f"the sha256 of {name} differs")
        arrays[name] = np.frombuffer(part, said["dtype"]).reshape(said["shape"])
    return arrays


def _header(arrays: Mapping[str, np.ndarray]) -> bytes:
    entries, offset = {}, 0
    for name, array in arrays.items():
        if str(array.dtype) not in _CODES:
            raise ValueError(f"{name}: dtype {array.dtype} cannot be stored; use one of {', '.join(_CODES)}")
        end = offset + array.nbytes
        entries[name] = {"dtype": _CODES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _describe(name: str, array: np.ndarray) -> dict[str, Any]:
    digest, total = hashlib.sha256(), 0.0
    flat = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat.size, _CHUNK):  # small enough to be in the cache for the sum after the hash
            part = flat[start : start + _CHUNK]
            digest.update(_bytes(part))
            if array.dtype.kind == "f":
                total += float(part.sum())
    # NaN and infinity show in the sum, at a fraction of the cost. So may an overflow: then every value is asked.
    if not math.isfinite(total) and not np.isfinite(array).all():
        raise ValueError(f"{name} holds a value that is not finite")
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest.hexdigest()}


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
