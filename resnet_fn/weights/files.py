"""These functions read and write weight files, and never run code that a file contains."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.checkpoint.tensor_file import Arrays, read_safetensors, write_safetensors
from resnet_fn.config.path_hints import near_path
from resnet_fn.config.reading import check_memory, read_regular
from resnet_fn.config.wording import first_few, first_line
from resnet_fn.runtime.disk import replace_file, writing
from resnet_fn.runtime.extras import import_extra
from resnet_fn.weights.net_in_file import Net, find_net
from resnet_fn.weights.torch_file import TorchFileError, Unread, is_torch_file, read_torch_file

ENDINGS = (".safetensors", ".ckpt", ".pth", ".pt")  # of files that are written
_ENDINGS_READ = (*ENDINGS, ".bin", ".pth.tar")
# The first bytes of files of other kinds, and what to do with them.
_OTHER_KINDS = {
    b"\x1f\x8b": "is compressed by gzip; unpack it with gunzip or tar xzf",
    b"\x89HDF": "is an HDF5 file, as Keras writes them; save the weights as safetensors",
}


class Contents(NamedTuple):
    """The arrays of the net in a weight file, under the net's names in its project."""

    arrays: Arrays
    notes: tuple[str, ...] = ()  # what was read, renamed and left out
    averaged: bool = False  # whether these are the moving average of the weights
    fault: str = ""  # why no net was chosen; `arrays` are then those of the whole file


def read_arrays(path: Path) -> Contents:
    """Read the arrays of the net that a weight file contains. bfloat16 becomes float32.

    The bytes of a file decide how it is read, because PyTorch's files have many endings.
    """
    path = Path(path)
    stored = _open(path)
    arrays_only = ((name, item) for name, item in stored.items() if not isinstance(item, Unread))
    net = find_net({name: tuple(item.shape) for name, item in arrays_only})
    try:
        arrays = {name: _values(stored[key]) for name, key in net.names.items()}
    except MemoryError:
        raise
    except Exception as error:  # damaged storages of PyTorch may raise almost any error
        raise _not_intact(path, "PyTorch", error) from None
    return Contents(arrays, (*net.notes, *_unread(stored, net)), net.averaged, net.fault)


def _open(path: Path) -> Mapping[str, Any]:
    """Return what a file contains by name: arrays, or for PyTorch `TorchTensor` and `Unread`."""
    if not path.exists():
        raise ValueError(
            f"{path} does not exist; {near_path(path, 'give a weight file or a checkpoint folder')}"
        )
    fix = f"give a {', '.join(_ENDINGS_READ)} file or a checkpoint folder"
    if not path.is_file():
        raise ValueError(f"{path} is no weight file; {fix}")
    with open(path, "rb") as file:
        start = file.read(512)
    if kind_and_fix := _other_kind(start):
        raise ValueError(f"{path} {kind_and_fix}")
    if is_torch_file(start):
        return _read_torch(path)
    if path.suffix == ".safetensors" or start[8:9] == b"{":
        return _read_safetensors(path)
    if path.suffix == ".ckpt":
        return _read_ckpt(path)
    if path.name.endswith(_ENDINGS_READ):
        raise ValueError(f"{path} is no intact weight file, or of an unknown kind; copy it again")
    raise ValueError(f"{path} is no weight file; {fix}")


def _unread(stored: Mapping[str, Any], net: Net) -> tuple[str, ...]:
    """Return a note about objects that are in the same dict as the net's arrays."""
    groups = {path.rpartition("/")[0] for path in net.names.values()}
    objects = (name for name, item in stored.items() if isinstance(item, Unread))
    names = [name for name in objects if name.rpartition("/")[0] in groups]
    return (f"not read, because they are no arrays: {first_few(names)}",) if names else ()


def _values(stored: Any) -> np.ndarray:
    return stored if isinstance(stored, np.ndarray) else stored.read()


def _not_intact(path: Path, kind: str, error: Exception) -> ValueError:
    return ValueError(f"{path} is no intact {kind} file ({first_line(error)}); copy the file again")


def _other_kind(start: bytes) -> str:
    """Return what is wrong with a file whose first bytes are not those of weights, and a fix, or ""
    for other files.
    """
    if not start.strip(b"\0"):
        return "is empty or begins with zeros; copy the file again"
    for magic, kind_and_fix in _OTHER_KINDS.items():
        if start.startswith(magic):
            return kind_and_fix
    if start[257:262] == b"ustar":
        return "is a tar archive; unpack it with tar xf, and give the weight file in it"
    # each weight format has such bytes, but text has none
    if set(start) & {*range(9), *range(14, 32)}:
        return ""
    if start.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the file itself; run git lfs pull"
    text = start.decode("utf-8", "replace").strip().partition("\n")[0]
    return f"is text ({text[:60]!r}), perhaps from a failed download; download the file itself"


def write_arrays(
    path: Path,
    arrays: Arrays,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a weight file, completely or not at all.

    Equal arrays in the same order give equal bytes. Only safetensors files contain the metadata.
    """
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(
            f"{path} cannot be written as weights; give a name that ends in {', '.join(ENDINGS)}"
        )
    with writing(str(path), "give another file"), replace_file(path) as file:
        if path.suffix == ".safetensors":
            write_safetensors(file, arrays, metadata)
        elif path.suffix == ".ckpt":
            _write_ckpt(file, arrays)
        else:
            _write_pth(file, arrays)


def _read_safetensors(path: Path) -> Arrays:
    try:
        return read_safetensors(read_regular(path))
    except ValueError as error:
        raise _not_intact(path, "safetensors", error) from None


def _read_ckpt(path: Path) -> Arrays:
    import mindspore

    check_memory(path.stat().st_size, path)
    try:
        read = mindspore.load_checkpoint(str(path))
    except (ValueError, RuntimeError, TypeError, OSError) as error:
        raise _not_intact(path, ".ckpt", error) from None
    return {
        name: parameter.numpy()
        for name, parameter in read.items()
        if isinstance(parameter, mindspore.Parameter)
    }


def _read_torch(path: Path) -> dict[str, Any]:
    try:
        stored = read_torch_file(path)
    except TorchFileError as error:
        raise ValueError(f"{path} {error}") from None
    if all(isinstance(item, Unread) for item in stored.values()):
        objects = f", but objects that could run code ({first_few(list(stored))})" if stored else ""
        raise ValueError(
            f"{path} contains no arrays by name{objects}; "
            "save net.state_dict() and give the new file"
        )
    return stored


def _write_ckpt(path: Path, arrays: Arrays) -> None:
    import mindspore

    records = [
        {"name": name, "data": mindspore.Tensor(np.array(array))} for name, array in arrays.items()
    ]
    mindspore.save_checkpoint(records, str(path))


def _write_pth(path: Path, arrays: Arrays) -> None:
    torch = import_extra("torch", f"writing {path.suffix} files")
    # with a path, torch.save would write the path's name into the file
    with open(path, "wb") as file:
        torch.save(
            {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, file
        )
