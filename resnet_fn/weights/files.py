"""Weight files as NumPy arrays by name: `.safetensors`, MindSpore's `.ckpt`, PyTorch's `.pth`.

No code from a file runs: `.pth` is read by `torch.load(weights_only=True)` only.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from resnet_fn.checkpoint.tensor_file import read_safetensors, write_safetensors
from resnet_fn.config.hints import first_line, near_path
from resnet_fn.runtime.disk import replace_file
from resnet_fn.runtime.extras import import_extra

Arrays = dict[str, np.ndarray]
ENDINGS = (".safetensors", ".ckpt", ".pth", ".pt")
# The keys of weights inside a .pth of PyTorch's and timm's scripts, torchvision's references; moving averages last.
_WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema", "model_ema")


def read_arrays(path: Path) -> Arrays:
    """Read every tensor of a weight file, under the file's names; bfloat16 as float32.

    Raises:
        ValueError: another ending, a damaged file, one with more than data, or the extra `[torch]` is missing.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: does not exist; {near_path(path, 'give a weight file or a checkpoint folder')}")
    if path.suffix not in ENDINGS or not path.is_file():
        raise ValueError(f"{path}: is no weight file; give {', '.join(ENDINGS)} or a checkpoint folder")
    if path.suffix != ".safetensors":
        return _read_ckpt(path) if path.suffix == ".ckpt" else _read_pth(path)
    try:
        return read_safetensors(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: is no intact safetensors file ({error}); copy it again") from None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a weight file, whole or not at all; equal arrays in one order give equal bytes.

    Raises:
        ValueError: the ending is not one of ENDINGS, or the file cannot be written there.
    """
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path}: cannot be written; end its name in {', '.join(ENDINGS)}")
    write = {".safetensors": write_safetensors, ".ckpt": _write_ckpt}.get(path.suffix, _write_pth)
    try:
        with replace_file(path) as file:
            write(file, arrays)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror or error}); give another file") from None


def _read_ckpt(path: Path) -> Arrays:
    import mindspore

    try:
        read = mindspore.load_checkpoint(str(path))
    except (ValueError, RuntimeError, TypeError, OSError) as error:
        raise ValueError(f"{path}: is no intact .ckpt file ({first_line(error)}); copy it again") from None
    return {name: parameter.asnumpy() for name, parameter in read.items() if isinstance(parameter, mindspore.Parameter)}


def _write_ckpt(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import mindspore

    records = [{"name": name, "data": mindspore.Tensor(np.array(array))} for name, array in arrays.items()]
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
        raise ValueError(f"{path}: is no intact PyTorch file ({first_line(error)}); copy it again") from None
    if isinstance(read, dict):
        read = next((read[key] for key in _WRAPPERS if isinstance(read.get(key), dict)), read)
    if not isinstance(read, dict) or not read or not all(torch.is_tensor(value) for value in read.values()):
        raise ValueError(f"{path}: holds no state dict; save net.state_dict() and give that")
    # DataParallel and DistributedDataParallel put `module.` before every name, torch.compile `_orig_mod.`.
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in read):
            read = {name.removeprefix(prefix): value for name, value in read.items()}
    return {key: (x.float() if x.dtype == torch.bfloat16 else x).detach().numpy() for key, x in read.items()}


def _write_pth(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    torch = import_extra("torch", f"writing {path.suffix} files")
    with open(path, "wb") as file:  # given a path, torch writes its name into the file
        torch.save({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, file)
