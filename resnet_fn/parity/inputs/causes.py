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
    return [
        *_of_channels(port.values, reference.values),
        *_of_curve(port, reference),
        *_of_values(port.values, reference.values),
        *_of_geometry(port, reference),
        *_of_readings(port.readings, reference.readings),
    ]


def _sides(port: object, reference: object) -> str:
    return f"{port} in the port, {reference} in the reference"


def channels_of(values: Values) -> str:
    """Return what an array's channels are, for example "RGB", "BGR" or "gray"."""
    shares = values.matrix / values.matrix.sum(1, keepdims=True)
    if np.abs(shares - _GRAY).max() < 0.02:
        return "gray"
    letters = ""
    for row in shares:
        place = int(np.argmax(row))
        if abs(row[place] - 1) > 0.02:
            return "a mixture of RGB"
        letters += "RGB"[place]
    return letters


def _of_channels(port: Values, reference: Values) -> Iterator[Cause]:
    here = channels_of(port)
    there = channels_of(reference)
    if here == there:
        return
    note = ""
    if sorted(here) == sorted(there) and _same_values(port, reference):
        note = "; each channel has the mean and deviation of the reference's at its place"
    yield Cause(f"channels: {_sides(here, there)}{note}", "channels")


def _by_colour(port: Values, reference: Values) -> Values:
    """Return the port's values with its channels in the reference's order of colours."""
    here = channels_of(port)
    there = channels_of(reference)
    if sorted(here) != sorted(there):
        return port
    order = [here.index(colour) for colour in there]
    return Values(port.matrix[order], port.offset[order])


def _of_curve(port: Preparation, reference: Preparation) -> Iterator[Cause]:
    if port.curve != reference.curve:
        sides = _sides(port.curve or "no gamma", reference.curve or "no gamma")
        yield Cause(f"gamma: {sides}", "decode")


