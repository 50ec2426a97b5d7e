"""Optimizers of the ladder's own side: one that records the gradients it is given, one around MindSpore's own."""

from collections.abc import Mapping, Sequence

from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.batches import Arrays
from resnet_fn.update.optimizer import Optimizer

# Where the optimizers of MindSpore itself keep what ours call "momentum" and "variance".
_STATE = {"moments": "momentum", "accum": "momentum", "moment1": "momentum", "moment2": "variance"}


def recording_optimizer(optimizer: Optimizer | None, recorded: tuple[Parameter, ...]) -> Optimizer:
    """Record the gradients that arrive, then do the update; None: record only."""

    def record(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(recorded)):
            ops.assign(recorded[index], gradients[index])

    if optimizer is None:
        return Optimizer((), record)
    after = optimizer.update

    # Two functions, not one with `if after is not None`: jit would silently leave out the optimizer's operations.
    def record_and_update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        record(gradients, learning_rate)
        after(gradients, learning_rate)

    return Optimizer(optimizer.state, record_and_update)


def of_mindspore(optimizer: nn.Optimizer) -> Optimizer:
    """An optimizer of MindSpore's own as a function of gradients and the task's learning rate.

    Raises:
        ValueError: its learning rate is a schedule or one for each group.
    """
    rate = optimizer.learning_rate
    if not isinstance(rate, Parameter):
        raise ValueError(
            f"optimizer: {type(optimizer).__name__} has a learning rate for each group or step of its own; "
            "build it with one number (the task sets it before each update)"
        )
    weights = {id(parameter) for parameter in optimizer.parameters}
    state_ = tuple(p for p in optimizer.get_parameters() if id(p) not in weights and p is not rate)

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        ops.assign(rate, learning_rate)
        optimizer(tuple(gradients))

    return Optimizer(state_, update)


def optimizer_state(optimizer: Optimizer, weights: Mapping[str, Parameter]) -> dict[str, Arrays]:
    """The optimizer's buffers by kind ("momentum", "variance") and the parameter's path.

    Args:
        optimizer: its state's names end in the name of the parameter that each belongs to.
        weights: the net's trainable parameters by path.
    """
    found: dict[str, Arrays] = {}
    paths = {parameter.name: path for path, parameter in weights.items()}
    for buffer in optimizer.state:
        kind, _, name = buffer.name.partition(".")
        if name in paths and buffer.shape == weights[paths[name]].shape:
            found.setdefault(_STATE.get(kind, kind), {})[paths[name]] = buffer.asnumpy().copy()
    return found
