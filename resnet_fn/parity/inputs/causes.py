"""Causes: where the preparations of both sides differ, in words."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from resnet_fn.parity.inputs.decoding import feature_of
from resnet_fn.parity.inputs.fitting import Preparation, Values
from resnet_fn.parity.inputs.pictures import FEATURES
from resnet_fn.parity.inputs.resizing import (
    CORNERS,
    CROP,
    CROP_FIRST,
    LETTERBOX,
    ORIGIN,
    SHORT,
    SQUASH,
    WHOLE,
    Geometry,
)

# Means and standard deviations that are often taken, of pixels in 0..1.
_SETS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR-10's (of one picture each)": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "CIFAR-100's": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "CLIP's": ((0.4815, 0.4578, 0.4082), (0.2686, 0.2613, 0.2758)),
    "0.5 and 0.5, values in -1..1": ((0.5,) * 3, (0.5,) * 3),
    "SVHN's": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "no mean and deviation, pixels in 0..1": ((0.0,) * 3, (1.0,) * 3),
    "no mean and deviation, pixels in 0..255": ((0.0,) * 3, (1 / 255,) * 3),
}
_CLOSE = 0.004  # of means in 0..1 that are equal: one level
_NEAR = 0.002  # relative, of deviations that are equal
_GRAY = (0.299, 0.587, 0.114)


@dataclasses.dataclass(frozen=True)
class Cause:
    """A difference between both preparations."""

    words: str  # "… in the port, … in the reference"
    of: str  # what it belongs to: channels, values, resize, crop or decode
    picture: str = ""  # the picture that shows it, if only awkward ones do


def causes_of(port: Preparation, reference: Preparation) -> list[Cause]:
    """Return where two preparations differ."""
    causes = [*_of_channels(port.values, reference.values)]
    causes += _of_curve(port, reference)
    causes += _of_values(port.values, reference.values)
    causes += _of_geometry(port, reference)
    causes += _of_readings(port.readings, reference.readings)
    return causes


def _cause(
    what: str,
    port: object,
    reference: object,
    of: str,
) -> Cause:
    """Return the cause that `what` is one thing in the port and another in the reference."""
    return Cause(f"{what}: {port} in the port, {reference} in the reference", of)


def channels_of(values: Values) -> str:
    """Return what an array's channels are, for example "RGB", "BGR" or "gray"."""
    shares = values.matrix / values.gain[:, None]
    if np.abs(shares - _GRAY).max() < 0.02:
        return "gray"
    letters = ""
    for row in shares:
        index = int(np.argmax(row))
        if abs(row[index] - 1) > 0.02:
            return "a mixture of RGB"
        letters += "RGB"[index]
    return letters


def _of_channels(port: Values, reference: Values) -> Iterator[Cause]:
    here = channels_of(port)
    there = channels_of(reference)
    if here == there:
        return
    cause = _cause("channels", here, there, "channels")
    if sorted(here) == sorted(there) and _same_values(port, reference):
        note = "means and deviations stay in their places"
        cause = dataclasses.replace(cause, words=f"{cause.words}; {note}")
    yield cause


def _by_colour(port: Values, reference: Values) -> Values:
    """Return the port's values with its channels in the reference's order of colours."""
    here = channels_of(port)
    there = channels_of(reference)
    if here == there or sorted(here) != sorted(there):
        return port
    order = [here.index(colour) for colour in there]
    return Values(port.matrix[order], port.offset[order])


def _of_curve(port: Preparation, reference: Preparation) -> Iterator[Cause]:
    if port.curve != reference.curve:
        yield _cause("gamma", port.curve or "none", reference.curve or "none", "decode")


