"""What every layer of a net gives on the first samples of the test set."""

import dataclasses

from mindspore import Tensor

from resnet_fn.data.eval_batches import eval_batches
from resnet_fn.evaluation.loaded_net import assign_checkpoint
from resnet_fn.inspect.inspected_net import InspectedNet, Visitor
from resnet_fn.inspect.statistics import ArrayStatistics, array_statistics
from resnet_fn.layers.cells import record_cell
from resnet_fn.layers.layer import Layer


def activations(inspected: InspectedNet, limit: int, visit: Visitor) -> tuple[int, list[ArrayStatistics]]:
    """Every layer's output, in evaluation mode on the first samples of the test set, in execution order.

    The weights are those that an evaluation scores: their moving average, where there is one.

    Args:
        inspected: see `open_net`.
        limit: samples; a smaller test set gives fewer.
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
