"""A net to look into, and what its layers give on a batch: activations, and the gradients of its loss."""

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor, nn

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.settings import changed
from resnet_fn.data.balance import class_weights
from resnet_fn.data.dataset import DataSet, eval_batches
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.loaded_net import assign_checkpoint, load_run, open_trained_dataset
from resnet_fn.inspect.statistics import ArrayStatistics, array_statistics
from resnet_fn.models import build_net
from resnet_fn.models.inputs import make_noise
from resnet_fn.parity.layers.cells import named_layers, record_cell, unchanged
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.update.loss import Loss, make_loss
from resnet_fn.weights.load import load_weights, name_model, read_weights

# Is called with each array as it is computed: its name and values. All of them together can be gigabytes.
Visitor = Callable[[str, np.ndarray], None]

PRECISION = "fp32"  # whatever the recipe's: half precision would add overflow of its own


@dataclasses.dataclass(frozen=True)
class InspectedNet:
    """A net to look into, and its data.

    Attributes:
        net: maps float32 [N, C, H, W] to logits [N, classes], in float32.
        recipe, dataset: where its batches come from.
        checkpoint: None for a bare weight file.
    """

    net: nn.Cell
    recipe: Recipe
    dataset: DataSet
    checkpoint: Checkpoint | None

    @property
    def update(self) -> int:
        """Updates that it has seen; 0 for a bare weight file."""
        return int(self.checkpoint.state["update"]) if self.checkpoint else 0


def open_net(
    source: str | Path,
    recipe: Recipe | None = None,
    data_dir: str = "",
    lists: tuple[str, str] = ("", ""),
    check: str = "auto",
    which: str = "last",
) -> InspectedNet:
    """Build the net of a run or checkpoint folder, or with `recipe` of a weight file, and open its data set.

    A ValueError names weights that do not fit, or a data set that is not there or another one.
    """
    if recipe is None:
        loaded = load_run(source, which, precision=PRECISION, allow_non_finite=True)
        dataset = open_trained_dataset(loaded, data_dir, splits=("train", "test"))
        return InspectedNet(loaded.net, loaded.recipe, dataset, loaded.checkpoint)
    recipe = changed(recipe, precision=PRECISION)
    weights = read_weights(source)
    recipe = name_model(recipe, weights)
    dataset = open_dataset(recipe, data_dir, lists=lists, check=check)
    net = build_net(recipe, dataset.input)
    load_weights(net, weights, allow_non_finite=True)
    return InspectedNet(net, recipe, dataset, None)


def activations(inspected: InspectedNet, limit: int, visit: Visitor) -> tuple[int, list[ArrayStatistics]]:
    """Every layer's output, in evaluation mode on the first samples of the validation set, in execution order.

    The weights are those that an evaluation scores: their moving average, where there is one.

    Args:
        limit: samples; a smaller validation set gives fewer.
        visit: is called with each layer's name and output, float64.

    Returns:
        How many samples, and one row for each layer. A layer that runs again is called "layer1.0.relu (2)".
    """
    net, dataset = inspected.net, inspected.dataset
    if inspected.checkpoint:
        assign_checkpoint(net, inspected.checkpoint)
    count = min(limit, len(dataset.test))
    images, _, _ = next(eval_batches(dataset.test, dataset.input, count))
    rows: list[ArrayStatistics] = []

    def note(layer: Layer) -> None:
        if layer.output is not None:
            rows.append(dataclasses.replace(array_statistics(layer.title, layer.output), dtype="float32"))
            visit(layer.title, layer.output)

    record_cell(net, [Tensor(images)], train=False, visit=note)
    return count, rows


@dataclasses.dataclass(frozen=True)
class GradientStatistics:
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
    layers: list[ArrayStatistics]
    parameters: list[ArrayStatistics]
    relative: dict[str, float]


def gradients(
    inspected: InspectedNet, limit: int, visit_layer: Visitor, visit_parameter: Visitor
) -> GradientStatistics:
    """The gradients that the net's next update would see, in training mode, on the first samples of its batch.

    The weights are training's own, not their moving average. A bare weight file gets the recipe's first batch.

    Args:
        limit: samples; a smaller batch gives fewer.
        visit_layer, visit_parameter: are called with each layer's or parameter's name and gradient, float32.
    """
    net, recipe = inspected.net, inspected.recipe
    if inspected.checkpoint:
        assign_checkpoint(net, inspected.checkpoint, ema=False)
    with contextlib.closing(make_feed(inspected.dataset, recipe)) as feed:
        images, labels = (part[:limit] for part in feed.batch(inspected.update))
    noise = [part if part is None else part[:limit] for part in make_noise(recipe, net)(inspected.update)]
    dataset = inspected.dataset
    weights = class_weights(recipe.class_weights, dataset.classes, dataset.train.labels)
    loss = make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over, weights)
    layers: list[ArrayStatistics] = []

    def note(name: str, values: np.ndarray) -> None:
        layers.append(array_statistics(name, values))
        visit_layer(name, values)

    value, by_name, order = _record_gradients(net, images, labels, noise, loss, note)
    layers.sort(key=lambda row: order.index(row.name))
    rows, relative = [], {}
    for parameter in net.trainable_params():
        gradient = by_name[parameter.name]
        rows.append(array_statistics(parameter.name, gradient))
        visit_parameter(parameter.name, gradient)
        size = float(np.linalg.norm(parameter.asnumpy().astype(np.float64)))
        relative[parameter.name] = rows[-1].norm / size if size else math.inf
    return GradientStatistics(len(images), value, layers, rows, relative)


def _record_gradients(
    net: nn.Cell, images: np.ndarray, labels: np.ndarray, noise: Sequence[Tensor | None], loss: Loss, visit: Visitor
) -> tuple[float, dict[str, np.ndarray], list[str]]:
    """Differentiate the loss operation by operation, in training mode; statistics stay as they were.

    `visit` is called with each layer's title and the gradient at its output, in backward order. Returns the loss, each
    trainable parameter's gradient by its name, and the layers' titles in execution order.
    """
    calls: Counter[str] = Counter()
    order: list[str] = []
    handles: list[object] = []

    def record(name: str, layer: nn.Cell) -> None:
        def title() -> str:
            return f"{name} ({calls[name] + 1})" if calls[name] else name

        def forward(*_: object) -> None:
            order.append(title())
            calls[name] += 1

        def backward(_: nn.Cell, given: object, gradient: tuple[Tensor | None, ...]) -> None:
            calls[name] -= 1  # backward, the last call comes first
            if isinstance(gradient[0], Tensor):
                visit(title(), gradient[0].asnumpy())

        handles.extend((layer.register_forward_hook(forward), layer.register_backward_hook(backward)))

    for name, layer in named_layers(net):
        record(name, layer)
    weights = tuple(net.trainable_params())

    def of_batch(images: Tensor, labels: Tensor) -> Tensor:
        return loss(net(images, *noise), labels)

    with unchanged(net, handles):
        net.set_train(True)
        value, in_order = mindspore.value_and_grad(of_batch, None, weights)(Tensor(images), Tensor(labels))
        named = {p.name: gradient.asnumpy() for p, gradient in zip(weights, in_order, strict=True)}
    return float(value.asnumpy()), named, order
