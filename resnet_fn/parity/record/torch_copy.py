"""Copy a torch module together with the functions that it calls, such as hooks."""

import copy
import inspect
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial, partialmethod
from random import Random
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

# Objects of these packages have no functions of the user's in their attributes.
_FOREIGN = {*sys.stdlib_module_names, "torch", "numpy"}


def copied(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a module.

    Tensors that are computed from parameters are copied as plain tensors. A function that refers to
    a layer or a dict of the module, as a hook does that stores an output, refers to the copy's. What
    a method encloses, too, is shared, as its class is.
    """
    values = list(_values(module))
    by_functions = {id(held) for function in values for held in _held_by(function)}
    shared = {}
    if by_functions:  # most modules have none, and are copied often
        shared = {
            id(enclosed): enclosed for enclosed in _enclosed(module) if id(enclosed) in by_functions
        }
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    memo: dict[int, Any] = {
        id(tensor): tensor.detach().clone()
        for tensor in tensors
        # in float64, a mode widens a parameter first, so that it seems to be computed
        if not (isinstance(tensor, torch.nn.Parameter) or tensor.is_leaf)
    }
    # The copy shares the layers' random generators, so that each call draws other numbers
    # (`is_random`).
    kinds = (torch.Generator, np.random.Generator, np.random.RandomState, Random)
    memo |= {id(value): value for value in values if isinstance(value, kinds)}
    functions = [
        value
        for value in values
        if isinstance(value, FunctionType) and id(value) not in shared and _refers(value)
    ]
    memo |= {id(value): _unbound(value) for value in functions}
    memo |= shared
    result, memo = _copied_with_layers(module, memo, values)
    for function in functions:
        _bind(memo[id(function)], function, memo)
    _copy_gradient_hooks(module, result, memo)
    return result


def _copied_with_layers(
    module: torch.nn.Module, memo: dict[int, Any], values: Iterable[Any]
) -> tuple[torch.nn.Module, dict[int, Any]]:
    """Copy a module, also its layers whose class shares them between copies, with what moves.

    Returns the copy, and `memo` with all that was copied.
    """
    copies = dict(memo)
    result = copy.deepcopy(module, copies)
    layers = [value for value in values if isinstance(value, torch.nn.Module)]
    shared = []
    for layer in layers:
        if id(layer) in copies or not hasattr(layer, "__deepcopy__"):
            continue
        trial = dict(copies)
        if copy.deepcopy(layer, trial) is layer:
            shared.append(layer)
    if not shared:
        return result, copies
    again = memo | {id(layer): object.__new__(type(layer)) for layer in shared}
    for layer in shared:
        attributes = vars(again[id(layer)])
        _fill(attributes, vars(layer), again)
    return copy.deepcopy(module, again), again


def _copy_or_shared(value: Any, memo: dict[int, Any]) -> Any:
    """Return a copy. What cannot be copied, such as an open file or a lock, is shared; layers,
    dicts, lists, deques and tuples around it are copied, and other objects are not.
    """
    known = len(memo)
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        while len(memo) > known:  # objects that are copied in part
            memo.popitem()
    kind = type(value)
    key = id(value)
    memo[key] = value
    if isinstance(value, torch.nn.Module):
        memo[key] = object.__new__(kind)
        attributes = vars(memo[key])
        _fill(attributes, vars(value), memo)
    elif kind in (dict, OrderedDict):
        memo[key] = kind()
        _fill(memo[key], value, memo)
    elif kind in (list, deque):
        memo[key] = copy.copy(value)
        for index, item in enumerate(value):
            memo[key][index] = _copy_or_shared(item, memo)
    elif kind is tuple:
        parts = [_copy_or_shared(item, memo) for item in value]
        memo[key] = tuple(parts)
    return memo[key]


def _fill(result: dict[Any, Any], items: Mapping[Any, Any], memo: dict[int, Any]) -> None:
    for name, value in items.items():
        part = _copy_or_shared(value, memo)
        result[name] = part


def _enclosed(module: torch.nn.Module) -> Iterator[Any]:
    """Yield what the methods of the layers' classes enclose, at any depth, without layers and their
    arrays, and without what contains these.
    """
    owned = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    kinds = {kind for layer in module.modules() for kind in type(layer).__mro__}
    methods = [method for kind in kinds for method in _methods(kind)]
    for method in methods:
        for value in _held(method):
            inside = list(_values(value))
            if not any(isinstance(item, torch.nn.Module) or id(item) in owned for item in inside):
                yield from inside


def _held_by(value: Any) -> Iterator[Any]:
    """Yield what a function of the user's refers to, at any depth. Other values hold nothing."""
    if isinstance(value, FunctionType):
        for held in _held(value):
            yield from _values(held)


def _methods(kind: type) -> Iterator[FunctionType]:
    """Yield the functions of a user's class that run after a layer was built."""
    if kind.__module__.partition(".")[0] in _FOREIGN:
        return
    for name, value in vars(kind).items():
        if name in ("__init__", "__new__"):
            continue
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, classmethod | staticmethod):
            value = value.__func__
        elif isinstance(value, cached_property | partialmethod):
            value = value.func
        if not isinstance(value, FunctionType):  # of `functools.cache`, for example
            value = inspect.getattr_static(value, "__wrapped__", None)
        if isinstance(value, FunctionType):
            yield value


