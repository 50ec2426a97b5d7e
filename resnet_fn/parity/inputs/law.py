"""Compare random augmentation in law: what many draws of one picture have in common.

The picture is a ramp: its red grows from left to right, its green from top to bottom, its blue is
constant. So the prepared picture shows which part of the picture it is, and whether it is mirrored.
A black and a white picture show which values are 0 and 1.
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from resnet_fn.parity.inputs.layout import planes_of
from resnet_fn.parity.inputs.pictures import Picture, describe
from resnet_fn.parity.inputs.reading import Side
from resnet_fn.parity.trace.difference import DIFFERS, OK, UNDECIDED

DRAWS = 500
_WIDTH, _HEIGHT = 160, 120  # of the ramp, in pixels
_CHANCE = 1e-9  # of two draws of one law that differ this much: six standard errors
_STANDARD_ERRORS = 6.0
_OUTSIDE = 30  # so many draws outside of the other's range have this chance, 2^-30
_NO_SPREAD = 2e-3  # a quantity that varies less is constant
_QUARTER_LEVEL = 1e-3  # of white less black: values that are no further apart are rounding
_LEAD = 0.25  # of the largest slope: the channel that shows an axis is ahead by so much
_NO_GAIN = 1e-9  # white less black of a side that gives both the same values
_TRIED = 12  # so many pictures are drawn four times, to see whether a side is random
_FEWEST = 50  # draws below which nothing is decided

# What is measured of a draw, and the words for it.
QUANTITIES = {
    "black": "values of a black picture",
    "white": "values of a white picture",
    "channels": "order of the channels",
    "mirrored": "share of draws mirrored left to right",
    "upside down": "share of draws turned upside down",
    "area": "area of the crop, as a fraction of the picture",
    "aspect": "aspect ratio of the crop, width to height",
    "left": "left edge of the crop, as a fraction of the width",
    "top": "upper edge of the crop, as a fraction of the height",
    "slant": "slant of rows, as of a rotation",
    "brightness": "mean of the channel that is constant",
    "mean": "mean of all values, in standard units",
    "deviation": "standard deviation of all values, in standard units",
}
_SHARES = ("mirrored", "upside down")
_SOLID = ("black", "white")
# Orders of the channels by their index in `channels`; the last is that of gray, for example.
_ORDERS = ("RGB", "RBG", "GRB", "BRG", "GBR", "BGR", "none")
NOT_MEASURED = (
    "the filter and antialiasing of a resize, and how awkward pictures (EXIF, transparency, "
    "palettes, 16 bits) are decoded, are not compared",
    "erasing, blur, noise, hue and the order of changes are compared by means alone",
)


@dataclasses.dataclass(frozen=True)
class LawResult:
    """The comparison of one quantity's law."""

    name: str  # a key of QUANTITIES
    verdict: str
    port: str  # the values, in words
    reference: str
    allowed: str  # the bound, in words


@dataclasses.dataclass(frozen=True)
class Law:
    """The comparison of both sides' augmentation."""

    verdict: str
    results: Sequence[LawResult] = ()
    words: str = ""  # why nothing is compared
    draws: int = 0
    not_exercised: Sequence[str] = ()


def is_random(side: Side, pictures: Sequence[Picture]) -> bool:
    """Return whether a side makes other arrays of the same picture from draw to draw."""
    for picture in pictures[:_TRIED]:
        try:
            first, *others = (_drawn(side, picture) for _ in range(4))
        except Exception:  # another picture may be readable
            continue
        for array in others:
            if array.shape != first.shape or not np.array_equal(array, first, equal_nan=True):
                return True
    return False


def law_pictures(folder: str) -> dict[str, Picture]:
    """Write the ramp, a black and a white picture, and return them by name."""
    from PIL import Image

    ramp = np.full((_HEIGHT, _WIDTH, 3), 128, np.uint8)
    ramp[..., 0] = np.linspace(0, 255, _WIDTH)
    ramp[..., 1] = np.linspace(0, 255, _HEIGHT)[:, None]
    arrays = {"ramp": ramp, "black": np.zeros_like(ramp), "white": np.full_like(ramp, 255)}
    pictures = {}
    for name, array in arrays.items():
        path = Path(folder, f"{name}.png")
        Image.fromarray(array).save(path)
        pictures[name] = describe(str(path), path.name)
    return pictures


