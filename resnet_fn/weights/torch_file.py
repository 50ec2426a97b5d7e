"""`read_torch_file` reads files of `torch.save` without PyTorch, and never runs code of a file.

A file since PyTorch 1.6 is a zip archive: `…/data.pkl` is a pickle of all objects, and `…/data/KEY`
has the bytes of a storage, which one or more tensors share. In older files, several pickles precede
the storages. A pickle names functions and classes that build its objects, and Python's unpickler
calls them. Here each name, except those that build tensors and containers, stands for the class
`Unread`, which does nothing. So the settings and other objects that training scripts save beside
the weights do no harm, and need no package.
"""

import functools
import io
import math
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from resnet_fn.checkpoint.tensor_file import float32_of_bfloat16
from resnet_fn.config.reading import check_memory
from resnet_fn.config.wording import first_few, first_line

_ZIP = b"PK\x03\x04"
_MAGIC = 0x1950A86A20F9469CFC6C.to_bytes(10, "little")  # at the start of older files
# Types of storages, and their elements in the file.
_TYPES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "BFloat16Storage": "u2",  # a bfloat16 is the upper half of a float32
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
# Most elements of a tensor that repeats the elements of its storage, as `expand` makes it.
_EXPANDED = 10_000_000
# Entries of projects that save the average of the weights as "state_dict", and the entry of the
# weights: MMEngine's EMAHook, and Lightning's WeightAveraging.
_NAMES_OF_WEIGHTS = {"message_hub": "ema_state_dict", "averaging_state": "current_model_state"}
_PARTS_OF_MODULES = ("_parameters", "_buffers", "_modules")


class TorchFileError(ValueError):
    """Raised if a file cannot be read. The message, such as "is compressed", follows its name."""


class _Storage(NamedTuple):
    kind: str  # a key of _TYPES
    key: str  # its name in the file


class TorchTensor(NamedTuple):
    """A tensor in a file. Its values are read by `read`."""

    storage: _Storage
    offset: int  # index of the first element in the storage
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    bytes_of: Callable[[_Storage], bytes]

    def read(self) -> np.ndarray:
        """Return a copy of the values. bfloat16 becomes float32.

        Raises any error if the file is damaged.
        """
        flat = np.frombuffer(self.bytes_of(self.storage), _TYPES[self.storage.kind])
        if 0 in self.shape:
            return np.zeros(self.shape, flat.dtype)
        last = sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        if min(self.offset, *self.shape, *self.strides, 0) < 0 or self.offset + last >= flat.size:
            raise ValueError(f"a tensor of shape {self.shape} lies outside of its storage")
        if math.prod(self.shape) > max(flat.size, _EXPANDED):
            raise ValueError(f"a tensor of shape {self.shape} repeats {flat.size:,} numbers")
        strides = [step * flat.itemsize for step in self.strides]
        array = as_strided(flat[self.offset :], self.shape, strides)
        if self.storage.kind == "BFloat16Storage":
            return float32_of_bfloat16(array)
        return np.array(array, order="C")


class Unread:
    """Stands for an object that is not built, whatever the file calls to build it."""

    __slots__ = ("state",)
    state: dict[object, Any]

    def __new__(cls, *_: object, **__: object) -> "Unread":
        """Accept any arguments, because a file passes those of the object's class."""
        made = super().__new__(cls)
        made.state = {}
        return made

    def __call__(self, *_: object, **__: object) -> "Unread":
        """Do nothing where the object is a function that the file calls."""
        return Unread()

    def __setitem__(self, key: object, value: object) -> None:
        """Keep an item, which may be a tensor, of an object that is a kind of dict."""
        self.state[key] = value

    def __setstate__(self, state: object) -> None:
        """Keep the object's attributes, in which tensors may be."""
        if isinstance(state, tuple) and state:  # attributes, and those in __slots__
            state = state[0]
        if isinstance(state, dict):
            self.state.update(state)

    def append(self, _: object) -> None:
        """Leave out an item of an object that is a kind of list."""

    def children(self) -> dict[object, Any]:
        """Return what may contain tensors: of a module, its parameters, buffers and modules."""
        parts = [self.state.get(part) for part in _PARTS_OF_MODULES]
        if not all(isinstance(part, dict) for part in parts):
            return self.state
        return {name: child for part in parts if part for name, child in part.items()}


