"""This module finds the state of a net that the optimizer does not update: buffers, which
`Cell.register_buffer` adds, and Parameters that are not trained.
"""

import dataclasses
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn

from resnet_fn.models.batchnorm import batchnorm_statistics


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A buffer of a net, with the attributes of a Parameter that a checkpoint reads."""

    net: nn.Cell
    name: str  # the path in the net, for example "layer1.0.steps"

    @property
    def tensor(self) -> Tensor:
        """Return the buffer's tensor, which `register_buffer` may have replaced."""
        return self.net.get_buffer(self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the tensor."""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> Any:
        """Return the MindSpore dtype of the tensor."""
        return self.tensor.dtype

    def numpy(self) -> np.ndarray:
        """Return the values of the tensor."""
        return self.tensor.numpy()


def persistent_buffers(net: nn.Cell) -> tuple[Buffer, ...]:
    """Return the buffers of a net that are part of its `state_dict`."""
    names = [name for name, _ in net.named_buffers()]
    kept = net.state_dict() if names else {}
    return tuple(Buffer(net, name) for name in names if name in kept)


def saved_state(net: nn.Cell) -> tuple[Parameter | Buffer, ...]:
    """Return what a checkpoint contains of a net: all Parameters and the persistent buffers."""
    return (*net.get_parameters(), *persistent_buffers(net))


def untrained_state(net: nn.Cell) -> tuple[Parameter | Buffer, ...]:
    """Return a net's Parameters that are neither trained nor BatchNorm's statistics, and its
    buffers.
    """
    statistics = {id(parameter) for parameter in batchnorm_statistics(net)}
    parameters = (p for p in net.get_parameters() if not p.requires_grad)
    buffers = (Buffer(net, name) for name, _ in net.named_buffers())
    return (*(p for p in parameters if id(p) not in statistics), *buffers)


def names_with_infinity(net: nn.Cell) -> frozenset[str]:
    """Return the names in `untrained_state` whose values contain infinity, as an attention mask
    does.
    """
    arrays = {item.name: item.numpy() for item in untrained_state(net)}
    return frozenset(
        name for name, array in arrays.items() if array.dtype.kind == "f" and np.isinf(array).any()
    )