def compare_laws(
    port: Side,
    reference: Side,
    folder: str,
    draws: int,
) -> Law:
    """Draw many arrays of the ramp on both sides and compare the laws of what is measured.

    Args:
        port, reference: both sides; both are random, or one is a data set that is read once.
        folder: an empty folder for the pictures.
        draws: the number of draws of each side.
    """
    if not (port.makes_samples and reference.makes_samples):
        message = "random, and a data set reads its own pictures only; give its transforms instead"
        return Law(UNDECIDED, words=message)
    pictures = law_pictures(folder)
    try:
        measured = [_measure(side, pictures, draws) for side in (port, reference)]
    except Exception as error:  # of the user's functions on this picture
        return Law(UNDECIDED, words=f"cannot be drawn ({type(error).__name__}: {error})")
    names = [name for name in QUANTITIES if all(name in side for side in measured)]
    lines = [f"{title}: not measured" for name, title in QUANTITIES.items() if name not in names]
    results = [_compared(name, *measured) for name in names]
    compared = [result for result in results if result is not None]
    differs = any(result.verdict == DIFFERS for result in compared)
    enough = draws >= _FEWEST and bool(compared)
    message = "" if enough else f"{draws} draws decide nothing; give --draws {DRAWS}"
    verdict = DIFFERS if differs else OK if enough else UNDECIDED
    return Law(
        verdict,
        compared,
        message,
        draws,
        [*lines, *NOT_MEASURED],
    )


Measured = Mapping[str, np.ndarray]  # quantity → one number for each draw


def _measure(
    side: Side,
    pictures: Mapping[str, Picture],
    draws: int,
) -> Measured:
    """Measure the draws of a side."""
    drawn = {name: [_solid(side, pictures[name]) for _ in range(draws)] for name in _SOLID}
    medians, means = ({name: np.array(drawn[name])[:, of] for name in _SOLID} for of in (0, 1))
    hidden = np.abs(_gain(medians)).min() <= _NO_GAIN  # by padding of more than half
    calibrating = means if hidden else medians
    black, gain = np.median(calibrating["black"], 0), _gain(calibrating)
    if np.abs(gain).min() <= _NO_GAIN:
        raise ValueError("a black and a white picture give the same values")
    arrays = [(_pixels(side, pictures["ramp"]) - black) / gain for _ in range(draws)]
    rows = [_of_draw(array) for array in arrays]
    if len({array.shape for array in arrays}) > 1:  # no common measure of position
        rows = [{name: row[name] for name in ("mean", "deviation")} for row in rows]
    channels = arrays[0].shape[2]
    names = rows[0] if channels == 3 else ("mean", "deviation")
    measured = {name: np.array([row[name] for row in rows]) for name in names}
    orders = measured.get("channels")
    if orders is not None and (orders == _ORDERS.index("none")).all():
        del measured["channels"]
    return measured if hidden else medians | measured


def _gain(solid: Measured) -> np.ndarray:
    """Return white less black of each channel, from the draws of both pictures."""
    black, white = (np.median(solid[name], 0) for name in _SOLID)
    return white - black


_SEEDS = itertools.count(1)


def _drawn(side: Side, picture: Picture) -> np.ndarray:
    """Return the array of a further draw.

    After `mindspore.set_seed`, MindSpore's transforms repeat their draw in every call outside of a
    pipeline. So each call gets a seed of its own.
    """
    dataset = sys.modules.get("mindspore.dataset")
    if dataset is None:
        return side.read(picture).image
    seed = dataset.config.get_seed()
    dataset.config.set_seed(next(_SEEDS))
    try:
        return side.read(picture).image
    finally:
        dataset.config.set_seed(seed)


