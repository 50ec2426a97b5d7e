"""Numbers in the attributes of layers, such as a counter of updates."""

import contextlib
import math
import sys
from collections import UserDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.parity.trace.derived import moves_evenly

_DEPTH = 3  # of objects, dicts and lists in attributes
_LONGEST = 100  # lists and dicts with more items are data
_MOST = 1000  # items in the objects of one layer: each run looks at them
# Objects of these packages, such as a `Fraction`, have no attributes of the user's. Those of
# `SimpleNamespace`, `argparse.Namespace` and `make_dataclass` (in `types`) do.
_FOREIGN = {*sys.stdlib_module_names, "numpy", "torch", "mindspore"} - {"types", "argparse"}
# no subclasses, such as parameters
_ARRAYS = {("numpy", "ndarray"), ("torch", "Tensor"), ("mindspore", "Tensor")}


class Place(NamedTuple):
    """Where a number is: in a dict or list, or in the attributes of a layer or of another object.

    There is the number itself, or an array of one element.
    """

    holder: Any
    name: Any
    kind: Callable[[float], Any]  # the number's type
    array: Any = None

    def value(self) -> float:
        """Return the number."""
        return _number_in(self.holder[self.name] if self.array is None else self.array)

    @property
    def owner(self) -> Any:
        """The object that has the number."""
        return self.holder.owner if isinstance(self.holder, _Slots) else self.holder

    def is_in(self, other: "Place") -> bool:
        """Return whether two places are one: of objects that the copy of a net shares."""
        is_array = self.array is not None and self.array is other.array
        return is_array or self.owner is other.owner

    def accepts(self, value: float) -> bool:
        """Set another number, and return whether the number that is there has changed."""
        before = self.value()
        self.write(value)
        return self.value() != before

    def write(self, value: float) -> None:
        """Set the number, if it is another one. An array is written in place, because others may
        hold it, too. What rejects this, such as a read-only mapping, keeps its number.
        """
        content = self.array
        with contextlib.suppress(Exception):  # a list may have become shorter, too
            if content is None:
                content = self.kind(value)
            elif _number_in(content) != value:
                content[...] = value
            if not self._holds(content):
                self.holder[self.name] = content

    def _holds(self, content: Any) -> bool:
        with contextlib.suppress(LookupError, AttributeError):  # it was deleted
            present = self.holder[self.name]
            if self.array is not None:
                return present is content
            return type(present) is type(content) and present == content
        return False


