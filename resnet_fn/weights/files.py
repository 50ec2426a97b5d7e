"""Weight files as NumPy arrays by name: `.safetensors`, MindSpore's `.ckpt`, PyTorch's `.pth`.

Nothing here runs code from a file: safetensors is data, `.ckpt` is a protocol buffer, and `.pth` is read by
`torch.load(weights_only=True)` and in no other way.
"""

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.hints import near_path
from resnet_fn.runtime.extras import import_extra

Arrays = dict[str, np.ndarray]

ENDINGS = (".safetensors", ".ckpt", ".pth", ".pt")

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1"}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}

# Where training scripts keep the weights inside a .pth: PyTorch's and timm's, torchvision's references, EMA last.
_WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema", "model_ema")


def read_arrays(path: Path) -> Arrays:
    """Read every tensor of a weight file.

    Args:
        path: a file with one of ENDINGS.

    Returns:
        Arrays by the file's own names; bfloat16 as float32.

    Raises:
        ValueError: another ending, a damaged file, one that is more than data, or the extra `[torch]` is missing.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: does not exist; {near_path(path, 'give a weight file or a checkpoint folder')}")
    if path.suffix not in ENDINGS or not path.is_file():
        raise ValueError(f"{path}: is no weight file; give {', '.join(ENDINGS)} or a checkpoint folder")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    return _read_ckpt(path) if path.suffix == ".ckpt" else _read_pth(path)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a weight file, whole or not at all; equal arrays give equal bytes in `.safetensors`.

    Raises:
        ValueError: the ending is not one of ENDINGS.
    """
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path}: cannot be written; end its name in {', '.join(ENDINGS)}")
    temporary = path.with_name(f".{path.stem}.tmp-{os.getpid()}{path.suffix}")
    try:
        if path.suffix == ".safetensors":
            _write_safetensors(temporary, arrays)
        elif path.suffix == ".ckpt":
            _write_ckpt(temporary, arrays)
        else:
            torch = import_extra("torch", f"writing {path.suffix} files")
            torch.save({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_safetensors(path: Path) -> Arrays:
    data = path.read_bytes()
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        return {name: _tensor(data[start:], entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: is no intact safetensors file ({error})") from None


def _tensor(data: bytes, entry: dict[str, Any]) -> np.ndarray:
    start, end = entry["data_offsets"]
    if end > len(data):
        raise ValueError("it is cut short")
    if entry["dtype"] == "BF16":
        wide = np.frombuffer(data[start:end], "<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(entry["shape"])
    return np.frombuffer(data[start:end], _DTYPES[entry["dtype"]]).reshape(entry["shape"])


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    header, start = {}, 0
    parts = [np.ascontiguousarray(arrays[name]) for name in sorted(arrays)]
    for name, array in zip(sorted(arrays), parts, strict=True):
        end = start + array.nbytes
        shape = list(np.shape(arrays[name]))
        header[name] = {"dtype": _NAMES[array.dtype], "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in parts)]))


def _read_ckpt(path: Path) -> Arrays:
    import mindspore

    try:
        read = mindspore.load_checkpoint(str(path))
    except (ValueError, RuntimeError, TypeError, OSError) as error:
        raise ValueError(f"{path}: is no intact .ckpt file ({str(error).strip().splitlines()[0]})") from None
    return {name: parameter.asnumpy() for name, parameter in read.items() if isinstance(parameter, mindspore.Parameter)}


def _write_ckpt(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import mindspore

    records = [{"name": name, "data": mindspore.Tensor(np.array(arrays[name]))} for name in sorted(arrays)]
    mindspore.save_checkpoint(records, str(path))


def _read_pth(path: Path) -> Arrays:
    torch = import_extra("torch", f"reading {path.suffix} files")
    try:
        read = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path}: holds more than tensors (code could run if it were loaded), or is damaged; "
            "save net.state_dict() and give that"
        ) from None
    except (RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"{path}: is no intact PyTorch file ({str(error).splitlines()[0]})") from None
    if isinstance(read, dict):
        read = next((read[key] for key in _WRAPPERS if isinstance(read.get(key), dict)), read)
    if not isinstance(read, dict) or not read or not all(torch.is_tensor(value) for value in read.values()):
        raise ValueError(f"{path}: holds no state dict; save net.state_dict() and give that")
    # DataParallel and DistributedDataParallel put `module.` before every name, torch.compile `_orig_mod.`.
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in read):
            read = {name.removeprefix(prefix): value for name, value in read.items()}
    return {
        name: (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        for name, value in read.items()
    }