def _pixels(side: Side, picture: Picture) -> np.ndarray:
    planes = planes_of(_drawn(side, picture))
    if planes is None:
        raise ValueError("the array is not one picture")
    return planes.pixels


def _solid(side: Side, picture: Picture) -> np.ndarray:
    """Draw a picture of one colour. Return the median of each channel, then the means.

    The median is the picture's colour, even if padding or erasing covers a part of it.
    """
    pixels = _pixels(side, picture)
    return np.stack([np.median(pixels, (0, 1)), pixels.mean((0, 1))])


def _of_draw(pixels: np.ndarray) -> dict[str, float]:
    """Measure one draw of the ramp, float64 [H, W, C] with black at 0 and white at 1."""
    height, width = pixels.shape[:2]
    measured = {"mean": float(pixels.mean()), "deviation": float(pixels.std())}
    if pixels.shape[2] < 3:
        return measured
    along = np.array([_slope(pixels[..., c].mean(0)) for c in range(3)])
    down = np.array([_slope(pixels[..., c].mean(1)) for c in range(3)])
    leaning = np.abs(along) - np.abs(down)
    across, upright = int(np.argmax(leaning)), int(np.argmin(leaning))
    constant = ({0, 1, 2} - {across, upright}).pop() if across != upright else 2
    wide, tall = abs(along[across]) * width, abs(down[upright]) * height
    centre_x, centre_y = np.median(pixels[..., across]), np.median(pixels[..., upright])
    slants = _slope(pixels[..., across].mean(1)) * height / max(wide, 1e-9)
    return measured | {
        "channels": float(_ORDERS.index(_order(leaning, np.abs([*along, *down]).max()))),
        "mirrored": float(along[across] < 0),
        "upside down": float(down[upright] < 0),
        "area": wide * tall,
        "aspect": wide * _WIDTH / max(tall * _HEIGHT, 1e-9),
        "left": float(centre_x) - wide / 2,
        "top": float(centre_y) - tall / 2,
        "slant": slants,
        "brightness": float(pixels[..., constant].mean()),
    }


def _order(leaning: np.ndarray, largest: float) -> str:
    """Return the order of the channels, from how much further each grows across than down."""
    down, neither, across = np.argsort(leaning)
    lead = min(leaning[across] - leaning[neither], leaning[neither] - leaning[down])
    if lead <= _LEAD * largest:
        return "none"
    colours = {across: "R", down: "G", neither: "B"}
    return "".join(colours[channel] for channel in range(3))