class Noted:
    """The values of numbers in attributes: from before the updates, and after each of them."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._values: dict[str, list[float]] = {path: [] for path in places}
        self.restart(places)

    def restart(self, places: Mapping[str, Place]) -> None:
        """Forget the values, and note the present ones."""
        for values in self._values.values():
            values.clear()
        self.add(places)

    def add(self, places: Mapping[str, Place]) -> None:
        """Note the present values."""
        for path in places.keys() & self._values.keys():
            value = places[path].value()
            self._values[path].append(value)

    def moved(self, places: Mapping[str, Place]) -> dict[str, bool]:
        """Return the numbers that have moved, with whether they moved as a counter does. The number
        of an array must have: what a pass computes and stores, such as a loss, is no counter.
        """
        moved = {}
        aliases = aliases_of(places, self._values)
        for path, values in self._values.items():
            if path not in places or path in aliases or not values:
                continue
            first, last = values[0], values[-1]
            if np.array_equal(first, last, equal_nan=True):  # a constant may be infinite
                continue
            counts = float(last - first).is_integer() or moves_evenly(values)
            if counts or places[path].array is None:
                moved[path] = counts
        return moved


def numbers_of(
    layers: Iterable[tuple[str, Any]], of_framework: Collection[str]
) -> dict[str, Place]:
    """Return the places of numbers in the attributes of layers, by path.

    `of_framework` names the attributes that every layer has.
    """
    places: dict[str, Place] = {}
    for path, layer in layers:
        items = [item for item in vars(layer).items() if item[0] not in of_framework]
        of_layer = _places(items, vars(layer), path)
        places.update(of_layer)
    return places


def aliases_of(places: Mapping[str, Place], noted: Collection[str]) -> set[str]:
    """Return the paths of numbers that have an earlier path among `noted`, too."""
    known = set()
    aliases = set()
    for path, place in places.items():
        if path not in noted:
            continue
        key = (id(place.owner), place.name)
        if place.array is not None:
            key = (id(place.array), None)
        if key in known:
            aliases.add(path)
        known.add(key)
    return aliases


def _places(
    items: Iterable[tuple[Any, Any]], holder: Any, path: str
) -> Iterator[tuple[str, Place]]:
    """Yield what is near first, and an object's further paths last. An object has all its paths,
    because another may take its place in one of them, but none through itself.
    """
    around: tuple[Any, ...] = ()  # the objects that the items are in
    waiting, again = deque([(path, holder, items, around)]), deque[Any]()
    seen: dict[int, Any] = {}  # objects that are kept alive, so that no other gets the id
    left = _MOST
    while waiting or again:
        path, holder, items, around = (waiting or again).popleft()
        near = list(items)
        if around:
            near = near[:left]
            left -= len(near)
        for name, value in near:
            title = f"{path}.{name}" if path else str(name)
            if type(value) in (int, float) or isinstance(value, np.integer | np.floating):
                yield title, Place(holder, name, type(value))
            elif _is_number(value):
                yield title, Place(holder, name, float, value)
            elif len(around) < _DEPTH and not any(value is outer for outer in around):
                queue = again if id(value) in seen else waiting
                seen[id(value)] = value
                for inner, inner_items in _inside(value):
                    queue.append((title, inner, inner_items, (*around, value)))


def _is_number(value: Any) -> bool:
    """Return whether a value is an array of one number that needs no gradient."""
    kind = type(value)
    if (kind.__module__.partition(".")[0], kind.__name__) not in _ARRAYS:
        return False
    try:
        if math.prod(value.shape) != 1 or getattr(value, "requires_grad", False):
            return False
        return type(_number_in(value)) in (int, float)
    except Exception:  # there are no numbers on torch's device "meta"
        return False


def _number_in(value: Any) -> Any:
    """Return a number, or the only one of an array, as Python's int or float."""
    if not hasattr(value, "tolist"):
        return value
    number = value.tolist()  # `item` would be noted as a decision of the user's code
    while isinstance(number, list):
        (number,) = number
    return number


def _inside(value: Any) -> Iterator[tuple[Any, Iterable[tuple[Any, Any]]]]:
    """Yield (holder, its items by name) for a dict or list, and for the attributes of an object of
    the user's class that is no layer.
    """
    if isinstance(value, dict | UserDict) and len(value) <= _LONGEST:
        yield value, value.items()
    elif isinstance(value, list | deque) and len(value) <= _LONGEST:
        yield value, enumerate(value)
    of_user = type(value).__module__.partition(".")[0] not in _FOREIGN
    is_layer = hasattr(value, "named_modules") or hasattr(value, "cells_and_names")
    if not of_user or is_layer:
        return
    if hasattr(value, "__dict__"):
        yield vars(value), vars(value).items()
    slots = _Slots(value)
    yield slots, slots.items()


class _Slots:
    """The attributes in the `__slots__` of an object, by name."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __getitem__(self, name: str) -> Any:
        return getattr(self.owner, name)

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self.owner, name, value)  # also of a frozen dataclass

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield the names of those that are set, and their values."""
        for kind in type(self.owner).__mro__:
            if "__slots__" not in vars(kind):  # it is in C code, or has a dict
                continue
            for name, member in vars(kind).items():
                if isinstance(member, MemberDescriptorType) and hasattr(self.owner, name):
                    yield name, self[name]
