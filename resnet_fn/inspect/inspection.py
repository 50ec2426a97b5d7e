"""What happens inside a net on a batch of its own data: every layer's output, every gradient."""

import contextlib
import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor, nn

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.parameters import assign_all
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.eval_batches import eval_batches
from resnet_fn.data.feed import make_feed
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.inspect.statistics import Figures, figures
from resnet_fn.models.build import build_net
from resnet_fn.parity.record import Layer, record_cell, named_layers, unchanged
from resnet_fn.runtime import process
from resnet_fn.update.ema import averages_of
from resnet_fn.update.loss import Loss, make_loss
from resnet_fn.weights.load import load_weights, newest_checkpoint

# What is given each array as it is computed: its name and values. All of them together can be gigabytes.
Visitor = Callable[[str, np.ndarray], None]


def ignore(name: str, values: np.ndarray) -> None:
    """Do nothing with it."""


@dataclasses.dataclass(frozen=True)
class InspectedNet:
    """A net to look into, and its data.

    Attributes:
        net: in float32, whatever the recipe's precision: half precision would add overflow of its own.
        recipe, dataset: where its batches come from.
        update: updates that it has seen; 0 for a bare weight file.
        checkpoint: None for a bare weight file.
    """

    net: nn.Cell
    recipe: Recipe
    dataset: DataSet
    update: int
    checkpoint: Checkpoint | None


def open_net(
    source: str | Path,
    recipe: Recipe | None = None,
    *,
    device: str = "CPU",
    threads: int = 0,
    data_dir: str = "",
) -> InspectedNet:
    """Build the net of a checkpoint or weight file and find its data.

    Args:
        source: a run folder (its newest intact checkpoint), a checkpoint folder, or with `recipe` a weight file.
        recipe: net and data of a weight file; None for a checkpoint, which knows.
        device, threads: see `RunOptions`.
        data_dir: where the data set lies; "": where it lay in training.

    Raises:
        ValueError: the weights do not fit, or the data set is not there or is another one.
    """
    process.start(device, threads)
    checkpoint = None
    if recipe is None:
        checkpoint = newest_checkpoint(Path(source))
        recipe = recipe_from_dict(checkpoint.state["recipe"])
    recipe = dataclasses.replace(recipe, precision="fp32")
    dataset = open_dataset(
        recipe,
        data_dir,
        caches=[checkpoint.path.parent.parent] if checkpoint else [],
        trained_on=InputSpec.from_dict(checkpoint.state["dataset"]) if checkpoint else None,
        source=checkpoint.path if checkpoint else "",
    )
    net = build_net(recipe, dataset.input)
    if checkpoint is None:
        load_weights(net, source)
    update = checkpoint.state["update"] if checkpoint else 0
    return InspectedNet(net, recipe, dataset, update, checkpoint)


def activations(subject: InspectedNet, most: int = 32, visit: Visitor = ignore) -> tuple[int, list[Figures]]:
    """Every layer's output, in evaluation mode on the first samples of the test set, in execution order.

    The weights are those that an evaluation scores: their moving average, where there is one.

    Args:
        subject: see `open_net`.
        most: samples; a smaller test set gives fewer.
        see: is given each layer's name and output, float64.

    Returns:
        How many samples, and one row for each layer. A layer that runs again is called "layer1.0.relu (2)".
    """
    if subject.checkpoint:
        found = subject.checkpoint
        averages = {**found.weights, **averages_of(found.training)}
        assign_all(tuple(subject.net.get_parameters()), averages, found.path)
    count = min(most, len(subject.dataset.test))
    images, _, _ = next(eval_batches(subject.dataset.test, subject.dataset.input, count))
    rows: list[Figures] = []

    def note(layer: Layer) -> None:
        if layer.output is not None:
            rows.append(dataclasses.replace(figures(layer.title, layer.output), dtype="float32"))
            visit(layer.title, layer.output)

    record_cell(subject.net, images, train=False, visit=note)
    return count, rows


