"""Give a torch module the constants of the port: buffers, and numbers in attributes."""

import contextlib
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.trace.tree import Arrays


class Constants:
    """The constants of a module that have other numbers in the port.

    Args:
        module: the reference's module.
        port: the port's constants, by the path of the reference's.
    """

    def __init__(self, module: torch.nn.Module, port: Arrays) -> None:
        self._module = module
        self._before: dict[str, Any] = {}
        self._port: Arrays = {}
        for path, array in port.items():
            if self._differs(path, array):
                self._port[path] = array

    def left(self) -> list[str]:
        """Return the paths of constants that still have the reference's numbers."""
        return [path for path in self._port if path not in self._before]

    def words(self, path: str) -> str:
        """Describe how a constant differs."""
        a = self._port[path]
        b = _numbers(self._before[path])
        farthest = np.argmax(np.abs(a - b))
        element = np.unravel_index(farthest, a.shape)
        text = f"{a[element]:.6g} for {b[element]:.6g}"
        if a.ndim:
            text += f" at {[int(index) for index in element]}"
        return text

    def take_over(self, path: str) -> None:
        """Give the module the port's constant."""
        value = self._value(path)
        if isinstance(value, torch.Tensor):
            value = value.detach().clone()
        self._before[path] = value
        self._set(path, self._port[path])

    def put_back(self, path: str) -> None:
        """Give the module its own constant again."""
        before = self._before.pop(path)
        self._set(path, _numbers(before))

    def put_all_back(self) -> None:
        """Give the module all its own constants again."""
        for path in [*self._before]:
            self.put_back(path)

    def _value(self, path: str) -> Any:
        layer, _, name = path.rpartition(".")
        owner = self._module.get_submodule(layer)
        if type(owner).__module__.startswith("torch."):
            return None
        for known in (vars(owner), owner._buffers, owner._parameters):
            if name in known:  # a property may compute something else each time
                return known[name]
        return None

    def _differs(self, path: str, array: np.ndarray) -> bool:
        value = None
        with contextlib.suppress(AttributeError):  # no such layer
            value = self._value(path)
        if not isinstance(value, torch.Tensor | int | float):
            return False
        own = _numbers(value)
        if own.shape != array.shape:
            return False
        return not np.allclose(own, array, 1e-6, 0)

    @torch.no_grad()
    def _set(self, path: str, array: np.ndarray) -> None:
        value = self._value(path)
        if isinstance(value, torch.Tensor):
            value.copy_(torch.from_numpy(np.array(array)))
            return
        layer, _, name = path.rpartition(".")
        owner = self._module.get_submodule(layer)
        number = array.item()
        setattr(owner, name, type(value)(number))


def _numbers(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        return value.detach().numpy()
    return np.array(value)
