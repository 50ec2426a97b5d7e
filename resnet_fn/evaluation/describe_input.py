"""`describe_preprocessing` says in an export's description how to prepare a picture for the net."""

from typing import Any

from resnet_fn.config.fields import to_dict
from resnet_fn.data.input_spec import InputSpec

_NOT_OF_A_PICTURE = ("classes", "data_dir", "train_list", "val_list")
_LUMA = "(19595 R + 38470 G + 7471 B + 32768) >> 16"  # PIL's conversion to "L", of ITU-R 601


def describe_preprocessing(spec: InputSpec) -> dict[str, Any]:
    """Return how to prepare a picture, as JSON types.

    The description has the fields of `spec` that concern a picture, further fields with numbers and names that programs
    can read, and "steps", sentences for people that mention all of them. The fields suffice to compute the same input.
    """
    fields = {name: value for name, value in to_dict(spec).items() if name not in _NOT_OF_A_PICTURE}
    size, side = spec.image_size, spec.eval_resize
    grey = spec.channels == 1
    more = {
        "colour_order": "grey" if grey else "RGB",
        "exif_orientation": True,
        "alpha": "ignored",
        "antialias": True,
        "resize": "shorter side" if side else "whole image",
        "resize_to": side or [size, size],
        "longer_side": "floor" if side else None,
        "rounding_after_resize": "uint8" if side else "none",
        "crop": "centre" if side else "none",
        "crop_offset": "half to even" if side else None,
        "formula": "(pixel / full_scale - mean) / std",
    }
    return {**fields, **more, "steps": _steps(spec)}


def _steps(spec: InputSpec) -> list[str]:
    size, side, filter_name = spec.image_size, spec.eval_resize, spec.interpolation
    antialiased = (
        f"the {filter_name} filter and antialiasing (when an image shrinks, the filter is as many times wider)"
    )
    colours = f"grey: {_LUMA}" if spec.channels == 1 else "RGB, in this order"
    steps = [
        "Decode the picture, and turn it as its EXIF orientation says.",
        f"Convert it to 8 bits and to {colours}. 16 bits become (v + 128) // 257. Opacity is ignored.",
    ]
    if side:
        steps += [
            f"Resize the shorter side to {side} pixels, and the longer side to floor({side} * longer / shorter), with "
            f"{antialiased}: first the width, then the height, each rounded to 8 bits. PIL's resize does this.",
            f"Crop {size} x {size} pixels at the centre: left = round((width - {size}) / 2), top = "
            f"round((height - {size}) / 2), where halves are rounded to the even number.",
        ]
    else:
        steps += [
            f"Resize the whole picture to {size} x {size} pixels, without a crop, with {antialiased}, in float32 "
            "without rounding. PIL's resize does this for each channel of mode F.",
        ]
    return [
        *steps,
        f"Divide by {spec.full_scale:g}, subtract mean, and divide by std, for each channel.",
        f"Order the axes as batch, channel, height, width: float32 [N, {spec.channels}, {size}, {size}].",
    ]
