"""What a net returns, in either framework: tensors, arrays, numbers and texts by name, inside of
tuples, lists, dicts, dataclasses and other objects.

A leaf that is none of these is not read; `unread` names it.
"""

import copy
import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from resnet_fn.parity.trace.tree import NUMBER, TEXT, Arrays

# One step of a path: a key or index, and whether it is the name of an attribute. Compiled code
# walks along such a path, so it is plain data.
PathStep = tuple[Any, bool]
Path = tuple[PathStep, ...]

SINGLE = "logits"  # the name of a single output, and the first word of the name of each other one

_DEEPEST = 8  # objects may refer to each other in a circle


@dataclasses.dataclass(frozen=True)
class Unread:
    """A leaf that is neither an array, a number nor a text."""

    kind: str  # the name of its class


class OfClass(str):
    """The name of an attribute of a class of the user's, which may have settings beside results."""


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is a framework's tensor or a NumPy array."""
    if isinstance(leaf, Mapping):  # which may look up attributes among its keys
        return False
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def returned(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield (path, leaf) for what a net returns: arrays, numbers, texts, and `Unread` for others.

    None, classes, functions and constants of an Enum have no numbers, and are left out.
    """
    return _walk(value, 0)


def _walk(value: Any, depth: int) -> Iterator[tuple[Path, Any]]:
    if is_array(value) or isinstance(value, bool | int | float | complex | str):
        yield (), value
        return
    if _has_no_numbers(value):
        return
    parts = _parts_of(value) if depth < _DEEPEST else ()
    has_leaves = False
    for step, part in parts:
        for path, leaf in _walk(part, depth + 1):
            has_leaves = True
            yield (step, *path), leaf
    is_container = isinstance(value, Mapping | tuple | list)
    if not has_leaves and not is_container and not _has_attributes(value):
        kind = type(value).__name__
        yield (), Unread(kind)


def _has_no_numbers(value: Any) -> bool:
    if value is None or isinstance(value, enum.Enum | bytes) or callable(value):
        return True
    kind = type(value).__name__
    # a framework's type or device
    return kind.lower() in ("dtype", "device", "ellipsis")


def _parts_of(value: Any) -> Iterable[tuple[PathStep, Any]]:
    """Return the parts of a container or an object, each with the step that leads to it."""
    if isinstance(value, Mapping):
        return [((key, False), part) for key, part in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        parts: list[tuple[PathStep, Any]] = []
        for name in value._fields:
            part = getattr(value, name)
            step = (name, True)
            parts.append((step, part))
        return parts
    if isinstance(value, tuple | list):
        return [((index, False), part) for index, part in enumerate(value)]
    names = _attributes_of(value)
    public = [name for name in names if not name.startswith("_")]
    of_results = dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace)
    kind = str if of_results or hasattr(value, "__attrs_attrs__") else OfClass
    return [((kind(name), True), getattr(value, name, None)) for name in public or names]


def _has_attributes(value: Any) -> bool:
    """Return whether attributes are all that an object holds: not so for what is written in C."""
    return hasattr(value, "__dict__") or bool(_attributes_of(value))


def _attributes_of(value: Any) -> list[str]:
    """Return the names of an object's attributes in their order: fields, slots or a dict."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    slots: list[str] = []
    classes = type(value).__mro__
    for class_ in reversed(classes):
        own = class_.__dict__.get("__slots__", ())
        if isinstance(own, str):
            own = [own]
        slots.extend(own)
    known = []
    for name in slots:
        if hasattr(value, name) and not name.startswith("__"):
            known.append(name)
    attributes = getattr(value, "__dict__", {})
    return [*known, *attributes]


def named_outputs(value: Any, single: str = SINGLE) -> dict[str, Any]:
    """Return the leaves that can be read by name, such as "logits 0" or "logits hidden".

    Numbers and texts are arrays. A single leaf is named `single`.
    """
    named = {}
    for path, leaf in returned(value):
        if isinstance(leaf, Unread):
            continue
        name = _name_of(path, leaf, single)
        named[name] = leaf if is_array(leaf) else _constant(leaf)
    return named


def _name_of(path: Path, leaf: Any, single: str = SINGLE) -> str:
    keys = [key for key, _ in path]
    name = " ".join([single, *map(str, keys)])
    if isinstance(leaf, str):
        return name + TEXT
    if is_array(leaf):
        return name
    is_setting = any(isinstance(key, OfClass) for key in keys)
    return name + NUMBER if is_setting else name


def _constant(leaf: Any) -> np.ndarray:
    """Return a number as an array without axes, or a text as the numbers of its characters."""
    if isinstance(leaf, str):
        characters = [ord(character) for character in leaf]
        return np.array(characters, np.int32)
    return np.asarray(leaf)


def unread(value: Any) -> list[str]:
    """Return a text for each leaf that is not read, such as "logits boxes (generator)"."""
    texts = []
    for path, leaf in returned(value):
        if isinstance(leaf, Unread):
            name = _name_of(path, leaf)
            texts.append(f"{name} ({leaf.kind})")
    return texts


def tensor_paths(value: Any, tensor: type) -> dict[str, Path]:
    """Return the path of each leaf that is a framework's `tensor`, by the leaf's name."""
    paths = {}
    for path, leaf in returned(value):
        if not isinstance(leaf, tensor):
            continue
        paths[_name_of(path, leaf)] = plain(path)
    return paths


def plain(path: Path) -> Path:
    """Return a path for compiled code, which takes no subclass of str."""
    return tuple((str(key) if is_attribute else key, is_attribute) for key, is_attribute in path)


def with_leaves(like: Any, values: Arrays, tensor: Callable[[Any], Any]) -> Any:
    """Return a copy of a net's outputs (`like`), with numbers taken by name from `values`.

    Types stay the same, also those of containers and objects: a loss may read attributes.
    """

    def replaced(path: Path, leaf: Any) -> Any:
        name = _name_of(path, leaf)
        if name not in values or isinstance(leaf, str):
            return leaf
        array = values[name]
        if not is_array(leaf):
            return type(leaf)(array.item())
        if isinstance(leaf, np.ndarray | np.generic):
            return array.astype(leaf.dtype)
        if array.ndim > leaf.ndim:  # a complex number's parts are the last axis
            array = as_complex(array)
        return tensor(array).to(leaf.dtype)

    paths = {path for path, _ in returned(like)}
    return _rebuilt(like, replaced, paths, ())


def _rebuilt(
    value: Any, function: Callable[[Path, Any], Any], paths: Collection[Path], at: Path
) -> Any:
    """Return a copy of a value in which `function` has replaced each leaf whose path is known."""
    if at in paths:
        return function(at, value)
    if not any(path[: len(at)] == at for path in paths):
        return value

    parts = {}
    for step, part in _parts_of(value):
        parts[step] = _rebuilt(part, function, paths, (*at, step))
    items = parts.values()
    if isinstance(value, list):
        return list(items)
    if isinstance(value, tuple):
        is_named = hasattr(value, "_fields")
        return type(value)(*items) if is_named else tuple(items)
    result = copy.copy(value)
    for (key, is_attribute), part in parts.items():
        if is_attribute:
            object.__setattr__(result, key, part)
        else:
            result[key] = part
    return result


def as_real(array: np.ndarray) -> np.ndarray:
    """Return an array of complex numbers with a last axis of real and imaginary parts.

    Other arrays stay the same.
    """
    if array.dtype.kind != "c":
        return array
    return np.stack([array.real, array.imag], -1)


def as_complex(array: np.ndarray) -> np.ndarray:
    """Return the complex numbers whose parts are the last axis of an array (`as_real`)."""
    if array.dtype.kind == "c":
        return array
    parts = array.astype(np.float64 if array.dtype == np.float64 else np.float32)
    kind = np.complex128 if parts.dtype == np.float64 else np.complex64
    return np.ascontiguousarray(parts).view(kind)[..., 0]


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Return the shape of `as_real` of a framework's tensor."""
    shape = tuple(tensor.shape)
    return (*shape, 2) if "complex" in str(tensor.dtype).lower() else shape
