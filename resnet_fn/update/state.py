"""All state that an update changes: made once, then given to the step, the writer, restore and evaluation."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.common.initializer import initializer

from resnet_fn.config.hints import few
from resnet_fn.models.batchnorm import batchnorm_statistics
from resnet_fn.update.average import MovingAverage
from resnet_fn.update.loss_scale import DynamicLossScaler


class Vector:
    """float32 Parameters as views of one vector, on a CPU, where MindSpore can share NumPy's memory.

    One kernel then updates all of them. A kernel takes 10 to 20 µs before it computes anything, an all-reduce 0.3 ms,
    and an update has five for each parameter: unscale, square, all-reduce, clip, optimizer.

    Attributes:
        whole: the vector, a Parameter [elements].
        parts: Parameters of its elements, in order, each with its own name and shape.
    """

    def __init__(self, whole: Parameter, parts: Sequence[Parameter]) -> None:
        self.whole, self.parts = whole, tuple(parts)
        self._memory = np.zeros(whole.size, np.float32)
        pieces = np.split(self._memory, np.cumsum([part.size for part in parts])[:-1])
        self._views = [piece.reshape(part.shape) for piece, part in zip(pieces, parts, strict=True)]
        self._addresses = [array.ctypes.data for array in (self._memory, *self._views)]
        self.attach()  # now: a function that is compiled later reads the memory that it finds, and no other

    def attach(self) -> None:
        """Let whole and parts share memory, also after `set_data` of a part, whose values it takes over."""
        if self.is_attached:
            return
        for part, view in zip(self.parts, self._views, strict=True):
            np.copyto(view, part.asnumpy())
            part.set_data(mindspore.from_numpy(view))
        self.whole.set_data(mindspore.from_numpy(self._memory))
        if not self.is_attached:  # else the weights would stay as they are
            raise RuntimeError("this MindSpore copies what a Parameter is given; use 2.7.2 to 2.10")

    @property
    def is_attached(self) -> bool:
        """Whether whole and parts share their memory."""
        return [parameter.data_ptr() for parameter in (self.whole, *self.parts)] == self._addresses


class Optimizer(NamedTuple):
    """An optimizer: its state, and the function that updates weights and state in place, inside jit.

    Attributes:
        state: what a checkpoint holds of it.
        update: (gradients, learning rate), one gradient for each trained parameter, or for each of `vectors`.
        vectors: the trained parameters, if they are updated as vectors.
        buffers: `state`, likewise.
    """

    state: tuple[Parameter, ...]
    update: Callable[[Sequence[Tensor], Tensor], None]
    vectors: tuple[Vector, ...] = ()
    buffers: tuple[Vector, ...] = ()


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Weights and everything else that an update changes.

    Attributes:
        weights: all of the net's Parameters, BatchNorm's statistics among them.
        trained: those of the weights that have a gradient, in the optimizer's order.
        statistics: those of the weights that a training pass moves, float32 [channels] each.
        optimizer: the optimizer's.
        scaler: the loss scaler, whose four scalars are state.
        average: the weights' moving average, which is then what is evaluated.
    """

    weights: tuple[Parameter, ...]
    trained: tuple[Parameter, ...]
    statistics: tuple[Parameter, ...]
    optimizer: tuple[Parameter, ...]
    scaler: DynamicLossScaler
    average: MovingAverage | None = None

    @property
    def training(self) -> tuple[Parameter, ...]:
        """What a checkpoint holds beside the weights: of the optimizer, the scaler, the moving average."""
        average = (*self.average.averages, self.average.count) if self.average else ()
        return (*self.optimizer, *self.scaler.state(), *average)


def make_state(
    net: nn.Cell, optimizer: Optimizer, scaler: DynamicLossScaler | None = None, average: MovingAverage | None = None
) -> TrainState:
    """The state of a net and its optimizer.

    Args:
        net: its trainable parameters are those that the optimizer was made for, in order.
        optimizer: see `momentum_sgd`.
        scaler: the loss scaler; None: `DynamicLossScaler.off()`.
        average: the moving average, if there is one (`moving_average`).
    """
    return TrainState(
        weights=tuple(net.get_parameters()),
        trained=tuple(part for vector in optimizer.vectors for part in vector.parts) or tuple(net.trainable_params()),
        statistics=batchnorm_statistics(net),
        optimizer=tuple(optimizer.state),
        scaler=scaler or DynamicLossScaler.off(),
        average=average,
    )


class FixedMemory:
    """Parameters that compiled functions read: their memory must stay where it was at the first call.

    On a CPU `set_data` and `load_param_into_net` give a Parameter other memory; what was compiled goes on with the old.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._addresses: list[int] = []

    def check(self) -> None:
        """Call it before each call of a function; a ValueError names the Parameters that have other memory now."""
        addresses = [parameter.data_ptr() for parameter in self._parameters]
        if addresses != self._addresses:
            if self._addresses:
                pairs = zip(self._parameters, self._addresses, addresses, strict=True)
                names = [parameter.name for parameter, before, now in pairs if before != now]
                raise ValueError(
                    f"{few(names)}: given other memory (set_data, load_param_into_net) after the first call, which "
                    "compiled functions do not read; make the step anew, or load by resnet_fn.load_weights, ops.assign"
                )
            self._addresses = addresses


def make_buffers(parameters: Sequence[Parameter], prefix: str) -> tuple[Parameter, ...]:
    """State of an optimizer: `<prefix>.<parameter>` for each parameter, of its shape, zeros."""
    return tuple(zeros_like(parameter, f"{prefix}.{parameter.name}") for parameter in parameters)


def zeros_like(parameter: Parameter, name: str) -> Parameter:
    """Zeros of a parameter's shape and dtype. Pages of memory that nobody has written yet cost the start nothing."""
    return Parameter(initializer("zeros", parameter.shape, parameter.dtype), name=name, requires_grad=False)
