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
        self._port = {path: array for path, array in port.items() if self._differs(path, array)}

    def left(self) -> list[str]:
        """Return the paths of constants that still have the reference's numbers."""
        return [path for path in self._port if path not in self._before]

    def words(self, path: str) -> str:
        """Describe how a constant differs."""
        a, b = self._port[path], _numbers(self._before[path])
        place = np.unravel_index(np.argmax(np.abs(a - b)), a.shape)
        at = f" at {[int(index) for index in place]}" if a.ndim else ""
        return f"{a[place]:.6g} for {b[place]:.6g}{at}"

    def take_over(self, path: str) -> None:
        """Give the module the port's constant."""
        value = self._value(path)
        self._before[path] = value.detach().clone() if isinstance(value, torch.Tensor) else value
        self._set(path, self._port[path])

    def put_back(self, path: str) -> None:
        """Give the module its own constant again."""
        self._set(path, _numbers(self._before.pop(path)))

    def put_all_back(self) -> None:
        """Give the module all its own constants again."""
        for path in [*self._before]:
            self.put_back(path)

    def _value(self, path: str) -> Any:
        layer, _, name = path.rpartition(".")
        owner = self._module.get_submodule(layer)
        return (
            getattr(owner, name, None) if not type(owner).__module__.startswith("torch.") else None
        )

    def _differs(self, path: str, array: np.ndarray) -> bool:
        value = None
        with contextlib.suppress(AttributeError):  # no such layer
            value = self._value(path)
        if not isinstance(value, torch.Tensor | int | float):
            return False
        own = _numbers(value)
        return own.shape == array.shape and not np.allclose(own, array, 1e-6, 0)

    @torch.no_grad()
    def _set(self, path: str, array: np.ndarray) -> None:
        value = self._value(path)
        if isinstance(value, torch.Tensor):
            value.copy_(torch.from_numpy(np.array(array)))
        else:
            layer, _, name = path.rpartition(".")
            setattr(self._module.get_submodule(layer), name, type(value)(array.item()))


def _numbers(value: Any) -> np.ndarray:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else np.array(value)
