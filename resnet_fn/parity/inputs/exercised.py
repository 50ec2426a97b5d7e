"""What the compared pictures did not show."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from resnet_fn.parity.inputs.decoding import PLAIN, decode
from resnet_fn.parity.inputs.fitting import Arrays, Preparation, grid_of
from resnet_fn.parity.inputs.pictures import FEATURES, Picture
from resnet_fn.parity.inputs.pixels import exceeds_rounding
from resnet_fn.parity.inputs.resizing import CORNERS, CROP, SHORT, SQUASH, WHOLE, Geometry, predict

_POINTS = 48  # rows and columns at which two ways to resize are compared


def not_exercised(reference: Preparation | None, arrays: Arrays) -> list[str]:
    """Return a line for each kind of picture, and each choice, that no compared picture shows.

    Args:
        reference: the reference's preparation.
        arrays: the reference's arrays of the pictures that both sides read.
    """
    features = set[str]().union(*(picture.features for picture in arrays))
    lines = [
        f"no picture with {feature}" for name, feature in FEATURES.items() if name not in features
    ]
    if arrays and all("gray" in picture.features for picture in arrays):
        lines.append("the order of channels: every picture has one channel")
    if reference is None:
        return [*lines, "resize and crop: the reference's are not known"]
    for choice, other in _alternatives(reference.geometry):
        if not any(
            _shows(
                picture,
                planes.size,
                reference.geometry,
                other,
            )
            for picture, planes in arrays.items()
        ):
            lines.append(f"{choice}: the same in every picture")
    return lines


def _alternatives(way: Geometry) -> Iterator[tuple[str, Geometry]]:
    """Yield choices that another implementation may make, and the way that it would be then."""
    if way.kind not in (CROP, WHOLE):
        filters = "bicubic" if way.filter == "bilinear" else "bilinear"
        yield "the filter", dataclasses.replace(way, filter=filters)
        if way.antialias:
            yield "antialiasing", dataclasses.replace(way, antialias=False)
        else:
            yield "align_corners", dataclasses.replace(way, coordinates=CORNERS)
    is_cropped = way.kind != WHOLE and (way.kind != SQUASH or way.size)
    if is_cropped and way.crop in ("round", "floor"):
        crop = "floor" if way.crop == "round" else "round"
        yield "the rounding of the crop's offset", dataclasses.replace(way, crop=crop)
    if way.kind == SHORT:
        long = "round" if way.long == "floor" else "floor"
        yield "the rounding of the long side", dataclasses.replace(way, long=long)


def _shows(
    picture: Picture,
    out: tuple[int, int],
    way: Geometry,
    other: Geometry,
) -> bool:
    """Return whether two ways give a picture other pixels, beyond rounding."""
    try:
        pixels, grid = decode(picture, PLAIN), grid_of(out, _POINTS)
        apart = predict(
            pixels,
            way,
            out,
            grid,
        ) - predict(
            pixels,
            other,
            out,
            grid,
        )
    except ValueError:  # the other way does not fit this picture
        return False
    return exceeds_rounding(np.nan_to_num(np.abs(apart), nan=255.0))
