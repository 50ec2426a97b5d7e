"""MindSpore's training step: the compiled functions of `resnet_fn.update`, the very ones that training calls.

They are not changed to be looked into. A loss that records the outputs it is given, and an optimizer that records the
gradients it is given, are compiled into the step in place of the plain ones.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn

from resnet_fn.parity.mindspore_side.adapt import Outputs, arguments, record_parameter, with_inputs
from resnet_fn.parity.mindspore_side.optimizer import optimizer_state, recording_optimizer
from resnet_fn.parity.mindspore_side.parameters import assign, parameters_by_path, state
from resnet_fn.parity.traces.batches import Arrays, Batch, leaves, map_tree
from resnet_fn.parity.traces.trace import LATER, Task, Trace
from resnet_fn.update.ema import make_ema
from resnet_fn.update.eval_step import make_eval_step
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import Optimizer
from resnet_fn.update.step import StepResult, TrainStep

MakeStep = Callable[..., TrainStep]
Loss = Callable[[Any, Any], Tensor]


def is_classifier(like: Any, labels: Any) -> bool:
    """Whether a net's outputs are logits [n, classes] and its labels classes [n] or probabilities [n, classes]."""
    return isinstance(like, Tensor) and like.ndim == 2 and isinstance(labels, np.ndarray) and labels.ndim <= 2


def _no_metric(outputs: Any, labels: Any) -> Tensor:
    """In the place of the accuracy, which other nets than classifiers do not have."""
    return Tensor(0.0, mindspore.float32)


def _eval_outputs(net: nn.Cell, task: Task, like: Any) -> Arrays:
    """The outputs of the compiled evaluation step; of a compiled forward pass where labels are no classes."""
    inputs, labels = task.batches[0]
    forward = with_inputs(net, inputs)
    rows = len(next(leaf for _, leaf in leaves(inputs)))
    kept = Outputs(like, "eval", rows)
    keep = kept.keeper()

    def recorded(x: Any) -> Any:
        outputs = forward(x)
        keep(outputs)
        return outputs

    if is_classifier(like, labels) and labels.ndim == 1 and labels.dtype.kind in "iu":
        recorded.set_train = net.set_train  # type: ignore[attr-defined]
        make_eval_step(recorded)(arguments(net, inputs), Tensor(labels.astype(np.int32)))[0].asnumpy()
    else:
        net.set_train(False)
        mindspore.jit(recorded)(arguments(net, inputs))
    return kept.arrays()


def run_mindspore(
    net: nn.Cell,
    task: Task,
    rates: Sequence[float],
    loss: Loss,
    optimizer: Optimizer,
    make_step: MakeStep,
    like: Any,
) -> Trace:
    """Train a net for a few updates through its compiled step and record everything that the ladder compares.

    The net's parameters are left as the last update leaves them.

    Args:
        net: what is trained.
        task: what to do.
        rates: the learning rate of each update.
        loss, optimizer: what the step is made of.
        make_step: `resnet_fn.update.step.make_train_step`, or the user's own function with its signature.
        like: the net's outputs on the first batch, run before.
    """
    trace = Trace(_eval_outputs(net, task, like), start=state(net), rates=list(rates))
    paths = {id(parameter): path for path, parameter in parameters_by_path(net).items()}
    weights = {paths[id(parameter)]: parameter for parameter in net.trainable_params()}
    recorded = tuple(record_parameter(parameter.shape, f"gradient.{path}") for path, parameter in weights.items())
    inputs, labels = task.batches[0]
    rows = len(next(leaf for _, leaf in leaves(inputs))) // task.accumulate
    outputs = Outputs(like, "train", rows)
    keep = outputs.keeper()

    def recording_loss(values: Any, targets: Any) -> Tensor:
        keep(values)
        return loss(values, targets)

    ema = make_ema(task.recipe, net, task.updates_per_epoch)

    def step_with(update: Optimizer, clip_norm: float, **options: Any) -> TrainStep:
        if not is_classifier(like, labels):
            options["accuracy"] = _no_metric
        if task.recipe.precision == "fp16":
            scale, interval = task.recipe.loss_scale, task.recipe.loss_scale_interval
            options["scaler"] = DynamicLossScaler(scale, growth_interval=interval)
        forward = with_inputs(net, inputs)
        return make_step(forward, recording_loss, update, clip_norm=clip_norm, accumulate=task.accumulate, **options)

    def gradients() -> Arrays:
        return {path: value.asnumpy().copy() for path, value in zip(weights, recorded, strict=True)}

    if task.recipe.clip_norm:
        # A step without clipping and without an update, for the gradients alone.
        _call(step_with(recording_optimizer(None, recorded), 0.0), net, task.batches[0], rates[0])
        trace.gradients = gradients()
        assign(net, trace.start)
    step = step_with(recording_optimizer(optimizer, recorded), task.recipe.clip_norm, **({"ema": ema} if ema else {}))
    for update, batch in enumerate(task.batches):
        result = _call(step, net, batch, rates[update])
        trace.losses.append(float(result.means.asnumpy()[0]))
        trace.norms.append(float(result.grad_norm.asnumpy()))
        trace.train_outputs.append(outputs.arrays())
        if update < LATER:
            trace.after.append(state(net))
        if update == 0:
            trace.clipped = gradients()
            trace.gradients = trace.gradients or trace.clipped
            trace.state = optimizer_state(optimizer, weights)
    if ema is not None:
        averages = {average.name.removeprefix("ema."): average for average in ema.averages}
        # What is frozen has no average: it is its own.
        named = {path: averages.get(parameter.name, parameter) for path, parameter in parameters_by_path(net).items()}
        trace.average = {path: average.asnumpy().copy() for path, average in named.items()}
    return trace


def _call(step: TrainStep, net: nn.Cell, batch: Batch, rate: float) -> StepResult:
    inputs, labels = batch
    return step(arguments(net, inputs), map_tree(Tensor, labels), Tensor(rate, mindspore.float32))
