"""Layers of a MindSpore cell that multiply by masks instead of dropping."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.layers.cells import write

_ADDED = ("mask_count", "mask_call", "mask_values")


class Masked(nn.Cell):
    """A layer in training mode: its input times its masks, one for each call in a forward pass."""

    mask_count: int
    mask_call: Parameter
    mask_values: Parameter

    def construct(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        if not self.training:
            return x
        mask = self.mask_values[0]
        if self.mask_count > 1:
            mask = self.mask_values[self.mask_call]
            ops.assign(self.mask_call, (self.mask_call + 1) % self.mask_count)
        return x * mask[: x.size].reshape(x.shape).astype(x.dtype)


@contextlib.contextmanager
def masked(
    net: nn.Cell, masks: Mapping[str, Sequence[np.ndarray]]
) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Inside, layers that drop nothing multiply by masks in training mode. Compile the net's functions inside.

    `masks` has those of each call of a layer, by its path.

    Yields:
        A context manager: the masks are ones except inside it.
    """
    layers = {name: layer for name, layer in net.cells_and_names() if name in masks}
    classes = {name: type(layer) for name, layer in layers.items()}
    values = {}
    for name, layer in layers.items():
        values[name] = np.ones((len(masks[name]), max(mask.size for mask in masks[name])), np.float32)
        for row, mask in zip(values[name], masks[name], strict=True):
            row[: mask.size] = mask.ravel()
        call = Parameter(Tensor(0, mindspore.int32), name=f"mask_call.{name}", requires_grad=False)
        ones = Parameter(Tensor(np.ones_like(values[name])), name=f"mask.{name}", requires_grad=False)
        for attribute, value in zip(_ADDED, (len(masks[name]), call, ones), strict=True):
            object.__setattr__(layer, attribute, value)  # past the cell's, which would make them its parameters
        # Its name, by which layers are recognised, stays. A compiled function calls no hooks.
        layer.__class__ = type(classes[name].__name__, (Masked, classes[name]), {})

    @contextlib.contextmanager
    def with_masks() -> Iterator[None]:
        for name, layer in layers.items():
            write(layer.mask_values, values[name])
        try:
            yield
        finally:
            for layer in layers.values():
                write(layer.mask_values, np.ones(layer.mask_values.shape, np.float32))

    try:
        yield with_masks
    finally:
        for name, layer in layers.items():
            layer.__class__ = classes[name]
            for attribute in _ADDED:
                object.__delattr__(layer, attribute)
