"""These functions read and write weight files, and never run code that a file contains."""

import contextlib
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from resnet_fn.checkpoint.tensor_file import read_safetensors, write_safetensors
from resnet_fn.config.hints import first_line, near_path
from resnet_fn.runtime.disk import replace_file
from resnet_fn.runtime.extras import import_extra

Arrays = dict[str, np.ndarray]
ENDINGS = (".safetensors", ".ckpt", ".pth", ".pt")
# Keys of the weights in .pth files that PyTorch, timm and torchvision scripts write. Moving averages come last.
_WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema", "model_ema")


def read_arrays(path: Path) -> Arrays:
    """Read the arrays of a weight file under the names in the file. bfloat16 becomes float32."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path} does not exist; {near_path(path, 'give a weight file or a checkpoint folder')}")
    if path.suffix not in ENDINGS or not path.is_file():
        raise ValueError(f"{path} is no weight file; give a {', '.join(ENDINGS)} file or a checkpoint folder")
    if kind_and_fix := _other_kind(path):
        raise ValueError(f"{path} {kind_and_fix}")
    if path.suffix != ".safetensors":
        return _read_ckpt(path) if path.suffix == ".ckpt" else _read_pth(path)
    try:
        return read_safetensors(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no intact safetensors file ({error}); copy the file again") from None


def _other_kind(path: Path) -> str:
    """Return what is wrong with a file whose first bytes are not those of weights, and a fix, or "" for other files."""
    with open(path, "rb") as file:
        start = file.read(512)
    if not start.strip(b"\0"):
        return "is empty or begins with zeros; copy the file again"
    if set(start) & {*range(9), *range(14, 32)}:  # each weight format has such bytes, but text has none
        return ""
    if start.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the file itself; run git lfs pull"
    text = start.decode("utf-8", "replace").strip().partition("\n")[0]
    return f"is text ({text[:60]!r}), perhaps from a failed download; download the file itself"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a weight file, completely or not at all. Equal arrays in the same order give equal bytes."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path} cannot be written as weights; give a name that ends in {', '.join(ENDINGS)}")
    write = {".safetensors": write_safetensors, ".ckpt": _write_ckpt}.get(path.suffix, _write_pth)
    try:
        with replace_file(path) as file:
            write(file, arrays)
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror or error}); give another file") from None


def _read_ckpt(path: Path) -> Arrays:
    import mindspore

    try:
        read = mindspore.load_checkpoint(str(path))
    except (ValueError, RuntimeError, TypeError, OSError) as error:
        raise ValueError(f"{path} is no intact .ckpt file ({first_line(error)}); copy the file again") from None
    return {name: parameter.numpy() for name, parameter in read.items() if isinstance(parameter, mindspore.Parameter)}


def _write_ckpt(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import mindspore

    records = [{"name": name, "data": mindspore.Tensor(np.array(array))} for name, array in arrays.items()]
    mindspore.save_checkpoint(records, str(path))


def _read_pth(path: Path) -> Arrays:
    torch = import_extra("torch", f"reading {path.suffix} files")
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 10):
        raise ValueError(
            f"{path}: PyTorch {torch.__version__} is too old to read {path.suffix} files safely, because code in "
            "them could run; run pip install 'torch>=2.10', or convert a file that you trust to .safetensors"
        )
    if zipfile.is_zipfile(path):
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > path.stat().st_size:  # PyTorch does not compress
                raise ValueError(f"{path} is compressed and would unpack to {size:,} bytes; save it with torch.save")
    try:
        read = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        fix = "save only net.state_dict() and give the new file"
        raise ValueError(f"{path} is damaged, or contains objects that could run code; {fix}") from None
    except Exception as error:  # torch.load may raise almost any error for other files
        raise ValueError(f"{path} is no intact PyTorch file ({first_line(error)}); copy the file again") from None
    if isinstance(read, dict):
        read = next((read[key] for key in _WRAPPERS if isinstance(read.get(key), dict)), read)
    if not isinstance(read, dict) or not read or not all(torch.is_tensor(value) for value in read.values()):
        raise ValueError(f"{path} contains no state dict; save net.state_dict() and give the new file")
    # DataParallel and DistributedDataParallel put `module.` before every name, and torch.compile puts `_orig_mod.`.
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in read):
            read = {name.removeprefix(prefix): value for name, value in read.items()}
    return {key: (x.float() if x.dtype == torch.bfloat16 else x).detach().numpy() for key, x in read.items()}


def _write_pth(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    torch = import_extra("torch", f"writing {path.suffix} files")
    with open(path, "wb") as file:  # with a path, torch.save would write the path's name into the file
        torch.save({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, file)