def mean_and_deviation(values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation, of pixels in 0..1, of each channel."""
    gain = values.gain
    return -values.offset / gain / 255, 1 / gain / 255


def _of_values(port: Values, reference: Values) -> Iterator[Cause]:
    if len(port.offset) != len(reference.offset):
        return
    if _same_values(port, reference):
        return
    # an array that is reversed as a whole has each colour's own mean
    if _same_values(_by_colour(port, reference), reference):
        return
    mean, deviation = mean_and_deviation(port)
    wanted_mean, wanted_deviation = mean_and_deviation(reference)
    mistake = _known_mistake(port, reference)
    mistake = mistake or _known_mistake(_by_colour(port, reference), reference)
    if mistake:
        yield Cause(f"values: {mistake} in the port", "values")
        return
    here = _name_of(*mean_and_deviation(_by_colour(port, reference)))
    there = _name_of(wanted_mean, wanted_deviation)
    if here == there:
        here = _numbers(mean, deviation)
        there = _numbers(wanted_mean, wanted_deviation)
    yield _cause("mean and deviation", here, there, "values")


def _same_values(port: Values, reference: Values) -> bool:
    mean, deviation = mean_and_deviation(port)
    wanted_mean, wanted_deviation = mean_and_deviation(reference)
    return _close(mean, wanted_mean) and _equal(deviation, wanted_deviation)


def _known_mistake(port: Values, reference: Values) -> str:
    """Return the mistake that makes the reference's values the port's, or ""."""
    gain = port.gain
    mean = port.offset / gain / 255
    for mistake, (its_gain, its_offset) in _mistakes(reference).items():
        if _equal(gain, its_gain) and _close(mean, its_offset / its_gain / 255):
            return mistake
    return ""


def _mistakes(reference: Values) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the gain of a level and the offset that each mistake gives."""
    mean, deviation = mean_and_deviation(reference)
    gain = reference.gain
    offset = reference.offset
    if _close(mean, 0 * mean):
        return {
            "pixels not divided by 255": (255 * gain, offset),
            "pixels divided by 256 instead of 255": (gain * 255 / 256, offset),
            "pixels divided by 255 twice": (gain / 255, offset),
        }
    mistakes = {
        "mean and deviation in 0..255 on pixels in 0..1": (gain / 255, offset),
        "pixels in 0..255 with mean and deviation of 0..1": (255 * gain, offset),
        "the mean in 0..255 on pixels in 0..1": (gain, 255 * offset),
        "the mean divided by 255 twice": (gain, offset / 255),
        "the deviation in 0..255 on pixels in 0..1": (gain / 255, offset / 255),
        "the result multiplied by 255": (255 * gain, 255 * offset),
        "pixels divided by 256 instead of 255": (gain * 255 / 256, offset),
        "mean and deviation in the order of BGR": (gain[::-1], offset[::-1]),
        "the mean added instead of subtracted": (gain, -offset),
        "the mean not subtracted": (gain, 0 * offset),
        "not divided by the deviation": (0 * gain + 1 / 255, -mean),
    }
    multiplied = deviation / 255
    mistakes["multiplied by the deviation instead of divided"] = multiplied, -mean * deviation
    if (mean > 0).all():
        exchanged = 1 / (255 * mean)
        mistakes["mean and deviation exchanged"] = exchanged, -deviation / mean
    return mistakes


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    allowed = _NEAR * np.abs(b)
    return bool((np.abs(a - b) <= allowed).all())


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    allowed = _CLOSE + _NEAR * np.abs(b)
    return bool((np.abs(a - b) <= allowed).all())


def _name_of(mean: np.ndarray, deviation: np.ndarray) -> str:
    for name, (means, deviations) in _SETS.items():
        if len(mean) != len(means):
            continue
        same_deviation = _equal(deviation, np.array(deviations))
        if same_deviation and _close(mean, np.array(means)):
            return name
    return _numbers(mean, deviation)


def _numbers(mean: np.ndarray, deviation: np.ndarray) -> str:
    means = ", ".join(f"{number:.4g}" for number in mean)
    deviations = ", ".join(f"{number:.4g}" for number in deviation)
    return f"mean {means}, deviation {deviations}"


def _of_geometry(port: Preparation, reference: Preparation) -> Iterator[Cause]:
    here = port.geometry
    there = reference.geometry
    same_kind = here.kind == there.kind
    if not same_kind:
        order = {here.kind, there.kind} == {SHORT, CROP_FIRST}
        what = "order of crop and resize" if order else "geometry"
        yield _cause(what, _words(here), _words(there), "resize")
    elif here.size != there.size and here.kind == SQUASH:
        yield _cause("geometry", _words(here), _words(there), "resize")
    elif here.size != there.size:
        what = "the short side"
        if here.kind == CROP_FIRST:
            what = "the crop before the resize"
        yield _cause(f"size of {what}", f"{here.size} pixels", there.size, "resize")
    resampled = {here.kind, there.kind}.isdisjoint({CROP, WHOLE})
    if resampled:
        yield from _of_filter(here, there)
    if same_kind:
        yield from _of_rounding(here, there)
        yield from _of_border(port, reference)


def _of_border(port: Preparation, reference: Preparation) -> Iterator[Cause]:
    if port.border is None or reference.border is None:
        return
    here = round(port.border)
    there = round(reference.border)
    if abs(here - there) > 1:
        yield _cause("level of the border", here, there, "resize")


def _words(geometry: Geometry) -> str:
    size = f" ({geometry.size})" if geometry.size else ""
    if geometry.kind == SQUASH and geometry.size:
        return f"squashed to {geometry.size} × {geometry.size}, then cropped"
    if geometry.kind == CROP_FIRST and not geometry.size:
        size = " (the largest square)"
    return f"{geometry.kind}{size}"


def _of_filter(here: Geometry, there: Geometry) -> Iterator[Cause]:
    names = [geometry.filter.partition(" (")[0] for geometry in (here, there)]
    if names[0] != names[1]:
        yield _cause("filter", *_full_names(here, there), "resize")
    elif here.antialias != there.antialias:
        states = ["on" if geometry.antialias else "off" for geometry in (here, there)]
        yield _cause(f"antialiasing of {names[0]}", states[0], states[1], "resize")
    elif here.filter != there.filter:
        yield _cause("filter", here.filter, there.filter, "resize")
    if here.coordinates == there.coordinates or names[0] != names[1]:
        return
    if ORIGIN in (here.coordinates, there.coordinates):
        yield _cause("coordinates", here.coordinates, there.coordinates, "resize")
    else:
        states = [str(geometry.coordinates == CORNERS) for geometry in (here, there)]
        yield _cause("align_corners", states[0], states[1], "resize")


def _full_names(here: Geometry, there: Geometry) -> tuple[str, str]:
    """Return the filters, and whether they antialias if only one does."""
    if here.antialias == there.antialias:
        return here.filter, there.filter
    names = []
    for geometry in (here, there):
        without = "" if geometry.antialias else " without antialiasing"
        names.append(f"{geometry.filter}{without}")
    return names[0], names[1]


def _of_rounding(here: Geometry, there: Geometry) -> Iterator[Cause]:
    if here.long != there.long and here.kind in (SHORT, LETTERBOX):
        yield _cause(
            "rounding of the long side",
            here.long,
            there.long,
            "resize",
        )
    if here.crop != there.crop:
        what = "the picture's offset" if here.kind == LETTERBOX else "the crop's offset"
        yield _cause(f"rounding of {what}", here.crop, there.crop, "crop")


def _of_readings(port: Mapping[str, str], reference: Mapping[str, str]) -> Iterator[Cause]:
    """Yield a cause for each feature that both sides decode in different ways."""
    seen = set[tuple[str, str]]()
    for name, here in port.items():
        there = reference.get(name, "")
        if here and there and here != there and (here, there) not in seen:
            seen.add((here, there))
            feature = FEATURES[feature_of(here)]
            cause = _cause(feature, here, there, "decode")
            yield dataclasses.replace(cause, picture=name)
