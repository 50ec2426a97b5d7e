"""Our side of the ladder: the compiled functions of `resnet_fn.step`, the very ones that training calls.

They are not changed to be looked into. A loss that keeps the logits it is given, and an optimizer that keeps the
gradients it is given, are compiled into the step in place of the plain ones.
"""

from collections.abc import Callable, Mapping, Sequence

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.trace import LATER, Batch, Named, Trace
from resnet_fn.update.eval_step import make_eval_step
from resnet_fn.update.loss import Loss
from resnet_fn.update.optimizer import Optimizer
from resnet_fn.update.step import StepResult, TrainStep

MakeStep = Callable[..., TrainStep]


def named(net: nn.Cell) -> dict[str, Parameter]:
    """All parameters and statistics by their path in the net.

    `Parameter.name` is the path at the time when the cell was built in; a cell that was put in later may carry
    another's name.
    """
    return dict(net.parameters_and_names())


def state(net: nn.Cell) -> Named:
    """All parameters and statistics of a net as arrays, by path."""
    return {name: parameter.asnumpy().copy() for name, parameter in named(net).items()}


def assign(net: nn.Cell, values: Mapping[str, np.ndarray]) -> None:
    """Put values into a net so that compiled functions see them too."""
    parameters = named(net)
    for name, value in values.items():
        ops.assign(parameters[name], Tensor(np.asarray(value), parameters[name].dtype))


def _keep(shape: Sequence[int], name: str) -> Parameter:
    return Parameter(Tensor(np.zeros(shape, np.float32)), name=f"kept.{name}", requires_grad=False)


def _keeping_loss(loss: Loss, kept: Parameter) -> Loss:
    def keeping(logits: Tensor, labels: Tensor) -> Tensor:
        ops.assign(kept, logits.astype(mindspore.float32))
        return loss(logits, labels)

    return keeping


def _keeping_optimizer(optimizer: Optimizer | None, kept: tuple[Parameter, ...]) -> Optimizer:
    def keep(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(kept)):
            ops.assign(kept[index], gradients[index])

    if optimizer is None:
        return Optimizer((), keep)
    after = optimizer.update

    # Two functions, not one with `if after is not None`: jit would silently leave out the optimizer's operations.
    def keep_and_update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        keep(gradients, learning_rate)
        after(gradients, learning_rate)

    return Optimizer(optimizer.state, keep_and_update)


def eval_logits(net: nn.Cell, batch: Batch, classes: int) -> np.ndarray:
    """The logits [n, classes] that the compiled evaluation step sees."""
    images, labels = batch
    kept = _keep((len(images), classes), "eval.logits")

    def forward(x: Tensor) -> Tensor:
        logits = net(x)
        ops.assign(kept, logits.astype(mindspore.float32))
        return logits

    forward.set_train = net.set_train  # type: ignore[attr-defined]
    make_eval_step(forward)(Tensor(images), Tensor(labels))[0].asnumpy()
    return kept.asnumpy().copy()


def run_ours(
    net: nn.Cell,
    batches: Sequence[Batch],
    recipe: Recipe,
    rates: Sequence[float],
    accumulate: int,
    loss: Loss,
    optimizer: Optimizer,
    make_step: MakeStep,
    classes: int,
) -> Trace:
    """Train a net for a few updates through its compiled step and note everything that the ladder compares.

    The net's parameters are left as the last update leaves them.

    Args:
        net: images [n, C, H, W] to logits [n, classes].
        batches, recipe, rates, accumulate: as in `run_reference`.
        loss, optimizer: what the step is made of.
        make_step: `resnet_fn.step.make_train_step`, or the user's own function with its signature.
        classes: width of the logits.
    """
    start = state(net)
    logits = eval_logits(net, batches[0], classes)
    paths = {id(parameter): path for path, parameter in named(net).items()}
    weights = {paths[id(parameter)]: parameter for parameter in net.trainable_params()}
    kept = tuple(_keep(parameter.shape, f"gradient.{path}") for path, parameter in weights.items())
    kept_logits = _keep((len(batches[0][0]) // accumulate, classes), "train.logits")
    keeping = _keeping_loss(loss, kept_logits)

    def gradients() -> Named:
        return {path: value.asnumpy().copy() for path, value in zip(weights, kept, strict=True)}

    unclipped: Named = {}
    if recipe.clip_norm:
        # A step without clipping and without an update, for the gradients alone.
        probe = make_step(net, keeping, _keeping_optimizer(None, kept), clip_norm=0.0, accumulate=accumulate)
        _call(probe, batches[0], rates[0])
        unclipped = gradients()
        assign(net, start)
    recording = _keeping_optimizer(optimizer, kept)
    step = make_step(net, keeping, recording, clip_norm=recipe.clip_norm, accumulate=accumulate)
    seen = Trace(logits, [], [], [], unclipped, {}, {}, start, {}, {}, list(rates))
    for update, batch in enumerate(batches):
        result = _call(step, batch, rates[update])
        seen.losses.append(float(result.means.asnumpy()[0]))
        seen.norms.append(float(result.grad_norm.asnumpy()))
        seen.train_logits.append(kept_logits.asnumpy().copy())
        if update < LATER:
            seen.later = state(net)
        if update == 0:
            seen.clipped = gradients()
            seen.gradients = unclipped or seen.clipped
            seen.first = state(net)
            seen.momentum = _momentum(optimizer, weights)
    return seen


def _call(step: TrainStep, batch: Batch, rate: float) -> StepResult:
    images, labels = batch
    return step(Tensor(images), Tensor(labels), Tensor(rate, mindspore.float32))


def _momentum(optimizer: Optimizer, weights: Mapping[str, Parameter]) -> Named:
    paths = {f"momentum.{parameter.name}": path for path, parameter in weights.items()}
    return {paths[buffer.name]: buffer.asnumpy().copy() for buffer in optimizer.state if buffer.name in paths}
