"""Optimizers of the ladder's own side: one that records the gradients it is given, one around MindSpore's own."""

from collections.abc import Mapping, Sequence

from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.traces.batches import Arrays
from resnet_fn.update.optimizer import Optimizer

# Where the optimizers of MindSpore itself keep what ours call "momentum" and "variance".
_STATE = {
    **dict.fromkeys(("moments", "accum", "moment1", "adam_m", "lamb_m"), "momentum"),
    **dict.fromkeys(("moment2", "adam_v", "lamb_v"), "variance"),
}


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


def of_mindspore(optimizer: nn.Optimizer, net: nn.Cell) -> Optimizer:
    """An optimizer of MindSpore's own as a function of gradients and the task's learning rate.

    Gradients come in the order of the net's trainable parameters; the optimizer's may be another, as its groups are.
    Each group has the task's learning rate times its own share of the largest, as on the reference's side.

    Raises:
        ValueError: its learning rate is a schedule, or it updates what the net does not train.
    """
    groups = optimizer.learning_rate
    rates = tuple(dict.fromkeys(groups)) if isinstance(groups, tuple) else (groups,)
    name = type(optimizer).__name__
    if not all(isinstance(rate, Parameter) for rate in rates):
        raise ValueError(
            f"optimizer: {name} has a learning rate for each step of its own; build it with one number "
            "(the task sets it before each update)"
        )
    places = {id(parameter): index for index, parameter in enumerate(net.trainable_params())}
    foreign = [parameter.name for parameter in optimizer.parameters if id(parameter) not in places]
    if foreign:
        raise ValueError(
            f"optimizer: {name} updates {foreign[0]}, which the net does not train; build it for net.trainable_params()"
        )
    order = tuple(places[id(parameter)] for parameter in optimizer.parameters)
    largest = max(float(rate.asnumpy()) for rate in rates) or 1.0
    shares = tuple(float(rate.asnumpy()) / largest for rate in rates)
    others = {*map(id, rates), *map(id, optimizer.parameters)}
    state_ = tuple(parameter for parameter in optimizer.get_parameters() if id(parameter) not in others)

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(rates)):
            ops.assign(rates[index], learning_rate * shares[index])
        arranged: tuple[Tensor, ...] = ()
        for place in order:
            arranged += (gradients[place],)
        optimizer(arranged)

    return Optimizer(state_, update)


def optimizer_state(optimizer: Optimizer, weights: Mapping[str, Parameter]) -> dict[str, Arrays]:
    """The optimizer's buffers by kind ("momentum", "variance") and the parameter's path.

    Args:
        optimizer: its state's names end in the name of the parameter that each belongs to; nn.SGD's `stat`, which says
            that its momentum has not begun, is left out.
        weights: the net's trainable parameters by path.
    """
    found: dict[str, Arrays] = {}
    paths = {parameter.name: path for path, parameter in weights.items()}
    for buffer in optimizer.state:
        kind, _, name = buffer.name.partition(".")
        if kind != "stat" and name in paths and buffer.shape == weights[paths[name]].shape:
            found.setdefault(_STATE.get(kind, kind), {})[paths[name]] = buffer.asnumpy().copy()
    return found
