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
    port_channels = channels_of(port)
    reference_channels = channels_of(reference)
    if port_channels == reference_channels:
        return
    cause = _cause("channels", port_channels, reference_channels, "channels")
    if sorted(port_channels) == sorted(reference_channels) and _same_values(port, reference):
        note = "means and deviations stay in their places"
        cause = dataclasses.replace(cause, words=f"{cause.words}; {note}")
    yield cause


def _by_colour(port: Values, reference: Values) -> Values:
    """Return the port's values with its channels in the reference's order of colours."""
    port_channels = channels_of(port)
    reference_channels = channels_of(reference)
    if port_channels == reference_channels or sorted(port_channels) != sorted(reference_channels):
        return port
    order = [port_channels.index(colour) for colour in reference_channels]
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
    port_words = _name_of(*mean_and_deviation(_by_colour(port, reference)))
    reference_words = _name_of(wanted_mean, wanted_deviation)
    if port_words == reference_words:
        port_words = _numbers(mean, deviation)
        reference_words = _numbers(wanted_mean, wanted_deviation)
    yield _cause("mean and deviation", port_words, reference_words, "values")


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
    port_geometry = port.geometry
    reference_geometry = reference.geometry
    same_kind = port_geometry.kind == reference_geometry.kind
    if not same_kind:
        order = {port_geometry.kind, reference_geometry.kind} == {SHORT, CROP_FIRST}
        what = "order of crop and resize" if order else "geometry"
        yield _cause(what, _words(port_geometry), _words(reference_geometry), "resize")
    elif port_geometry.size != reference_geometry.size and port_geometry.kind == SQUASH:
        yield _cause("geometry", _words(port_geometry), _words(reference_geometry), "resize")
    elif port_geometry.size != reference_geometry.size:
        what = "the short side"
        if port_geometry.kind == CROP_FIRST:
            what = "the crop before the resize"
        yield _cause(
            f"size of {what}", f"{port_geometry.size} pixels", reference_geometry.size, "resize"
        )
    resampled = {port_geometry.kind, reference_geometry.kind}.isdisjoint({CROP, WHOLE})
    if resampled:
        yield from _of_filter(port_geometry, reference_geometry)
    if same_kind:
        yield from _of_rounding(port_geometry, reference_geometry)
        yield from _of_border(port, reference)


def _of_border(port: Preparation, reference: Preparation) -> Iterator[Cause]:
    if port.border is None or reference.border is None:
        return
    port_level = round(port.border)
    reference_level = round(reference.border)
    if abs(port_level - reference_level) > 1:
        yield _cause("level of the border", port_level, reference_level, "resize")


def _words(geometry: Geometry) -> str:
    size = f" ({geometry.size})" if geometry.size else ""
    if geometry.kind == SQUASH and geometry.size:
        return f"squashed to {geometry.size} × {geometry.size}, then cropped"
    if geometry.kind == CROP_FIRST and not geometry.size:
        size = " (the largest square)"
    return f"{geometry.kind}{size}"


def _of_filter(port: Geometry, reference: Geometry) -> Iterator[Cause]:
    names = [geometry.filter.partition(" (")[0] for geometry in (port, reference)]
    if names[0] != names[1]:
        yield _cause("filter", *_full_names(port, reference), "resize")
    elif port.antialias != reference.antialias:
        states = ["on" if geometry.antialias else "off" for geometry in (port, reference)]
        yield _cause(f"antialiasing of {names[0]}", states[0], states[1], "resize")
    elif port.filter != reference.filter:
        yield _cause("filter", port.filter, reference.filter, "resize")
    if port.coordinates == reference.coordinates or names[0] != names[1]:
        return
    if ORIGIN in (port.coordinates, reference.coordinates):
        yield _cause("coordinates", port.coordinates, reference.coordinates, "resize")
    else:
        states = [str(geometry.coordinates == CORNERS) for geometry in (port, reference)]
        yield _cause("align_corners", states[0], states[1], "resize")


def _full_names(port: Geometry, reference: Geometry) -> tuple[str, str]:
    """Return the filters, and whether they antialias if only one does."""
    if port.antialias == reference.antialias:
        return port.filter, reference.filter
    names = []
    for geometry in (port, reference):
        without = "" if geometry.antialias else " without antialiasing"
        names.append(f"{geometry.filter}{without}")
    return names[0], names[1]


def _of_rounding(port: Geometry, reference: Geometry) -> Iterator[Cause]:
    if port.long != reference.long and port.kind in (SHORT, LETTERBOX):
        yield _cause(
            "rounding of the long side",
            port.long,
            reference.long,
            "resize",
        )
    if port.crop != reference.crop:
        what = "the picture's offset" if port.kind == LETTERBOX else "the crop's offset"
        yield _cause(f"rounding of {what}", port.crop, reference.crop, "crop")


def _of_readings(port: Mapping[str, str], reference: Mapping[str, str]) -> Iterator[Cause]:
    """Yield a cause for each feature that both sides decode in different ways."""
    seen = set[tuple[str, str]]()
    for name, port_reading in port.items():
        reference_reading = reference.get(name, "")
        if (
            port_reading
            and reference_reading
            and port_reading != reference_reading
            and (port_reading, reference_reading) not in seen
        ):
            seen.add((port_reading, reference_reading))
            feature = FEATURES[feature_of(port_reading)]
            cause = _cause(feature, port_reading, reference_reading, "decode")
            yield dataclasses.replace(cause, picture=name)
