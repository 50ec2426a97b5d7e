"""Layers of a MindSpore cell that multiply by masks instead of dropping."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.layers.cells import write

_assign = ops.Assign()


class Masked(nn.Cell):
    """A layer that multiplies its input by masks in training mode, one mask for each call in a forward pass."""

    mask_values: Parameter  # [calls, most numbers of a call]
    mask_call: Parameter

    def construct(self, x: Tensor) -> Tensor:
        """A tensor of any shape to a tensor of the same shape."""
        if not self.training:
            return x
        mask = self.mask_values[self.mask_call]
        _assign(self.mask_call, (self.mask_call + 1) % self.mask_values.shape[0])
        return x * mask[: x.size].reshape(x.shape).astype(x.dtype)


@contextlib.contextmanager
def masked(net: nn.Cell, masks: Mapping[str, Sequence[np.ndarray]]) -> Iterator[Callable[[], None]]:
    """A context in which layers multiply by masks in training mode; their dropout must be 0. Compile the net inside.

    `masks` maps a layer's path to the masks of its calls. Yields a function that sets the masks, which are ones before.
    """
    layers = [(layer, type(layer), masks[name]) for name, layer in net.cells_and_names() if name in masks]
    values = []
    for index, (layer, class_, calls) in enumerate(layers):
        values.append(np.ones((len(calls), max(mask.size for mask in calls)), np.float32))
        added = {"mask_call": Tensor(0, mindspore.int32), "mask_values": Tensor(values[-1])}
        for name, value in added.items():  # past the cell's own __setattr__, which would make them its parameters
            parameter = Parameter(value, name=f"{name}.{index}", requires_grad=False)
            object.__setattr__(layer, name, parameter)
        for row, mask in zip(values[-1], calls, strict=True):
            row[: mask.size] = mask.ravel()
        # A new class, since compiled functions call no hooks; with the old name, by which layers are recognised.
        layer.__class__ = type(class_.__name__, (Masked, class_), {})

    def set_masks() -> None:
        for (layer, _, _), value in zip(layers, values, strict=True):
            write(layer.mask_values, value)

    try:
        yield set_masks
    finally:
        for layer, class_, _ in layers:
            layer.__class__ = class_
            object.__delattr__(layer, "mask_call")
            object.__delattr__(layer, "mask_values")
