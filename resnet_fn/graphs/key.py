"""All that a compiled function is made of, read from the function itself: the constants and Parameters of its graph."""

import dataclasses
import functools
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.runtime.disk import sha256

# Packages whose code a graph may use: the sources of this one and MindSpore's version are in the key.
_KNOWN = ("resnet_fn", "mindspore")
# Attributes of a Cell, Primitive or `Vector` that differ from process to process; no graph holds them.
_NOTES = {
    *("_create_time", "_id", "_phase", "_compile_phase", "_compile_cache", "_phase_cache", "_jit_graph_name"),
    *("_compiled", "_init_flag", "_lazy_construct_sig", "_cell_init_args", "arguments_key", "_exist_objs"),
    *("_exist_names", "_is_check_and_refresh", "_memory", "_views", "_addresses"),
}
_PLAIN = (bool, int, float, complex, str, bytes, type(None), range, slice)
# How a Parameter is initialised, which no graph holds.
_INITIALISERS = {f"{name}_init" for name in ("weight", "bias", "gamma", "beta", "moving_mean", "moving_var")}


class NotCacheableError(Exception):
    """A graph holds something that cannot be read for its key; the text says what."""


@dataclasses.dataclass
class Ingredients:
    """What a function is made of: its Parameters by name, and all else as words, in the order of reading."""

    parameters: dict[str, Parameter] = dataclasses.field(default_factory=dict)
    words: list[str] = dataclasses.field(default_factory=list)

    def digest(self, more: Mapping[str, Any]) -> str:
        """The SHA-256 of the words and of `more` that a graph depends on."""
        lines = [*self.words, *(f"{name}={more[name]!r}" for name in sorted(more))]
        return sha256("\n".join(lines).encode())


def ingredients(function: Any, inputs: Iterable[Any]) -> Ingredients:
    """Read a function that is to be compiled: what it closes over, and what that holds.

    Numbers, texts, arrays and Tensors are read by value; Parameters by name, shape, dtype and whether they are trained;
    functions and classes by name, because their code is part of the key anyway; inputs by shape and dtype.

    Raises:
        NotCacheableError: code of another package, or two Parameters of one name.
    """
    parts = Ingredients()
    _read_namespaces(parts)
    _Reader(parts).read(function)
    parts.words.extend(map(_input_word, inputs))
    return parts


def _input_word(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"input {value.dtype} {value.shape}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_input_word, value))})"
    return f"input {value!r}"


def _read_namespaces(parts: Ingredients) -> None:
    """Globals and classes of this package, which code refers to by name and a notebook may have replaced."""
    for package in map(importlib.import_module, ("resnet_fn.models", "resnet_fn.update")):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)  # all of them: the key is the same whichever a command has loaded
    for name in sorted(sys.modules):
        ours = name.startswith(("resnet_fn.models", "resnet_fn.update"))
        if ours or name in ("mindspore.amp", "mindspore.nn", "mindspore.ops"):
            for place, value in sorted(vars(sys.modules[name]).items()):
                if not place.startswith("__"):
                    _read_global(parts, f"{name}.{place}", value, ours)


def _read_global(parts: Ingredients, place: str, value: Any, ours: bool) -> None:
    named = value if hasattr(value, "__qualname__") else type(value)
    module = str(named.__module__)
    package = module.partition(".")[0]
    if package not in (*_KNOWN, "numpy", *sys.stdlib_module_names):
        raise NotCacheableError(f"{place} is {module}.{named.__qualname__}, which is no part of this package")
    if ours:
        what = repr(value) if isinstance(value, _PLAIN) else f"{module}.{named.__qualname__}"
        parts.words.append(f"{place} {what}")
    if ours and isinstance(value, type) and package == "resnet_fn":
        for name, part in sorted(vars(value).items()):
            if isinstance(part, (types.FunctionType, *_PLAIN)) and not (name.startswith("__") and name != "__init__"):
                _read_global(parts, f"{place}.{name}", part, ours)


class _Reader:
    def __init__(self, parts: Ingredients) -> None:
        self._parts = parts
        self._seen: dict[int, tuple[int, Any]] = {}  # the objects too: an id is free again when its object has gone

    def _say(self, *words: Any) -> None:
        self._parts.words.append(" ".join(map(str, words)))

    def read(self, value: Any) -> None:
        if isinstance(value, _PLAIN):
            return self._say(type(value).__name__, repr(value))
        if id(value) in self._seen:
            return self._say("again", self._seen[id(value)][0])
        self._seen[id(value)] = len(self._seen), value
        if isinstance(value, Parameter):
            return self._read_parameter(value)
        if isinstance(value, Tensor):
            return self._say("Tensor", value.dtype, value.shape, _digest(value.asnumpy()))
        if isinstance(value, (np.ndarray, np.generic)):
            return self._say("array", value.dtype, value.shape, _digest(np.asarray(value)))
        if isinstance(value, (tuple, list, set, frozenset)):
            items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            return self._read_all(type(value).__name__, items)
        if isinstance(value, Mapping):
            return self._read_all("mapping", [part for item in value.items() for part in item])
        if isinstance(value, functools.partial):
            return self._read_all("partial", (value.func, value.args, value.keywords))
        if isinstance(value, types.MethodType):
            return self._read_all("method", (value.__func__, value.__self__))
        return self._read_code_or_object(value)

    def _read_all(self, kind: str, parts: Iterable[Any]) -> None:
        parts = list(parts)
        self._say(kind, len(parts))
        for part in parts:
            self.read(part)

    def _read_parameter(self, parameter: Parameter) -> None:
        name = parameter.name
        if name in self._parts.parameters:
            raise NotCacheableError(f"two Parameters are called {name}")
        self._parts.parameters[name] = parameter
        self._say("Parameter", name, parameter.dtype, parameter.shape, parameter.requires_grad)

    def _read_code_or_object(self, value: Any) -> None:
        named = value if hasattr(value, "__qualname__") else type(value)
        module = str(named.__module__)
        if module.partition(".")[0] not in (*_KNOWN, "builtins", "numpy", "types", "typing", "collections"):
            raise NotCacheableError(f"{module}.{named.__qualname__} is no part of this package")
        self._say(type(value).__name__, module, named.__qualname__)
        if isinstance(value, (type, types.BuiltinFunctionType)):
            return
        if module.startswith("mindspore._c_expression") or not hasattr(value, "__dict__"):
            # C++ objects (dtypes, enumerations) differ in their text only, which must not be an address.
            if " at 0x" in (text := repr(value)) or not module.startswith("mindspore._c_expression"):
                raise NotCacheableError(f"the contents of a {module}.{named.__qualname__} cannot be read")
            self._say(text)
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return self._read_all("closure", (*cells, value.__defaults__, value.__kwdefaults__))
        if isinstance(value, ops.Primitive):
            self._read_all("attributes", (value.attrs,))
        held = {name: part for name, part in getattr(value, "__dict__", {}).items() if name not in _NOTES}
        if isinstance(value, nn.Cell):
            # Attributes for hooks are made on first use, empty or None.
            held = {name: part for name, part in held.items() if name not in _INITIALISERS and _says(name, part)}
        self._read_all("attributes", (held,))


def _says(name: str, part: Any) -> bool:
    empty = part is None or (isinstance(part, (Mapping, tuple, list, set)) and not part)
    return not (name.startswith("_") and empty)


def _digest(array: np.ndarray) -> str:
    return sha256(np.ascontiguousarray(array).tobytes())
