"""These functions make pictures of samples, and heat maps of the evidence for a class
(Grad-CAM).
"""

import io
from collections.abc import Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn

from resnet_fn.config.printing import in_utf8
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.image_file import open_image

_PNG_UP_TO = 64  # largest width of a PNG in pixels; a photograph is five times smaller as a JPEG
_AT_A_TIME = 8  # images in a batch
_HEAT = np.array([255.0, 40.0, 0.0])
_OPACITY = 0.7


def sample_name(dataset: DataSet, index: int) -> str:
    """Return the file name of a validation image, or the number of the image if the data set has no
    file names.
    """
    names = getattr(dataset.test, "names", ())
    return in_utf8(names[index]) if names else f"validation-{index:05d}"


def sample_pictures(dataset: DataSet, indices: list[int]) -> list[bytes]:
    """Return validation images, cropped as in evaluation, as PNG files if they are small, or else
    as JPEG files.
    """
    from PIL import Image

    mean, std = (values[:, None, None] for values in dataset.input.moments)
    pictures = []
    for images in dataset.test.eval_images([np.array([index]) for index in indices], dataset.input):
        pixels = (
            (np.clip(images[0] * std + mean, 0, 1) * 255)
            .round()
            .astype(np.uint8)
            .transpose(1, 2, 0)
        )
        image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        file = io.BytesIO()
        image.save(file, "PNG" if image.width <= _PNG_UP_TO else "JPEG", quality=90)
        pictures.append(file.getvalue())
    return pictures


def class_maps(net: nn.Cell, images: np.ndarray, classes: Sequence[int]) -> np.ndarray:
    """Compute heat maps of the evidence for a class in each image with Grad-CAM (arXiv 1610.02391).

    `net` is a `ResNet`, and `images` are float32 [n, C, H, W]. Returns float32 [n, h, w] from 0 to
    1.
    """
    net.set_train(False)
    features: list[np.ndarray] = []

    def keep(cell: nn.Cell, inputs: Any, output: Tensor) -> None:
        features.append(output.astype(mindspore.float32).numpy())

    handle = net.blocks[-1].register_forward_hook(keep)
    try:
        for start in range(0, len(images), _AT_A_TIME):
            net(Tensor(images[start : start + _AT_A_TIME]))
    finally:
        handle.remove()
    # Grad-CAM without a gradient: after the mean over H and W and the Dense layer, a logit's
    # gradient by a channel of the last stage is the channel's weight / (H · W).
    weights = net.fc.weight.numpy().astype(np.float32)[list(classes)]
    maps = np.maximum(np.einsum("nk,nkhw->nhw", weights, np.concatenate(features)), 0)
    return maps / np.maximum(maps.max((1, 2), keepdims=True), np.float32(1e-12))


def heat_picture(picture: bytes, heat: np.ndarray) -> bytes:
    """Draw a heat map, float32 [h, w] from 0 to 1, in red over an image file, and keep the file
    format.
    """
    from PIL import Image

    image = open_image(picture)
    kind = image.format
    pixels = np.asarray(image.convert("RGB"), np.float64)
    large = np.asarray(
        Image.fromarray(heat).resize(image.size, Image.Resampling.BILINEAR), np.float64
    )
    share = _OPACITY * large.clip(0, 1)[:, :, None]
    file = io.BytesIO()
    Image.fromarray((pixels * (1 - share) + _HEAT * share).round().astype(np.uint8)).save(
        file, kind, quality=90
    )
    return file.getvalue()
