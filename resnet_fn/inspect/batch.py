"""These functions record the activations or the gradients of a net on one batch."""

import contextlib
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn

from resnet_fn.data.balance import class_weights
from resnet_fn.data.dataset import DataSet, eval_batches
from resnet_fn.data.feed import make_feed
from resnet_fn.evaluation.loaded_net import LoadedNet, assign_checkpoint
from resnet_fn.inspect.statistics import ArrayStatistics, array_statistics
from resnet_fn.models.inputs import make_masks
from resnet_fn.parity.record.cells import record_cell, unchanged
from resnet_fn.parity.record.layers import recorded_layers
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.update.loss import make_loss

# A function that gets the kind, name and values of one array. All arrays together can take
# gigabytes.
Visitor = Callable[[str, str, np.ndarray], None]


@dataclasses.dataclass(frozen=True)
class Gradients:
    """The statistics of the gradients on one batch."""

    samples: int
    loss: float  # mean loss of the samples, without weight decay
    # statistics of gradients at the layers' outputs, in execution order
    layers: list[ArrayStatistics]
    parameters: list[ArrayStatistics]  # statistics of the parameters' gradients, before clipping
    relative: dict[str, float]  # ‖gradient‖ / ‖parameter‖, by the parameter's name


def activations(
    loaded: LoadedNet, dataset: DataSet, limit: int, visit: Visitor
) -> tuple[int, list[ArrayStatistics]]:
    """Return the number of validation samples (at most `limit`), and the statistics of each layer's
    output.
    """
    net = loaded.net
    if loaded.checkpoint:
        # the moving average if there is one, as in an evaluation
        assign_checkpoint(net, loaded.checkpoint)
    count = min(limit, len(dataset.test))
    images, _, _ = next(eval_batches(dataset.test, dataset.input, count))
    rows: list[ArrayStatistics] = []

    def note(layer: Layer) -> None:
        if layer.output is not None:
            output = layer.output.astype(np.float32)  # the dtype of the net's output
            rows.append(array_statistics(layer.title, output))
            visit("activations", layer.title, output)

    record_cell(net, lambda: net(Tensor(images)), train=False, visit=note)
    return count, rows


def gradients(loaded: LoadedNet, dataset: DataSet, limit: int, visit: Visitor) -> Gradients:
    """Compute gradients on the first `limit` samples of the batch that training would use next."""
    net = loaded.net
    recipe = loaded.recipe
    if loaded.checkpoint:
        assign_checkpoint(net, loaded.checkpoint, ema=False)
    with contextlib.closing(make_feed(dataset, recipe)) as feed:
        images, labels = (part[:limit] for part in feed.batch(loaded.update))
    masks = [
        part if part is None else part[:limit] for part in make_masks(recipe, net)(loaded.update)
    ]
    saved = loaded.checkpoint.state["class_weights"] if loaded.checkpoint else ()
    every_label = dataset.train.labels
    weights = class_weights(
        recipe.class_weights, dataset.classes, every_label, recipe.sampling, saved
    )
    loss = make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over, weights)
    layers: dict[str, ArrayStatistics | None] = {}
    handles = [
        hook
        for name, layer in recorded_layers(net)
        for hook in _add_hooks(name, layer, layers, visit)
    ]
    trained = tuple(net.trainable_params())
    with unchanged(net.get_parameters(), handles):
        net.set_train(True)
        differentiate = mindspore.value_and_grad(
            lambda x, y: loss(net(x, *masks), y), None, trained
        )
        value, of_parameters = differentiate(Tensor(images), Tensor(labels))
    parameters = []
    relative = {}
    for parameter, gradient in zip(trained, of_parameters, strict=True):
        parameters.append(array_statistics(parameter.name, gradient.numpy()))
        visit("gradients", parameter.name, gradient.numpy())
        size = float(np.linalg.norm(parameter.numpy().astype(np.float64)))
        relative[parameter.name] = parameters[-1].norm / size if size else math.inf
    return Gradients(
        len(images),
        float(value.numpy()),
        [row for row in layers.values() if row],
        parameters,
        relative,
    )


def _add_hooks(
    name: str, layer: nn.Cell, rows: dict[str, ArrayStatistics | None], visit: Visitor
) -> list[Any]:
    """Add hooks that put the statistics of the output gradients into `rows`, in the order of the
    forward pass.
    """
    titles: list[str] = []

    def forward(*_: object) -> None:
        titles.append(f"{name} ({len(titles) + 1})" if titles else name)
        rows[titles[-1]] = None

    def backward(
        _: nn.Cell, gradient_of_inputs: object, gradient: tuple[Tensor | None, ...]
    ) -> None:
        title = titles.pop()  # the backward pass visits the calls in reverse order
        if isinstance(gradient[0], Tensor):
            rows[title] = array_statistics(title, gradient[0].numpy())
            visit("output_gradients", title, gradient[0].numpy())

    return [layer.register_forward_hook(forward), layer.register_backward_hook(backward)]
