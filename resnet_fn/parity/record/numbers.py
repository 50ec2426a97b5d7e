"""Numbers in the attributes of layers, such as a counter of updates."""

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

_DEPTH = 2  # of objects and dicts in attributes
_FRAMEWORKS = ("builtins", "collections", "numpy", "torch", "mindspore")


class Place(NamedTuple):
    """Where a number is: in a dict, or in the attributes of a layer or of another object."""

    attributes: dict[Any, Any]
    name: Any

    def value(self) -> float:
        """Return the number."""
        number: float = self.attributes[self.name]
        return number

    def write(self, value: float) -> None:
        """Set the number."""
        self.attributes[self.name] = value


def numbers_of(
    layers: Iterable[tuple[str, Any]], of_framework: Collection[str]
) -> dict[str, Place]:
    """Return the places of numbers in the attributes of layers, by path.

    `of_framework` names the attributes that every layer has.
    """
    return {
        title: place
        for path, layer in layers
        for title, place in _places(vars(layer), path, of_framework, _DEPTH)
    }


def _places(
    attributes: dict[Any, Any], path: str, left_out: Collection[str], depth: int
) -> Iterator[tuple[str, Place]]:
    for name, value in attributes.items():
        title = f"{path}.{name}" if path else str(name)
        if name in left_out:
            continue
        if type(value) in (int, float):
            yield title, Place(attributes, name)
        elif depth and (inner := _attributes_of(value)):
            yield from _places(inner, title, (), depth - 1)


def _attributes_of(value: Any) -> dict[Any, Any]:
    """Return a dict, or the attributes of an object of the user's class that is no layer."""
    if type(value) is dict:
        return value
    of_user = type(value).__module__.partition(".")[0] not in _FRAMEWORKS
    is_layer = hasattr(value, "named_modules") or hasattr(value, "cells_and_names")
    return vars(value) if of_user and hasattr(value, "__dict__") and not is_layer else {}


@contextlib.contextmanager
def same_numbers(places: Iterable[Place]) -> Iterator[None]:
    """Restore numbers after a `with` block."""
    before = [(place, place.value()) for place in places]
    try:
        yield
    finally:
        for place, value in before:
            place.write(value)
