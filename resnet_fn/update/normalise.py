"""Normalisation on the device: for images that are handed over as bytes."""

from collections.abc import Callable

import mindspore
from mindspore import Tensor

from resnet_fn.data.input_spec import InputSpec
from resnet_fn.models.positions import spread


def make_normalise(spec: InputSpec) -> Callable[[Tensor], Tensor]:
    """What `data/normalise.normalise` computes, in its order, for a compiled function.

    Returns:
        normalise(images): uint8 [n, C, H, W] to float32 [n, C, H, W].
    """
    mean, std = (Tensor(values[:, None, None]) for values in spec.moments)
    full_scale = spec.full_scale

    def normalise(images: Tensor) -> Tensor:
        scaled = images.astype(mindspore.float32) / full_scale
        return (scaled - spread(mean, scaled)) / spread(std, scaled)

    return normalise