class _Unpickler(pickle._Unpickler):
    """Builds containers, numbers, texts and `TorchTensor`. All else becomes `Unread`.

    It is the unpickler in Python, because that in C allocates as many places as a file claims.
    """

    def __init__(self, file: BinaryIO, bytes_of: Callable[[_Storage], bytes]) -> None:
        super().__init__(file, encoding="latin1")
        self.bytes_of = bytes_of
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a function or class. Nothing is imported."""
        if module.startswith("torch") and name in _TYPES:
            return name
        known = {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor": self.tensor,
            "torch._utils._rebuild_tensor_v2": self.tensor,
            "torch._utils._rebuild_parameter": self.first,
            "torch._utils._rebuild_parameter_with_state": self.first,
            "torch._tensor._rebuild_from_type_v2": self.of_subclass,
        }
        return known.get(f"{module}.{name}", Unread)

    def persistent_load(self, pid: Any) -> Any:
        """Return the storage that ("storage", type, key, device, number of elements) describes."""
        _, kind, key, _, _, *view = pid
        # A type that is not in _TYPES, or a part of a storage (before PyTorch 0.4).
        if not isinstance(kind, str) or any(view):
            return Unread()
        return self.storages.setdefault(key, _Storage(kind, key))

    def tensor(self, storage: Any, offset: int, shape: Any, strides: Any, *_: object) -> Any:
        """Return a tensor, or `Unread` if the type of its elements is not in `_TYPES`."""
        if not isinstance(storage, _Storage):
            return Unread()
        return TorchTensor(storage, offset, tuple(shape), tuple(strides), self.bytes_of)

    def first(self, data: object, *_: object) -> object:
        """Return the tensor of a parameter."""
        return data

    def of_subclass(self, build: Any, _: object, arguments: Any, *__: object) -> object:
        """Return the tensor that a tensor of a subclass holds."""
        return build(*arguments)


def is_torch_file(start: bytes) -> bool:
    """Return whether a file that begins with these 32 bytes is a zip archive or of PyTorch."""
    return start.startswith(_ZIP) or _MAGIC in start[:32]


def read_torch_file(path: Path) -> dict[str, Any]:
    """Return the tensors of a file by name.

    A name has the keys of the enclosing dicts, as in "state_dict/module.conv1.weight". A net that
    was saved whole is read like its state dict. The values are `TorchTensor`, or `Unread` for
    objects that are not built.

    Raises:
        TorchFileError: If the file is damaged, compressed, or of another kind.
    """
    try:
        return dict(_tensors(_with_named_average(_read(path)), "", set()))
    except (TorchFileError, MemoryError):
        raise
    except Exception as error:  # a damaged file may raise almost any error
        raise TorchFileError(
            f"is no intact PyTorch file ({first_line(error)}); copy the file again"
        ) from None


def read_torch_settings(path: Path) -> dict[str, Any]:
    """Return what a training script saved beside the tensors.

    "arch" is the net's name, and "args" are the script's settings, as the scripts of PyTorch's
    examples, torchvision and timm save them. Raises TorchFileError if the file is damaged,
    compressed, or of another kind.
    """
    contents = _read(path)
    saved = contents if isinstance(contents, dict) else {}
    args = saved.get("args")
    settings = args.state if isinstance(args, Unread) else args if isinstance(args, dict) else {}
    plain = str | int | float | list | tuple | dict
    return {
        "arch": saved["arch"] if isinstance(saved.get("arch"), str) else "",
        "args": {str(name): value for name, value in settings.items() if isinstance(value, plain)},
    }


def _read(path: Path) -> Any:
    """Return the object that a file contains."""
    with open(path, "rb") as file:
        is_zip = file.read(len(_ZIP)) == _ZIP
    return _read_zip(path) if is_zip else _read_legacy(path)


def _read_zip(path: Path) -> Any:
    archive = zipfile.ZipFile(path)  # open as long as a tensor needs it
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    pickled = next((name for name in names if name.endswith("/data.pkl")), "")
    if not pickled:
        raise TorchFileError(
            f"is a zip archive of {first_few(names)}; unpack it, and give the weight file in it"
        )
    root = pickled.removesuffix("data.pkl")
    needed = [item for item in entries if item.filename.startswith((f"{root}data", f"{root}byte"))]
    if any(entry.compress_type for entry in needed):  # PyTorch does not compress
        size = sum(entry.file_size for entry in needed)
        raise TorchFileError(
            f"is compressed and would unpack to {size:,} bytes; write it again with torch.save"
        )
    if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
        raise TorchFileError("has big-endian numbers; save it again on another machine")

    @functools.lru_cache(1)  # tensors that share a storage mostly follow each other
    def bytes_of(storage: _Storage) -> bytes:
        return _read_entry(archive, f"{root}data/{storage.key}")

    return _Unpickler(io.BytesIO(_read_entry(archive, pickled)), bytes_of).load()


def _read_entry(archive: zipfile.ZipFile, name: str) -> bytes:
    check_memory(archive.getinfo(name).file_size, name)
    return archive.read(name)  # compares the CRC-32, too


def _read_legacy(path: Path) -> Any:
    extents: dict[str, tuple[int, int]] = {}  # of each storage: where it begins, number of bytes

    @functools.lru_cache(1)
    def bytes_of(storage: _Storage) -> bytes:
        start, size = extents[storage.key]
        check_memory(size, path)
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(size)

    with open(path, "rb") as file:
        for _ in ("magic number", "version", "sizes of C's types"):
            _Unpickler(file, bytes_of).load()
        unpickler = _Unpickler(file, bytes_of)
        contents = unpickler.load()
        for key in _Unpickler(file, bytes_of).load():
            count = int.from_bytes(file.read(8), "little")  # number of elements
            size = count * np.dtype(_TYPES[unpickler.storages[key].kind]).itemsize
            extents[key] = (file.tell(), size)
            file.seek(size, io.SEEK_CUR)
        if file.tell() > os.fstat(file.fileno()).st_size:
            raise ValueError("it ends too early")
    return contents


def _with_named_average(contents: Any) -> Any:
    """Return the contents of a file, in which names say what is an average.

    Some projects save the average as "state_dict", and the weights under another name.
    """
    if not isinstance(contents, dict):
        return contents
    for mark, name in _NAMES_OF_WEIGHTS.items():
        if {mark, name, "state_dict"} <= contents.keys():
            others = {key: value for key, value in contents.items() if key != mark}
            average = contents["state_dict"]
            weights = others.pop(name)
            return {**others, "state_dict": weights, "state_dict_ema": average}
    return contents


def _tensors(parent: Any, prefix: str, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and tensors below `parent`. `seen` has what identifies the parents before.

    What has several names, or contains itself, is read under its first name. So are several dicts
    of the same tensors, which `state_dict` makes if it is called twice.
    """
    is_object = isinstance(parent, Unread)
    children = parent.children() if is_object else parent if isinstance(parent, dict) else {}
    are_tensors = all(isinstance(child, TorchTensor) for child in children.values())
    key = tuple(children.items()) if are_tensors and not is_object else id(parent)
    if key in seen:
        return
    seen.add(key)
    for name, child in children.items():
        if isinstance(child, TorchTensor) or (isinstance(child, Unread) and not is_object):
            yield f"{prefix}{name}", child
        if isinstance(child, dict | Unread):
            yield from _tensors(child, f"{prefix}{name}{'.' if is_object else '/'}", seen)