def _values(root: Any) -> Iterator[Any]:
    """Yield a value and what its attributes hold, at any depth, as of a module and its layers."""
    seen: dict[int, Any] = {}  # keeps what is made on the way, such as a method, alive
    waiting: list[Any] = [root]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        waiting += _inside(value)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | deque):
        return value
    if isinstance(value, MethodType):
        return value.__self__, value.__func__
    if isinstance(value, partial):
        return value.func, *value.args, *value.keywords.values()
    if isinstance(value, FunctionType):
        return _held(value)
    if isinstance(value, torch.Tensor):
        return (value._backward_hooks or {}).values()
    package = type(value).__module__.partition(".")[0]
    if isinstance(value, type | ModuleType) or not hasattr(value, "__dict__"):
        return ()
    if package in _FOREIGN and not isinstance(value, torch.nn.Module):
        return ()
    return vars(value).values()


def _held(function: FunctionType) -> list[Any]:
    """Return what a function refers to beside its globals."""
    if function.__module__.partition(".")[0] in _FOREIGN:
        return []
    cells = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _refers(function: FunctionType, seen: frozenset[int] = frozenset()) -> bool:
    """Return whether a function refers to what a copy must have of its own.

    `seen` has the ids of functions that are known not to.
    """
    seen |= {id(function)}

    def changes(value: Any) -> bool:
        if isinstance(value, FunctionType):
            return id(value) not in seen and _refers(value, seen)
        if isinstance(value, tuple):
            return any(map(changes, value))
        if isinstance(value, list | dict | set | deque | MethodType | partial):
            return True
        return hasattr(value, "__dict__") and not isinstance(value, type | ModuleType)

    return any(map(changes, _held(function)))


def _unbound(function: FunctionType) -> FunctionType:
    """Return a copy of a function with empty cells."""
    cells = tuple(CellType() for _ in function.__closure__ or ())
    code, names = function.__code__, function.__globals__
    result = FunctionType(code, names, function.__name__, None, cells)
    result.__dict__.update(function.__dict__)
    result.__qualname__, result.__module__ = function.__qualname__, function.__module__
    return result


def _bind(result: FunctionType, function: FunctionType, memo: dict[int, Any]) -> None:
    """Let a copied function refer to copies of what the function refers to."""
    copy_of = partial(_copy_or_shared, memo=memo)
    pairs = zip(result.__closure__ or (), function.__closure__ or (), strict=True)
    for cell, original in pairs:
        if not _is_empty(original):
            cell.cell_contents = copy_of(original.cell_contents)
    if function.__defaults__:
        result.__defaults__ = tuple(map(copy_of, function.__defaults__))
    if function.__kwdefaults__:
        named = function.__kwdefaults__.items()
        result.__kwdefaults__ = {name: copy_of(value) for name, value in named}


def _copy_gradient_hooks(
    module: torch.nn.Module, result: torch.nn.Module, memo: dict[int, Any]
) -> None:
    """Register the hooks of parameters, which copies of parameters lack."""
    for parameter, other in zip(module.parameters(), result.parameters(), strict=True):
        for hook in (parameter._backward_hooks or {}).values():
            if other.requires_grad:
                other.register_hook(copy.deepcopy(hook, memo))
