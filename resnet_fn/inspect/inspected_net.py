"""A net to look into, from a checkpoint or a bare weight file, and the data set that its batches come from."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mindspore import nn

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.config.fields import changed
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.loaded_net import load_net, open_trained_dataset
from resnet_fn.models import build_net
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
) -> InspectedNet:
    """Build the net of a checkpoint or weight file and find its data.

    Args:
        source: a run folder (its newest intact checkpoint), a checkpoint folder, or with `recipe` a weight file.
        recipe: net and data of a weight file; None for a checkpoint, which knows.
        data_dir: where the data set lies; "": where it lay in training.
        lists, check: with `recipe`, see `open_dataset`.

    Raises:
        ValueError: the weights do not fit, or the data set is not there or is another one.
    """
    if recipe is None:
        loaded = load_net(source, precision=PRECISION, allow_non_finite=True)
        dataset = open_trained_dataset(loaded, data_dir, splits=("train", "test"))
        return InspectedNet(loaded.net, loaded.recipe, dataset, loaded.checkpoint)
    recipe = changed(recipe, precision=PRECISION)
    if not recipe.model:
        recipe = name_model(recipe, read_weights(source))
    dataset = open_dataset(recipe, data_dir, lists=lists, check=check)
    net = build_net(recipe, dataset.input)
    load_weights(net, source, allow_non_finite=True)
    return InspectedNet(net, recipe, dataset, None)
