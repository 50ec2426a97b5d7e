"""This module collects all state that an update changes and that a checkpoint must contain."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mindspore import Parameter, Tensor, nn
from mindspore.common.initializer import initializer

from resnet_fn.config.wording import first_few
from resnet_fn.models.batchnorm import batchnorm_statistics
from resnet_fn.models.untrained import Buffer, names_with_infinity, persistent_buffers
from resnet_fn.update.average import MovingAverage
from resnet_fn.update.gradients import Gradients, Parameters
from resnet_fn.update.loss_scale import DynamicLossScaler


def _as_they_are(gradients: Gradients) -> Gradients:
    return gradients


class Optimizer(NamedTuple):
    """Holds an optimizer's state, and a function that updates the weights and this state in
    place.
    """

    state: tuple[Parameter, ...]  # the optimizer's Parameters, which a checkpoint contains
    # (gradients from `join`, learning rate as a float32 scalar tensor)
    update: Callable[[Gradients, Tensor], None]
    # The weights in the order of their gradients; () for the net's trainable parameters in their
    # order.
    trained: tuple[Parameter, ...] = ()
    # Converts gradients of `trained` to the gradients that `update` takes: unchanged, or joined to
    # a few vectors.
    join: Callable[[Gradients], Gradients] = _as_they_are
    # must be called before each compiled function: see `vectors.py`
    attach: Callable[[], None] = lambda: None


def check_decays(**values: float) -> None:
    """Raise ValueError if a decay, such as momentum or beta1, is not in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name}: {value} is not in [0, 1); give for example 0.9")


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Holds the weights and all other state that an update changes."""

    weights: tuple[Parameter, ...]  # all Parameters of the net, including BatchNorm's statistics
    trained: tuple[Parameter, ...]  # the weights that have a gradient, in the optimizer's order
    # BatchNorm's moving statistics that training changes, float32 [channels] each
    statistics: tuple[Parameter, ...]
    optimizer: tuple[Parameter, ...]  # the optimizer's Parameters
    scaler: DynamicLossScaler  # the loss scaler, which has four scalar Parameters
    # the moving average of the weights, which is evaluated if there is one
    average: MovingAverage | None = None
    buffers: tuple[Buffer, ...] = ()  # the net's buffers, except those with persistent=False
    # Names of weights and buffers that are not trained and contain infinity at first, such as an
    # attention mask. Only these may contain infinity in a checkpoint.
    infinite: frozenset[str] = frozenset()

    @property
    def of_net(self) -> tuple[Parameter | Buffer, ...]:
        """Return the weights and the buffers, which a checkpoint keeps in one file."""
        return (*self.weights, *self.buffers)

    @property
    def training(self) -> tuple[Parameter, ...]:
        """Return all Parameters except the weights: those of the optimizer, the loss scaler and the
        moving average.
        """
        average = (*self.average.averages, self.average.count) if self.average else ()
        return (*self.optimizer, *self.scaler.state(), *average)


def make_state(
    net: nn.Cell,
    optimizer: Optimizer,
    scaler: DynamicLossScaler | None = None,
    average: MovingAverage | None = None,
) -> TrainState:
    """Collect the state of a net and its optimizer.

    Args:
        optimizer: an optimizer that was made for `net.trainable_params()`, in the order of this
            list.
        scaler: the loss scaler; None for a constant scale of 1.
        average: the result of `moving_average`; None for no average.

    Raises:
        ValueError: if a Parameter of the net has the name of a Parameter of the optimizer, the
            scaler or the average. MindSpore compiles no function with two Parameters of one name.
    """
    state = TrainState(
        weights=tuple(net.get_parameters()),
        trained=optimizer.trained or tuple(net.trainable_params()),
        statistics=batchnorm_statistics(net),
        optimizer=tuple(optimizer.state),
        scaler=scaler or DynamicLossScaler.off(),
        average=average,
        buffers=persistent_buffers(net),
        infinite=names_with_infinity(net),
    )
    taken = {parameter.name for parameter in state.training}
    if names := [parameter.name for parameter in state.weights if parameter.name in taken]:
        fault = "is also the name of a Parameter of the optimizer, the loss scaler or the average"
        raise ValueError(
            f"net: the Parameter name {first_few(names)} {fault}; rename it in the net"
        )
    return state


class FixedMemory:
    """Checks that Parameters still have the memory that a compiled function reads.

    On a CPU, `set_data` and `load_param_into_net` give a Parameter new memory, which a compiled
    function does not read.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._addresses: list[int] = []

    def check(self) -> None:
        """Raise ValueError if the memory address of a Parameter has changed since the first call of
        `check`.
        """
        addresses = [parameter.data_ptr() for parameter in self._parameters]
        if addresses != self._addresses:
            if self._addresses:
                pairs = zip(self._parameters, self._addresses, addresses, strict=True)
                names = [parameter.name for parameter, before, now in pairs if before != now]
                raise ValueError(
                    f"{first_few(names)}: set_data or load_param_into_net gave these Parameters "
                    "new memory; use "
                    "resnet_fn.load_weights or ops.assign instead, or call make_train_step or "
                    "make_eval_step again"
                )
            self._addresses = addresses


def make_buffers(parameters: Parameters, prefix: str) -> tuple[Parameter, ...]:
    """Make a Parameter `<prefix>.<parameter>` of zeros for each parameter, with the same shape and
    dtype.
    """
    return tuple(zeros_like(parameter, f"{prefix}.{parameter.name}") for parameter in parameters)


def zeros_like(parameter: Parameter, name: str) -> Parameter:
    """Make a Parameter of zeros with the shape and dtype of `parameter`."""
    # `initializer` does not touch the memory, which starts faster.
    return Parameter(
        initializer("zeros", parameter.shape, parameter.dtype), name=name, requires_grad=False
    )