def _slope(profile: np.ndarray) -> float:
    """Return the change of a profile from one pixel to the next; padding does not count."""
    if len(profile) < 3:
        return 0.0
    middle = profile[len(profile) // 8 : len(profile) - len(profile) // 8]
    return float(np.polyfit(np.arange(len(middle)), middle, 1)[0])


def _compared(
    name: str,
    port: Measured,
    reference: Measured,
) -> LawResult | None:
    """Compare what was measured by this name; None if it is constant and equal on both sides."""
    if name in _SOLID:
        return _compare_solid(name, port[name], reference)
    if name == "channels":
        return _compare_orders(port[name], reference[name])
    return _compare(name, port[name], reference[name])


def _allowed(count: int) -> float:
    """Return how far apart the distributions of so many draws of one law may be."""
    return math.sqrt(math.log(2 / _CHANCE) / count)


def _compare_solid(
    name: str,
    port: np.ndarray,
    reference: Measured,
) -> LawResult | None:
    """Compare the values of a picture of one colour, and report the channel that differs most."""
    values = reference[name]
    if port.shape != values.shape:  # the stage of shapes differs
        return None
    slack = _QUARTER_LEVEL * float(np.abs(_gain(reference)).max())
    apart = [_distance(a, b, slack) for a, b in zip(port.T, values.T, strict=True)]
    channel = int(np.argmax(apart))
    shown = port[:, channel], values[:, channel]
    allowed = _allowed(len(port))
    if not apart[channel] and all(np.ptp(draws) <= slack for draws in shown):
        return None
    ranges = [_range(draws, 4) for draws in shown]
    verdict = DIFFERS if apart[channel] > allowed else OK
    return LawResult(
        name,
        verdict,
        f"channel {channel + 1}: {ranges[0]}",
        ranges[1],
        f"distributions apart by {allowed:.2f}",
    )


def _compare_orders(port: np.ndarray, reference: np.ndarray) -> LawResult | None:
    """Compare the orders of the channels; None if they are the same in all draws."""
    if np.ptp([*port, *reference]) == 0:
        return None
    allowed = _allowed(len(port))
    verdict = DIFFERS if _distance(port, reference) > allowed else OK
    bound = f"distributions apart by {allowed:.2f}"
    return LawResult(
        "channels",
        verdict,
        _most_often(port),
        _most_often(reference),
        bound,
    )


def _most_often(orders: np.ndarray) -> str:
    counts = np.bincount(orders.astype(int), minlength=len(_ORDERS))
    order = int(np.argmax(counts))
    return f"{_ORDERS[order]} in {counts[order] / len(orders):.0%} of draws"


def _compare(
    name: str,
    port: np.ndarray,
    reference: np.ndarray,
) -> LawResult | None:
    """Compare the draws of one quantity; None if it is constant and equal on both sides."""
    count = len(port)
    if name in _SHARES:
        shares = float(port.mean()), float(reference.mean())
        if not port.any() and not reference.any():
            return None
        pooled = (shares[0] + shares[1]) / 2
        allowed = _STANDARD_ERRORS * math.sqrt(2 * pooled * (1 - pooled) / count)
        verdict = DIFFERS if abs(shares[0] - shares[1]) > allowed else OK
        values = f"{shares[0]:.3f}", f"{shares[1]:.3f}"
        return LawResult(
            name,
            verdict,
            *values,
            f"±{allowed:.2f}",
        )
    constant = [float(np.ptp(draws)) < _NO_SPREAD for draws in (port, reference)]
    ranges = _range(port), _range(reference)
    if all(constant):
        apart = abs(float(port.mean() - reference.mean()))
        equal = apart <= 5 * _NO_SPREAD
        return (
            None
            if equal
            else LawResult(
                name,
                DIFFERS,
                *ranges,
                "equal",
            )
        )
    distance = _distance(port, reference)
    allowed = _allowed(count)
    outside = max(_outside(port, reference), _outside(reference, port))
    differs = distance > allowed or outside >= _OUTSIDE or constant[0] != constant[1]
    bound = f"distributions apart by {allowed:.2f}"
    return LawResult(
        name,
        DIFFERS if differs else OK,
        *ranges,
        bound,
    )


def _range(values: np.ndarray, digits: int = 3) -> str:
    low, high, mean = (
        f"{value:.{digits}g}" for value in (values.min(), values.max(), values.mean())
    )
    return low if low == high else f"{low}..{high}, mean {mean}"


def _distance(
    a: np.ndarray,
    b: np.ndarray,
    slack: float = _NO_SPREAD,
) -> float:
    """Return the largest distance of two empirical distribution functions.

    Draws that are no further apart than `slack` count as equal: a value that many draws have, such
    as white, may be rounded in another way.
    """
    return max(_ahead(a, b, slack), _ahead(b, a, slack))


def _ahead(
    a: np.ndarray,
    b: np.ndarray,
    slack: float,
) -> float:
    """Return by how much the share of the draws `a` up to some value exceeds that of `b`."""
    up_to = np.sort(a)
    shares = np.arange(1, len(a) + 1) / len(a)
    others = np.searchsorted(np.sort(b), up_to + slack, "right") / len(b)
    return max(0.0, float((shares - others).max()))


def _outside(a: np.ndarray, b: np.ndarray) -> int:
    """Return how many of the draws `a` lie beyond one end of the draws `b`.

    Under one law, each further draw beyond the same end halves the chance.
    """
    slack = _NO_SPREAD * 5
    return int(max((a < b.min() - slack).sum(), (a > b.max() + slack).sum()))
