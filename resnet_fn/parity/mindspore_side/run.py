"""MindSpore's side of the ladder: the compiled functions of `resnet_fn.update`, the very ones that training calls.

They are not changed to be looked into. A loss that records the logits it is given, and an optimizer that records the
gradients it is given, are compiled into the step in place of the plain ones.
"""

from collections.abc import Callable, Mapping, Sequence

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.trace import LATER, Arrays, Batch, Trace
from resnet_fn.update.eval_step import make_eval_step
from resnet_fn.update.loss import Loss
from resnet_fn.update.optimizer import Optimizer
from resnet_fn.update.step import StepResult, TrainStep

MakeStep = Callable[..., TrainStep]


def parameters_by_path(net: nn.Cell) -> dict[str, Parameter]:
    """All parameters and statistics by their path in the net.

    `Parameter.name` is the path at the time when the cell was built in; a cell that was put in later may carry
    another's name.
    """
    return dict(net.parameters_and_names())


def state(net: nn.Cell) -> Arrays:
    """All parameters and statistics of a net as arrays, by path."""
    return {name: parameter.asnumpy().copy() for name, parameter in parameters_by_path(net).items()}


def assign(net: nn.Cell, values: Mapping[str, np.ndarray]) -> None:
    """Put values into a net so that compiled functions see them too."""
    parameters = parameters_by_path(net)
    for name, value in values.items():
        ops.assign(parameters[name], Tensor(np.asarray(value), parameters[name].dtype))


def _record(shape: Sequence[int], name: str) -> Parameter:
    return Parameter(Tensor(np.zeros(shape, np.float32)), name=f"record.{name}", requires_grad=False)


def _recording_loss(loss: Loss, recorded: Parameter) -> Loss:
    def recording(logits: Tensor, labels: Tensor) -> Tensor:
        ops.assign(recorded, logits.astype(mindspore.float32))
        return loss(logits, labels)

    return recording


def _recording_optimizer(optimizer: Optimizer | None, recorded: tuple[Parameter, ...]) -> Optimizer:
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


def _eval_logits(net: nn.Cell, batch: Batch, classes: int) -> np.ndarray:
    """The logits [n, classes] that the compiled evaluation step sees."""
    images, labels = batch
    recorded = _record((len(images), classes), "eval.logits")

    def forward(x: Tensor) -> Tensor:
        logits = net(x)
        ops.assign(recorded, logits.astype(mindspore.float32))
        return logits

    forward.set_train = net.set_train  # type: ignore[attr-defined]
    make_eval_step(forward)(Tensor(images), Tensor(labels))[0].asnumpy()
    return recorded.asnumpy().copy()


def run_mindspore(
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
    """Train a net for a few updates through its compiled step and record everything that the ladder compares.

    The net's parameters are left as the last update leaves them.

    Args:
        net: images [n, C, H, W] to logits [n, classes].
        batches, recipe, rates, accumulate: as in `run_torch`.
        loss, optimizer: what the step is made of.
        make_step: `resnet_fn.update.step.make_train_step`, or the user's own function with its signature.
        classes: width of the logits.
    """
    trace = Trace(_eval_logits(net, batches[0], classes), start=state(net), rates=list(rates))
    paths = {id(parameter): path for path, parameter in parameters_by_path(net).items()}
    weights = {paths[id(parameter)]: parameter for parameter in net.trainable_params()}
    recorded = tuple(_record(parameter.shape, f"gradient.{path}") for path, parameter in weights.items())
    logits = _record((len(batches[0][0]) // accumulate, classes), "train.logits")
    recording_loss = _recording_loss(loss, logits)

    def gradients() -> Arrays:
        return {path: value.asnumpy().copy() for path, value in zip(weights, recorded, strict=True)}

    if recipe.clip_norm:
        # A step without clipping and without an update, for the gradients alone.
        record_only = _recording_optimizer(None, recorded)
        _call(make_step(net, recording_loss, record_only, clip_norm=0.0, accumulate=accumulate), batches[0], rates[0])
        trace.gradients = gradients()
        assign(net, trace.start)
    recording = _recording_optimizer(optimizer, recorded)
    step = make_step(net, recording_loss, recording, clip_norm=recipe.clip_norm, accumulate=accumulate)
    for update, batch in enumerate(batches):
        result = _call(step, batch, rates[update])
        trace.losses.append(float(result.means.asnumpy()[0]))
        trace.norms.append(float(result.grad_norm.asnumpy()))
        trace.train_logits.append(logits.asnumpy().copy())
        if update < LATER:
            trace.later = state(net)
        if update == 0:
            trace.clipped = gradients()
            trace.gradients = trace.gradients or trace.clipped
            trace.first = trace.later
            trace.momentum = _momentum(optimizer, weights)
    return trace


def _call(step: TrainStep, batch: Batch, rate: float) -> StepResult:
    images, labels = batch
    return step(Tensor(images), Tensor(labels), Tensor(rate, mindspore.float32))


def _momentum(optimizer: Optimizer, weights: Mapping[str, Parameter]) -> Arrays:
    paths = {f"momentum.{parameter.name}": path for path, parameter in weights.items()}
    return {paths[buffer.name]: buffer.asnumpy().copy() for buffer in optimizer.state if buffer.name in paths}
