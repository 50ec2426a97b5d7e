"""Optimizers of MindSpore, of the plan and of the user: make them, read them, run them alone."""

from collections.abc import Sequence
from typing import TypeAlias

import mindspore
from mindspore import Parameter, Tensor, nn, ops

# also the base of mint.optim
from mindspore.experimental.optim.optimizer import Optimizer as TorchLike

from resnet_fn.config.wording import first_few
from resnet_fn.parity.record.alone import changes_alone
from resnet_fn.parity.record.cells import unchanged
from resnet_fn.parity.record.mindspore_cell import assign, parameters_by_path
from resnet_fn.parity.record.optimizer_settings import mindspore_settings, torch_settings
from resnet_fn.parity.trace.data import ParameterSettings
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.plan import OptimizerPlan
from resnet_fn.parity.trace.tree import Arrays
from resnet_fn.update.groups import weight_decay_groups
from resnet_fn.update.optimizer import named_optimizer
from resnet_fn.update.state import Optimizer

CustomOptimizer: TypeAlias = Optimizer | nn.Optimizer | TorchLike

_assign = ops.Assign()


def settings_of(optimizer: CustomOptimizer | None, net: nn.Cell) -> ParameterSettings:
    """Return the settings of an optimizer of MindSpore by setting and path, or {} for others."""
    paths = {id(parameter): path for path, parameter in parameters_by_path(net).items()}
    if isinstance(optimizer, TorchLike):
        return torch_settings(optimizer.param_groups, paths)
    if isinstance(optimizer, nn.Optimizer):
        return mindspore_settings(optimizer, paths)
    return {}


def plan_optimizer(net: nn.Cell, plan: OptimizerPlan, like: Like | None) -> tuple[Optimizer, str]:
    """Return the recipe's optimizer with the reference's weight decays, and a note if the recipe
    has other decays.
    """
    # The recipe recognises norms by their class. It would decay a norm that is written by hand.
    paths = {id(parameter): path for path, parameter in parameters_by_path(net).items()}
    decays = like.decays if like else {}
    own = weight_decay_groups(net, plan.weight_decay, plan.decay_all)
    groups = [(parameter, decays.get(paths[id(parameter)], decay)) for parameter, decay in own]
    moved = [
        paths[id(parameter)]
        for (parameter, decay), (_, reference) in zip(own, groups, strict=True)
        if decay != reference
    ]
    note = (
        f"the weight decay of {first_few(moved)} is the reference's, not the recipe's"
        if moved
        else ""
    )
    return named_optimizer(plan.name, groups, plan.momentum, plan.settings), note


def optimizer_alone(net: nn.Cell, optimizer: Optimizer, like: Like | None) -> dict[int, Arrays]:
    """Update random weights with random gradients.

    Return weight changes after the first and last update, by path.
    """
    parameters = {
        path: parameter
        for path, parameter in parameters_by_path(net).items()
        if parameter.requires_grad
    }
    weights, gradients = made_up({path: parameter.shape for path, parameter in parameters.items()})
    if like:  # the random numbers of both sides must be equal
        for own, arrays in ((weights, like.weights), (gradients, like.gradients)):
            own.update({path: array for path, array in arrays.items() if path in parameters})

    def update(gradients: Arrays, rate: float) -> None:
        optimizer.update(
            tuple(Tensor(gradients[path]) for path in parameters), Tensor(rate, mindspore.float32)
        )

    with unchanged((*parameters.values(), *optimizer.state)):
        assign(net, weights)
        return changes_alone(weights, gradients, update, lambda path: parameters[path].numpy())


def as_functions(optimizer: CustomOptimizer | None, net: nn.Cell) -> Optimizer | None:
    """Return an `Optimizer` that calls one of MindSpore's optimizers with the plan's learning rate.

    Any other optimizer is returned as it is. The parameter group with the largest learning rate
    gets the plan's rate. All groups keep the ratios of their rates.
    """
    if not isinstance(optimizer, nn.Optimizer | TorchLike):
        return optimizer
    groups = tuple(optimizer.lrs) if isinstance(optimizer, TorchLike) else optimizer.learning_rate
    rates = tuple(dict.fromkeys(groups)) if isinstance(groups, tuple) else (groups,)
    name = type(optimizer).__name__
    if not all(isinstance(rate, Parameter) for rate in rates):
        raise ValueError(
            f"optimizer: {name} has a learning rate schedule; build it with a constant learning "
            "rate"
        )
    places = {id(parameter): index for index, parameter in enumerate(net.trainable_params())}
    if untrained := [
        parameter.name for parameter in optimizer.parameters if id(parameter) not in places
    ]:
        raise ValueError(
            f"optimizer: {name} updates {untrained[0]}, which the net does not train; "
            "build it with net.trainable_params()"
        )
    # Gradients come in the order of the net's parameters. The optimizer's groups may have another
    # order.
    order = tuple(places[id(parameter)] for parameter in optimizer.parameters)
    largest = max(float(rate.numpy()) for rate in rates) or 1.0
    shares = tuple(float(rate.numpy()) / largest for rate in rates)
    others = {*map(id, rates), *map(id, optimizer.parameters)}
    state_ = tuple(
        parameter for parameter in optimizer.get_parameters() if id(parameter) not in others
    )

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(rates)):
            _assign(rates[index], learning_rate * shares[index])
        arranged: tuple[Tensor, ...] = ()
        for position in order:
            arranged += (gradients[position],)
        optimizer(arranged)

    return Optimizer(state_, update)