def mean_and_deviation(values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation, of pixels in 0..1, of each channel."""
    gain = values.matrix.sum(1)
    return -values.offset / gain / 255, 1 / gain / 255


def _of_values(port: Values, reference: Values) -> Iterator[Cause]:
    if len(port.offset) != len(reference.offset) or _same_values(port, reference):
        return
    # an array that is reversed as a whole has each colour's own mean
    if _same_values(_by_colour(port, reference), reference):
        return
    mean, deviation = mean_and_deviation(port)
    wanted_mean, wanted_deviation = mean_and_deviation(reference)
    words = _known_mistake(port, reference)
    words = words or _known_mistake(_by_colour(port, reference), reference)
    if words:
        yield Cause(f"values: {words} in the port", "values")
        return
    names = _name_of(mean, deviation), _name_of(wanted_mean, wanted_deviation)
    if names[0] == names[1]:
        names = _numbers(mean, deviation), _numbers(wanted_mean, wanted_deviation)
    yield Cause(f"mean and deviation: {_sides(*names)}", "values")


def _same_values(port: Values, reference: Values) -> bool:
    mean, deviation = mean_and_deviation(port)
    wanted_mean, wanted_deviation = mean_and_deviation(reference)
    return _close(mean, wanted_mean) and _equal(deviation, wanted_deviation)


def _known_mistake(port: Values, reference: Values) -> str:
    """Return the mistake that makes the reference's values the port's, or ""."""
    mean, deviation = mean_and_deviation(reference)
    gain, offset = port.matrix.sum(1), port.offset
    other_gain, other_offset = reference.matrix.sum(1), reference.offset
    neutral = _close(mean, 0 * mean)
    exchanged = 1 / (255 * mean) if (mean > 0).all() else 0 * mean
    mistakes = {
        "mean and deviation exchanged": (exchanged, -deviation * exchanged * 255),
        "mean and deviation in 0..255 on pixels in 0..1": (other_gain / 255, other_offset),
        "pixels in 0..255 with mean and deviation of 0..1": (255 * other_gain, other_offset),
        "the mean in 0..255 on pixels in 0..1": (other_gain, 255 * other_offset),
        "the mean divided by 255 twice": (other_gain, other_offset / 255),
        "the deviation in 0..255 on pixels in 0..1": (other_gain / 255, other_offset / 255),
        "the result multiplied by 255": (255 * other_gain, 255 * other_offset),
        "pixels divided by 256 instead of 255": (other_gain * 255 / 256, other_offset),
        "mean and deviation in the order of BGR": (other_gain[::-1], other_offset[::-1]),
        "the mean added instead of subtracted": (other_gain, -other_offset),
        "multiplied by the deviation instead of divided": (
            deviation / 255,
            -mean * deviation,
        ),
        "the mean not subtracted": (other_gain, 0 * other_offset),
        "not divided by the deviation": (0 * gain + 1 / 255, -mean),
    }
    if neutral:
        plain = ("pixels in 0..255 with mean and deviation of 0..1", "the result multiplied by 255")
        mistakes = {"pixels not divided by 255": mistakes[plain[1]], **mistakes}
        for name in (*plain, "the mean not subtracted", "not divided by the deviation"):
            del mistakes[name]
    for words, (its_gain, its_offset) in mistakes.items():
        if _equal(gain, its_gain) and _close(offset / gain / 255, its_offset / gain / 255):
            return words
    return ""


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=_NEAR, atol=0))


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((np.abs(a - b) <= _CLOSE + _NEAR * np.abs(b)).all())


def _name_of(mean: np.ndarray, deviation: np.ndarray) -> str:
    for name, (means, deviations) in _SETS.items():
        if len(mean) != len(means):
            continue
        if _close(mean, np.array(means)) and _equal(deviation, np.array(deviations)):
            return name
    return _numbers(mean, deviation)


def _numbers(mean: np.ndarray, deviation: np.ndarray) -> str:
    means = ", ".join(f"{one:.4g}" for one in mean)
    return f"mean {means}, deviation {', '.join(f'{one:.4g}' for one in deviation)}"


def _of_geometry(port: Preparation, reference: Preparation) -> Iterator[Cause]:
    here, there = port.geometry, reference.geometry
    if here.kind != there.kind:
        of = "crop" if WHOLE not in (here.kind, there.kind) else "resize"
        order = {here.kind, there.kind} == {SHORT, CROP_FIRST}
        words = "order of crop and resize" if order else "geometry"
        yield Cause(f"{words}: {_sides(_words(here), _words(there))}", of)
    elif here.size != there.size:
        what = "the crop before the resize" if here.kind == CROP_FIRST else "the short side"
        sides = _sides(f"{here.size} pixels", f"{there.size}")
        yield Cause(f"size of {what}: {sides}", "resize")
    resampled = {here.kind, there.kind}.isdisjoint({CROP, WHOLE})
    if resampled:
        yield from _of_filter(here, there)
    if here.kind == there.kind:
        yield from _of_rounding(here, there)
    if here.kind == there.kind and None not in (port.border, reference.border):
        levels = round(port.border or 0), round(reference.border or 0)
        if abs(levels[0] - levels[1]) > 1:
            yield Cause(f"level of the border: {_sides(*levels)}", "resize")


def _words(geometry: Geometry) -> str:
    size = f" ({geometry.size})" if geometry.size else ""
    if geometry.kind == CROP_FIRST and not geometry.size:
        size = " (the largest square)"
    return f"{geometry.kind}{size}"


def _of_filter(here: Geometry, there: Geometry) -> Iterator[Cause]:
    plain = [one.filter.partition(" (")[0] for one in (here, there)]
    if plain[0] != plain[1]:
        names = here.filter, there.filter
        without = [" without antialiasing" * (not one.antialias) for one in (here, there)]
        without = ["", ""] if without[0] == without[1] else without
        names = f"{names[0]}{without[0]}", f"{names[1]}{without[1]}"
        yield Cause(f"filter: {_sides(*names)}", "resize")
    elif here.antialias != there.antialias:
        states = ["on" if one.antialias else "off" for one in (here, there)]
        yield Cause(f"antialiasing of {plain[0]}: {_sides(*states)}", "resize")
    elif here.filter != there.filter:
        yield Cause(f"filter: {_sides(here.filter, there.filter)}", "resize")
    if here.coordinates != there.coordinates and plain[0] == plain[1]:
        if ORIGIN in (here.coordinates, there.coordinates):
            yield Cause(f"coordinates: {_sides(here.coordinates, there.coordinates)}", "resize")
        else:
            states = [str(one.coordinates == CORNERS) for one in (here, there)]
            yield Cause(f"align_corners: {_sides(*states)}", "resize")


def _of_rounding(here: Geometry, there: Geometry) -> Iterator[Cause]:
    if here.long != there.long and here.kind in (SHORT, LETTERBOX):
        yield Cause(f"rounding of the long side: {_sides(here.long, there.long)}", "resize")
    if here.crop != there.crop:
        what = "the picture's offset" if here.kind == LETTERBOX else "the crop's offset"
        yield Cause(f"rounding of {what}: {_sides(here.crop, there.crop)}", "crop")


def _of_readings(port: Mapping[str, str], reference: Mapping[str, str]) -> Iterator[Cause]:
    """Yield a cause for each feature that both sides decode in different ways."""
    seen = set[tuple[str, str]]()
    for name, here in port.items():
        there = reference.get(name, "")
        if here and there and here != there and (here, there) not in seen:
            seen.add((here, there))
            words = FEATURES[feature_of(here)]
            yield Cause(f"{words}: {_sides(here, there)}", "decode", name)
