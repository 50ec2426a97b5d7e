"""A trained net from a checkpoint, as evaluation, prediction and export use it."""

import dataclasses
from pathlib import Path
from typing import Any

from mindspore import Tensor, nn

from resnet_fn.checkpoint.folder import Checkpoint, CheckpointError
from resnet_fn.checkpoint.parameters import assign_all
from resnet_fn.checkpoint.run_folder import find_checkpoint
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.models.build import build_net
from resnet_fn.update.ema import averages_of


@dataclasses.dataclass(frozen=True)
class LoadedNet:
    """A net with a checkpoint's weights, in evaluation mode, and what it must be fed.

    Attributes:
        net: maps float32 [N, channels, image_size, image_size] to logits [N, classes].
        recipe: the checkpoint's, but for another image size where one was asked for.
        input: the checkpoint's "dataset": "classes", "channels", "image_size", "full_scale", "mean", "std";
            "eval_resize", where it is above 0, is the shorter side of an image before its centre is cut.
        checkpoint: where it came from.
        averaged: whether these are averaged weights (EMA).
    """

    net: nn.Cell
    recipe: Recipe
    input: dict[str, Any]
    checkpoint: Checkpoint
    averaged: bool = False

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a logit's place is an index into them."""
        return tuple(self.input["classes"])

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return int(self.input["channels"])


@dataclasses.dataclass(frozen=True)
class _Input:
    classes: tuple[str, ...]
    channels: int


def load_net(path: str | Path, which: str = "last", *, ema: bool | None = None, image_size: int = 0) -> LoadedNet:
    """Build the net that a checkpoint describes and put its weights in. The data set itself is not needed.

    Args:
        path: a run folder or a checkpoint folder.
        which: of a run folder, the "last" or the "best" checkpoint.
        ema: take the exponential moving average of the weights; False: the weights themselves; None: the average
            where the checkpoint holds one, which is what training's own evaluation scores.
        image_size: height and width that the net sees; 0 for the recipe's own.

    Raises:
        CheckpointError: no intact checkpoint there, it does not fit its own recipe, or it holds no EMA weights.
    """
    found = find_checkpoint(Path(path), which)
    recipe = recipe_from_dict(found.state["recipe"])
    described = dict(found.state["dataset"])
    if image_size:
        # eval_resize 0: the shorter side in proportion. The net is built for the size that it was trained with.
        recipe = dataclasses.replace(recipe, eval_size=image_size, eval_resize=0)
        described["image_size"] = image_size
        if described.get("eval_resize"):
            described["eval_resize"] = recipe.evaluation_resize
    net = build_net(recipe, _Input(tuple(described["classes"]), described["channels"]))
    averages = averages_of(found.training)
    if ema and not averages:
        raise CheckpointError(f"{found.path}: holds no EMA weights; leave out --ema, or train with --ema 0.999")
    use = bool(averages) and ema is not False
    # What is not averaged is the net's own.
    assign_all(tuple(net.get_parameters()), {**found.weights, **averages} if use else found.weights, found.path)
    net.set_train(False)
    return LoadedNet(net, recipe, described, found, use)


class FlipAverage(nn.Cell):
    """Test-time augmentation: the mean of the logits of an image and of its mirror image."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to logits [N, classes]."""
        return (self.net(x) + self.net(x.flip((3,)))) * 0.5
