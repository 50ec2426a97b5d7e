"""These functions say in an export's description how to prepare a picture for the net, with a
sample to check it.
"""

import io
from typing import Any

import numpy as np

from resnet_fn.config.values import to_dict
from resnet_fn.data.input_spec import InputSpec

_NOT_OF_A_PICTURE = ("classes", "data_dir", "train_list", "val_list")
_LUMA = "(19595 R + 38470 G + 7471 B + 32768) >> 16"  # ITU-R 601, as PIL computes it
_ORIENTATION = 6  # of the sample's EXIF data: a quarter turn clockwise shows the picture upright


def describe_preprocessing(spec: InputSpec) -> dict[str, Any]:
    """Return how to prepare a picture, as JSON types.

    The description has the fields of `spec` that concern a picture, more fields for programs, and
    "steps", sentences for people that say the same. A program that has only the description can
    compute the net's input.
    """
    return {
        **{name: value for name, value in to_dict(spec).items() if name not in _NOT_OF_A_PICTURE},
        "exif_orientation": True,
        "colour_order": "grey" if spec.channels == 1 else "RGB",
        "antialias": spec.interpolation != "nearest",
        "resize": "shorter side" if spec.eval_resize else "whole picture",
        "rounded_to": "uint8" if spec.eval_resize else "float32",
        "crop": "centre" if spec.eval_resize else "none",
        "steps": _steps(spec),
    }


def _steps(spec: InputSpec) -> list[str]:
    size = spec.image_size
    side = spec.eval_resize
    channels = spec.channels
    grey = f"to grey, {_LUMA}" if channels == 1 else "to RGB, in this order"
    how = f"with the {spec.interpolation} filter"
    if spec.interpolation != "nearest":
        how += " and antialiasing: if the picture shrinks by a factor, the filter is as much wider"
    steps = [
        "Decode the picture, and turn it by its EXIF orientation.",
        f"Convert it to 8 bits and {grey}. 16 bits become (value + 128) // 257.",
        "Ignore opacity.",
    ]
    if side:
        steps += [
            f"Resize the shorter side to {side} pixels and the longer side to floor({side} * "
            f"longer / shorter), {how}. "
            "Round to 8 bits after the width and again after the height. PIL's Image.resize does "
            "this.",
            f"Crop the centre to {size} x {size} pixels, from left = round((width - {size}) / 2) "
            "and top = "
            f"round((height - {size}) / 2) on. Halves are rounded to the even number.",
        ]
    else:
        steps.append(
            f"Resize the whole picture to {size} x {size} pixels, without a crop, {how}. Compute "
            "in float32 without "
            'rounding. PIL\'s Image.resize does this for an image of mode "F", one for each '
            "channel."
        )
    return [
        *steps,
        f"Divide by full_scale, {spec.full_scale:g}.",
        "Subtract the channel's mean, and divide by the channel's std.",
        f"Order axes as picture, channel, row, column: float32 [N, {channels}, {size}, {size}].",
    ]


def sample_picture(spec: InputSpec) -> bytes:
    """Return a PNG file that comes out differently if any step of the description is left out.

    It is larger than the net's input, not square and turned by its EXIF data. It has fine stripes,
    which need antialiasing, and slopes that differ in each direction and channel.
    """
    from PIL import Image

    side = 3 * max(spec.eval_resize, spec.image_size) // 2 + 1
    rows, columns = np.mgrid[0 : side + side // 3, 0:side]
    red = np.where(columns % 3 == 0, 255, 40) * (rows > side // 3)
    green = 255 * rows // len(rows)
    blue = 255 * columns // side
    exif = Image.Exif()
    file = io.BytesIO()
    exif[0x0112] = _ORIENTATION
    Image.fromarray(np.stack((red, green, blue), -1).astype(np.uint8)).save(file, "PNG", exif=exif)
    return file.getvalue()