@dataclasses.dataclass(frozen=True)
class GradientFigures:
    """Gradients of the loss on one batch.

    Attributes:
        samples: in the batch.
        loss: the recipe's, with its smoothing, without weight decay.
        layers: the gradient at each layer's output, in execution order.
        parameters: each parameter's gradient, in the net's order; before clipping.
        relative: ‖gradient‖ / ‖parameter‖ for each parameter; infinite where the parameter is 0.
    """

    samples: int
    loss: float
    layers: list[Figures]
    parameters: list[Figures]
    relative: dict[str, float]


def gradients(
    subject: InspectedNet, most: int = 32, visit_layer: Visitor = ignore, visit_parameter: Visitor = ignore
) -> GradientFigures:
    """The gradients that the net's next update would see, in training mode, on the first samples of its batch.

    The weights are training's own, not their moving average. A bare weight file gets the recipe's first batch.

    Args:
        subject: see `open_net`.
        most: samples; a smaller batch gives fewer.
        visit_layer, visit_parameter: are given each layer's or parameter's name and gradient, float32.
    """
    net = subject.net
    if subject.checkpoint:
        assign_all(tuple(net.get_parameters()), subject.checkpoint.weights, subject.checkpoint.path)
    with contextlib.closing(make_feed(subject.dataset, subject.recipe)) as feed:
        images, labels = (part[:most] for part in feed.batch(subject.update))
    recipe = subject.recipe
    loss = make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over)
    layers: list[Figures] = []

    def note(name: str, values: np.ndarray) -> None:
        layers.append(figures(name, values))
        visit_layer(name, values)

    value, found, order = record_gradients(net, images, labels, loss, note)
    layers.sort(key=lambda row: order.index(row.name))
    rows, relative = [], {}
    for parameter in net.trainable_params():
        gradient = found[parameter.name]
        rows.append(figures(parameter.name, gradient))
        visit_parameter(parameter.name, gradient)
        size = float(np.linalg.norm(parameter.asnumpy().astype(np.float64)))
        relative[parameter.name] = rows[-1].norm / size if size else math.inf
    return GradientFigures(len(images), value, layers, rows, relative)


def record_gradients(
    net: nn.Cell, images: np.ndarray, labels: np.ndarray, loss: Loss, visit: Visitor = ignore
) -> tuple[float, dict[str, np.ndarray], list[str]]:
    """Differentiate the loss operation by operation, in training mode; statistics stay as they were.

    Args:
        net: maps images to logits.
        images, labels: one batch, as a step takes it.
        loss: (logits, labels) to the mean loss.
        see: is given each layer's title and the gradient at its output, in backward order.

    Returns:
        The loss, each trainable parameter's gradient by its name, and the layers' titles in execution order.
    """
    calls: dict[str, int] = {}
    order: list[str] = []

    def title(name: str) -> str:
        return f"{name} ({calls[name] + 1})" if calls[name] else name

    handles = []

    def forward(name: str) -> Callable[..., None]:
        def count(*_: object) -> None:
            calls.setdefault(name, 0)
            order.append(title(name))
            calls[name] += 1

        return count

    def backward(name: str) -> Callable[..., None]:
        def note(_: nn.Cell, given: object, gradient: tuple[Tensor | None, ...]) -> None:
            calls[name] -= 1  # backward, the last call comes first
            if isinstance(gradient[0], Tensor):
                visit(title(name), gradient[0].asnumpy())

        return note

    for name, layer in named_layers(net):
        handles += [layer.register_forward_hook(forward(name)), layer.register_backward_hook(backward(name))]
    weights = tuple(net.trainable_params())

    def of_batch(images: Tensor, labels: Tensor) -> Tensor:
        return loss(net(images), labels)

    with unchanged(net, handles):
        net.set_train(True)
        differentiate = mindspore.value_and_grad(of_batch, None, weights)
        value, found = differentiate(Tensor(images), Tensor(labels))
        named = {p.name: gradient.asnumpy() for p, gradient in zip(weights, found, strict=True)}
    return float(value.asnumpy()), named, order
