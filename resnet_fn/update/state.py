"""All state that an update changes is made once, then given to the step, the writer, restore and evaluation."""

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
    """An optimizer: its state, and the function that updates weights and state in place, inside jit."""

    state: tuple[Parameter, ...]  # what a checkpoint holds of it
    update: Callable[[Gradients, Tensor], None]  # (gradients, learning rate), the gradients as `join` returns them
    # The weights in the order of their gradients; (): that of the net's trainable parameters.
    trained: tuple[Parameter, ...] = ()
    # Gradients of `trained` → what `update` takes, inside jit: as they are, or a few vectors (`vectors.py`).
    join: Callable[[Gradients], Gradients] = _as_they_are
    attach: Callable[[], None] = lambda: None  # to be called before each call of a compiled function: see `vectors.py`


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Weights and everything else that an update changes."""

    weights: tuple[Parameter, ...]  # all of the net's Parameters, BatchNorm's statistics among them
    trained: tuple[Parameter, ...]  # the weights that have a gradient, in the optimizer's order
    statistics: tuple[Parameter, ...]  # BatchNorm's, which each training pass changes, float32 [channels] each
    optimizer: tuple[Parameter, ...]  # the optimizer's state
    scaler: DynamicLossScaler  # the loss scaler, whose four scalars are state
    average: MovingAverage | None = None  # of the weights, which is then evaluated

    @property
    def training(self) -> tuple[Parameter, ...]:
        """Return what a checkpoint holds beside the weights: Parameters of optimizer, scaler and moving average."""
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
    """Checks that Parameters of compiled functions are still where they were in memory at the first call.

    On a CPU `set_data` and `load_param_into_net` give a Parameter other memory; compiled functions still read the old.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._addresses: list[int] = []

    def check(self) -> None:
        """Raise a ValueError that names the Parameters which have other memory now; call it before each call."""
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
    """Make state of an optimizer: `<prefix>.<parameter>` for each parameter, of its shape, zeros."""
    return tuple(zeros_like(parameter, f"{prefix}.{parameter.name}") for parameter in parameters)


def zeros_like(parameter: Parameter, name: str) -> Parameter:
    """Make zeros of a parameter's shape and dtype. Pages of memory that nobody has written cost the start nothing."""
    return Parameter(initializer("zeros", parameter.shape, parameter.dtype), name=name, requires_grad=False)
