"""This module makes masks for stochastic depth and dropout, and normalises uint8 images on the
device.

The masks are drawn on the host, because a checkpoint cannot restore the random state of MindSpore's
Dropout.
"""

from collections.abc import Callable

import mindspore
import numpy as np
from mindspore import Tensor, nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.order import Streams
from resnet_fn.models.positions import broadcast_hw
from resnet_fn.runtime.workers import Workers

Masks = Callable[[int], tuple[Tensor | None, ...]]


def make_masks(recipe: Recipe, net: nn.Cell, workers: Workers = Workers()) -> Masks:
    """Create a function that draws the masks of stochastic depth and dropout for one update.

    The function maps an update's number to the pair (`keep`, `mask`), or to () if the recipe uses
    neither mask. `keep`, float32 [n, blocks], multiplies the residual branches of this worker's n
    samples. `mask`, float32 [n, features], multiplies the input of the last layer. A mask is None
    if the recipe does not use it.

    Stochastic depth (Huang et al., arXiv 1603.09382) drops block b of blocks 0 to B with
    probability drop_path · b / B. Dropout is from Hinton et al., arXiv 1207.0580. Kept values are
    divided by the probability of keeping a value.
    """
    if not (recipe.drop_path or recipe.dropout):
        return lambda _: ()
    blocks, features = len(net.blocks), net.fc.in_channels
    count = recipe.batch_size // workers.size
    local = slice(workers.rank * count, (workers.rank + 1) * count)
    depth = recipe.drop_path * np.arange(blocks) / max(blocks - 1, 1)

    def draw(stream: int, update: int, left_out: np.ndarray) -> Tensor:
        # Drawn for all samples of the update, so that the masks do not depend on the number of
        # workers.
        rng = np.random.default_rng([recipe.seed, update, stream])
        stays = rng.random((recipe.batch_size, len(left_out)))[local] >= left_out
        return Tensor((stays / (1.0 - left_out)).astype(np.float32))

    def masks(update: int) -> tuple[Tensor | None, ...]:
        keep = draw(Streams.DROP_PATH, update, depth) if recipe.drop_path else None
        return keep, draw(
            Streams.DROPOUT, update, np.full(features, recipe.dropout)
        ) if recipe.dropout else None

    return masks


def normalisation(spec: InputSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Return the constants of `normalise`: the divisor of pixels, the mean and the standard
    deviation.
    """
    mean, std = (Tensor(values[:, None, None]) for values in spec.moments)
    return Tensor(spec.full_scale, mindspore.float32), mean, std


def normalise(images: Tensor, constants: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Convert uint8 images [n, C, H, W] to float32 as (images / divisor − mean) / standard
    deviation.
    """
    full_scale, mean, std = constants
    scaled = images.astype(mindspore.float32) / full_scale
    return (scaled - broadcast_hw(mean, scaled)) / broadcast_hw(std, scaled)
