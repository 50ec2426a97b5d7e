"""Let layers of a MindSpore cell multiply their inputs by masks instead of dropping numbers."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.record.cells import write

_assign = ops.Assign()


class Masked(nn.Cell):
    """A layer that multiplies its input by masks in training mode, with one mask for each call."""

    mask_values: Parameter  # [calls, most numbers of a call]
    mask_call: Parameter

    def construct(self, x: Tensor) -> Tensor:
        """Return `x` in evaluation mode.

        In training mode, multiply `x` by the next mask in the list of masks.
        """
        if not self.training:
            return x
        mask = self.mask_values[self.mask_call]
        _assign(self.mask_call, (self.mask_call + 1) % self.mask_values.shape[0])
        return x * mask[: x.size].reshape(x.shape).astype(x.dtype)


class Masks:
    """The masks of layers that have the class `Masked`.

    Args:
        layers: each layer with the class that it was built with.
        values: each layer's masks.
    """

    def __init__(
        self, layers: Sequence[tuple[nn.Cell, type]], values: Sequence[np.ndarray]
    ) -> None:
        self._layers, self._values = layers, values

    def set(self) -> None:
        """Set the masks."""
        for (layer, _), value in zip(self._layers, self._values, strict=True):
            write(layer.mask_values, value)
            write(layer.mask_call, np.zeros((), np.int32))  # a pass may have failed between calls

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Give the layers their own classes inside a `with` block, in which nothing is compiled."""
        classes = [type(layer) for layer, _ in self._layers]
        for layer, class_ in self._layers:
            layer.__class__ = class_
        try:
            yield
        finally:
            for (layer, _), class_ in zip(self._layers, classes, strict=True):
                layer.__class__ = class_


@contextlib.contextmanager
def masked(net: nn.Cell, masks: Mapping[str, Sequence[np.ndarray]]) -> Iterator["Masks"]:
    """Let layers multiply their inputs by masks in training mode inside a `with` block.

    `masks` maps a layer's path to a list with one mask for each call. The layers must have dropout
    0. Yields the masks, which are ones until they are set. Compile the net in the `with` block.
    """
    layers = []
    for name, layer in net.cells_and_names():
        if name in masks:
            layers.append((layer, type(layer), masks[name]))
    values = []
    for index, (layer, class_, calls) in enumerate(layers):
        largest = max(mask.size for mask in calls)
        ones = np.ones((len(calls), largest), np.float32)
        values.append(ones)
        added = {"mask_call": Tensor(0, mindspore.int32), "mask_values": Tensor(ones)}
        # the cell's own __setattr__ would add them to the net's parameters
        for name, value in added.items():
            parameter = Parameter(value, name=f"{name}.{index}", requires_grad=False)
            object.__setattr__(layer, name, parameter)
        for row, mask in zip(ones, calls, strict=True):
            row[: mask.size] = mask.ravel()
        # Compiled functions call no hooks, so the layer gets a new class. Layers are recognised by
        # the old name.
        layer.__class__ = type(class_.__name__, (Masked, class_), {})
    try:
        yield Masks([(layer, class_) for layer, class_, _ in layers], values)
    finally:
        for layer, class_, _ in layers:
            layer.__class__ = class_
            object.__delattr__(layer, "mask_call")
            object.__delattr__(layer, "mask_values")
