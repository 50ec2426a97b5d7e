"""`TrainState` holds all state that an update changes, for the step, checkpoints and evaluation."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mindspore import Parameter, Tensor, nn
from mindspore.common.initializer import initializer

from resnet_fn.config.hints import few
from resnet_fn.models.batchnorm import batchnorm_statistics
from resnet_fn.update.average import MovingAverage
from resnet_fn.update.gradients import Gradients
from resnet_fn.update.loss_scale import DynamicLossScaler


def _as_they_are(gradients: Gradients) -> Gradients:
    return gradients


class Optimizer(NamedTuple):
    """Holds an optimizer's state and the function that updates weights and state in place, inside jit."""

    state: tuple[Parameter, ...]  # the optimizer's Parameters, which a checkpoint holds
    update: Callable[[Gradients, Tensor], None]  # (gradients, learning rate), the gradients as `join` returns them
    # The weights in the order of their gradients; (): the net's trainable parameters, in their order.
    trained: tuple[Parameter, ...] = ()
    # Converts gradients of `trained` to the argument of `update`, inside jit: unchanged, or joined to a few vectors.
    join: Callable[[Gradients], Gradients] = _as_they_are
    attach: Callable[[], None] = lambda: None  # must be called before each compiled function: see `vectors.py`


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Holds the weights and all other state that an update changes."""

    weights: tuple[Parameter, ...]  # all of the net's Parameters, BatchNorm's statistics among them
    trained: tuple[Parameter, ...]  # the weights that have a gradient, in the optimizer's order
    statistics: tuple[Parameter, ...]  # BatchNorm's moving statistics that training changes, float32 [channels] each
    optimizer: tuple[Parameter, ...]  # the optimizer's state
    scaler: DynamicLossScaler  # the loss scaler, whose four scalars are state
    average: MovingAverage | None = None  # moving average of the weights, which is evaluated if there is one

    @property
    def training(self) -> tuple[Parameter, ...]:
        """Return Parameters of optimizer, scaler and moving average, which a checkpoint holds beside the weights."""
        average = (*self.average.averages, self.average.count) if self.average else ()
        return (*self.optimizer, *self.scaler.state(), *average)


def make_state(
    net: nn.Cell, optimizer: Optimizer, scaler: DynamicLossScaler | None = None, average: MovingAverage | None = None
) -> TrainState:
    """Join the state of a net and of an optimizer that was made for the net's trainable parameters, in order.

    Without a `scaler` it is `DynamicLossScaler.off()`; `average` comes from `moving_average`.
    """
    return TrainState(
        weights=tuple(net.get_parameters()),
        trained=optimizer.trained or tuple(net.trainable_params()),
        statistics=batchnorm_statistics(net),
        optimizer=tuple(optimizer.state),
        scaler=scaler or DynamicLossScaler.off(),
        average=average,
    )


class FixedMemory:
    """Checks that Parameters of compiled functions have the same memory addresses as at the first call.

    On a CPU `set_data` and `load_param_into_net` give a Parameter new memory; compiled functions still read the old.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._addresses: list[int] = []

    def check(self) -> None:
        """Raise a ValueError that names Parameters with new memory; call this before each compiled function."""
        addresses = [parameter.data_ptr() for parameter in self._parameters]
        if addresses != self._addresses:
            if self._addresses:
                pairs = zip(self._parameters, self._addresses, addresses, strict=True)
                names = [parameter.name for parameter, before, now in pairs if before != now]
                raise ValueError(
                    f"{few(names)}: set_data or load_param_into_net gave them other memory, which compiled functions "
                    "do not read; make the step again, or load with resnet_fn.load_weights or ops.assign"
                )
            self._addresses = addresses


def make_buffers(parameters: Sequence[Parameter], prefix: str) -> tuple[Parameter, ...]:
    """Make Parameters of zeros, `<prefix>.<parameter>`, with each parameter's shape and dtype, as optimizer state."""
    return tuple(zeros_like(parameter, f"{prefix}.{parameter.name}") for parameter in parameters)


def zeros_like(parameter: Parameter, name: str) -> Parameter:
    """Make a Parameter of zeros with a parameter's shape and dtype; its memory is not touched, which starts faster."""
    return Parameter(initializer("zeros", parameter.shape, parameter.dtype), name=name, requires_grad=False)
