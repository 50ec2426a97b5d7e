"""Find out how a side prepares pictures, from its arrays alone.

The arrays of plain pictures are compared with predictions: for each way to resize and crop, the
levels that it gives. The way that fits has an affine map from its levels to the array's values, and
this map is the order of channels, the mean and the standard deviation. Then the ways to decode
awkward pictures are tried with the same map.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from resnet_fn.parity.inputs.decoding import CURVES, LATE, PLAIN, decode, readings_of
from resnet_fn.parity.inputs.layout import Planes
from resnet_fn.parity.inputs.pictures import Picture
from resnet_fn.parity.inputs.resizing import (
    CROP,
    CROP_FIRST,
    LETTERBOX,
    NEAREST,
    NEAREST_CENTRE,
    RESIZES,
    ROUNDINGS,
    SHORT,
    SQUASH,
    WHOLE,
    Geometry,
    layout_of,
    predict,
)

FITS = 0.75  # levels: the root mean square of an error that is only rounding to whole levels
_SAME = 1.2  # one way fits as well as another if its error is at most so many times as large
_SCANNED, _CHECKED = 24, 48  # rows and columns that are predicted in a scan, and in a check
_KEPT = 2  # so many of the scanned ways of a kind are tried with every filter
_FAR = 4.0  # but none whose error is so many times the smallest
_STEP = 4  # pixels between the sizes of a first scan
_TIES = 0.05  # of the pixels: between two as near ones, each library takes another
_MOST_PLAIN = 5  # so many plain pictures decide

Grid = tuple[tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Values:
    """The affine map from levels (0 to 255) to the array's values: matrix · levels + offset."""

    matrix: np.ndarray  # [channels of the array, 3]
    offset: np.ndarray  # [channels of the array]

    @property
    def gain(self) -> np.ndarray:
        """By how much each channel of the array grows with a gray pixel's level."""
        return self.matrix.sum(1)

    @property
    def level(self) -> np.ndarray:
        """What one of 256 levels is in each channel of the array."""
        return np.abs(self.gain)

    def of(self, levels: np.ndarray) -> np.ndarray:
        """Return the array's values for levels, [..., 3] to [..., channels]."""
        return levels @ self.matrix.T + self.offset


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How a side prepares pictures."""

    geometry: Geometry
    values: Values
    error: float  # root mean square over the plain pictures, in levels
    curve: str = ""  # a key of CURVES, or ""
    # how it decodes each awkward picture: the picture's name → a reading, "" if none fits
    readings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    border: float | None = None  # the level around a letterboxed picture


Arrays = Mapping[Picture, Planes]


class Fitter:
    """Fits preparations to the arrays of one side."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        usable = [picture for picture in arrays if picture.is_plain and arrays[picture].has_texture]
        # a picture that shrinks shows most
        self.plain = sorted(usable, key=lambda picture: -min(picture.size))[:_MOST_PLAIN]
        self.errors: dict[tuple[object, ...], tuple[Values | None, float]] = {}

    def fit(self, like: Preparation | None = None) -> Preparation | None:
        """Return the preparation that fits, or None if none does.

        Of several that fit, the one nearest to `like`.
        """
        if not self.plain:
            return None
        near = like.geometry if like else None
        best = self._refined([near], "", near) if near else None
        best = best or self._refined(self._scanned(), "", near)
        for curve in (*CURVES, *(name + LATE for name in CURVES)):
            # a curve is tried with the ways of the other side only
            best = best or self._refined([near or Geometry(SQUASH)], curve, near)
        return self._complete(best) if best else None

    def _scanned(self) -> list[Geometry]:
        """Return the ways to resize whose bilinear form is nearest to the arrays."""
        picture = self.plain[0]
        out = self.arrays[picture].size
        first = self._nearest(_ways(picture, out))
        closer = itertools.chain(*(_neighbours(way) for way in first))
        return self._nearest(dict.fromkeys([*first, *closer]))

    def _nearest(self, ways: Iterable[Geometry]) -> list[Geometry]:
        """Return the ways with the smallest errors of the first picture, a few of each kind.

        A crop before the resize is nearly the same as one after it, so each kind is kept.
        """
        errors = self._ranked(ways, "", self.plain[:1], _SCANNED)
        limit = _FAR * next(iter(errors.values()))
        kept: list[Geometry] = []
        for way, error in errors.items():
            alike = sum(other.kind == way.kind for other in kept)
            if alike < _KEPT and error <= limit:
                kept.append(way)
        return kept

    def _refined(
        self, ways: Sequence[Geometry], curve: str, like: Geometry | None
    ) -> Preparation | None:
        """Return what fits best of these ways with any filter and any rounding, or None."""
        candidates = dict.fromkeys(itertools.chain(*map(_filters, ways)))
        ranked = [*self._ranked(candidates, curve, self.plain[:1], _CHECKED)]
        rounded = dict.fromkeys(itertools.chain(*(_roundings(way) for way in ranked[:3])))
        errors = self._ranked(
            rounded,
            curve,
            self.plain,
            _CHECKED,
        )
        limit = _SAME * next(iter(errors.values())) + 0.02
        alike = [way for way, error in errors.items() if error <= limit]
        chosen = min(alike, key=lambda way: (_changes(way, like), alike.index(way)))
        values, error = self._error(
            chosen,
            curve,
            self.plain,
            _CHECKED,
        )
        return (
            None
            if error > FITS or values is None
            else Preparation(
                chosen,
                values,
                error,
                curve,
            )
        )

    def _ranked(
        self, ways: Iterable[Geometry], curve: str, pictures: Sequence[Picture], points: int
    ) -> dict[Geometry, float]:
        """Return each way's error, the smallest first."""
        errors = {
            way: self._error(
                way,
                curve,
                pictures,
                points,
            )[1]
            for way in ways
        }
        return dict(sorted(errors.items(), key=lambda item: item[1]))

    def _error(
        self, way: Geometry, curve: str, pictures: Sequence[Picture], points: int
    ) -> tuple[Values | None, float]:
        """Return the affine map that fits best, and its error in levels."""
        layouts = tuple(region_of(way, picture, self.arrays[picture].size) for picture in pictures)
        resize = way.filter, way.antialias, way.coordinates
        key = layouts, resize, curve, points
        if key not in self.errors:
            rows = [
                self._levels(
                    picture,
                    way,
                    curve,
                    points,
                )
                for picture in pictures
            ]
            levels = np.concatenate([row[0] for row in rows])
            values = np.concatenate([row[1] for row in rows])
            inside = np.isfinite(levels).all(1)
            enough = inside.sum() >= max(32, len(levels) // 8)
            spared = _TIES if way.filter in (NEAREST, NEAREST_CENTRE) else 0.0
            fitted = _affine(levels[inside], values[inside], spared) if enough else (None, np.inf)
            self.errors[key] = fitted
        return self.errors[key]

    def _levels(
        self, picture: Picture, way: Geometry, curve: str, points: int, reading: str = PLAIN
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return predicted levels [n, 3] and the array's values [n, channels] at some pixels."""
        planes = self.arrays[picture]
        grid = grid_of(planes.size, points)
        pixels = decode(picture, reading)
        early = CURVES.get(curve)
        if early:
            pixels = early(pixels).astype(np.float32)
        levels = predict(
            pixels,
            way,
            planes.size,
            grid,
        ).reshape(-1, 3)
        late = CURVES.get(curve.removesuffix(LATE)) if curve.endswith(LATE) else None
        if late:
            levels = late(levels.clip(0, 255))
        values = planes.pixels[np.ix_(*grid)].reshape(len(levels), -1)
        return levels.astype(np.float64), values

    def _complete(self, fitted: Preparation) -> Preparation:
        """Add how awkward pictures are decoded, and the level of a border.

        The rounding that explains most of the awkward pictures is taken.
        """
        roundings = dict.fromkeys(_roundings(fitted.geometry))
        alike = {}
        for way in roundings:
            error = self._error(
                way,
                fitted.curve,
                self.plain,
                _CHECKED,
            )[1]
            if error <= _SAME * fitted.error + 0.02:
                alike[way] = self._readings(dataclasses.replace(fitted, geometry=way))
        best = max(alike, key=lambda way: sum(map(bool, alike[way].values())))
        return dataclasses.replace(
            fitted, geometry=best, readings=alike[best], border=self._border(fitted)
        )

    def _readings(self, fitted: Preparation) -> dict[str, str]:
        awkward = [picture for picture in self.arrays if not picture.is_plain]
        return {picture.name: self._reading(picture, fitted) for picture in awkward}

    def _reading(
        self,
        picture: Picture,
        fitted: Preparation,
    ) -> str:
        """Return the reading of a picture that fits, or ""."""
        errors = {}
        values = fitted.values
        if self.arrays[picture].channels != len(values.offset):
            return ""
        for reading in readings_of(picture):
            levels, actual = self._levels(
                picture,
                fitted.geometry,
                fitted.curve,
                _CHECKED,
                reading,
            )
            inside = np.isfinite(levels).all(1)
            apart = (values.of(levels[inside].clip(0, 255)) - actual[inside]) / values.level
            errors[reading] = _rms(apart) if inside.any() else np.inf
        best = min(errors, key=lambda reading: errors[reading])
        return best if errors[best] <= FITS else ""

    def _border(self, fitted: Preparation) -> float | None:
        """Return the level outside of letterboxed plain pictures, or None without any."""
        values, levels = fitted.values, list[np.ndarray]()
        for picture in self.plain:
            predicted, actual = self._levels(
                picture,
                fitted.geometry,
                "",
                _CHECKED,
            )
            outside = actual[np.isnan(predicted).any(1)]
            levels.append(((outside - values.offset) / values.gain).ravel())
        every = np.concatenate(levels)
        return float(np.median(every)) if every.size else None


def grid_of(size: tuple[int, int], points: int) -> Grid:
    """Return rows and columns that are spread over an array, its edges included."""
    rows, columns = (
        tuple(int(index) for index in np.unique(np.linspace(0, length - 1, points).round()))
        for length in size
    )
    return rows, columns


def _ways(picture: Picture, out: tuple[int, int]) -> Iterator[Geometry]:
    """Yield the ways in which an array of size `out` may come from a picture.

    Of sizes, every fourth is among them.
    """
    width, height = picture.size
    yield Geometry(WHOLE)
    yield Geometry(SQUASH)
    for crop in ("round", "top left"):
        yield Geometry(CROP, crop=crop)
        yield Geometry(LETTERBOX, crop=crop)
    yield Geometry(CROP_FIRST)
    for size in range(min(out), 2 * min(out) + 1, _STEP):
        yield Geometry(SHORT, size=size)
        yield Geometry(SQUASH, size=size)
    for size in range(min(width, height) // 2, max(width, height) + 1, _STEP):
        yield Geometry(CROP_FIRST, size=size)
    for size in (min(out), round(min(out) / 0.875), min(out) + 32):
        yield Geometry(SHORT, size=size, crop="top left")


def _neighbours(way: Geometry) -> Iterator[Geometry]:
    """Yield the ways between a way and the next ones of `_ways`."""
    for change in range(-_STEP, _STEP + 1) if way.size else ():
        yield dataclasses.replace(way, size=max(1, way.size + change))


def _filters(way: Geometry) -> Iterator[Geometry]:
    """Yield a way, and the same way with each filter."""
    yield way
    for name, antialias, coordinates in RESIZES if way.kind not in (CROP, WHOLE) else ():
        yield dataclasses.replace(
            way,
            filter=name,
            antialias=antialias,
            coordinates=coordinates,
        )


def _roundings(way: Geometry) -> Iterator[Geometry]:
    """Yield a way with each rounding of the long side and of the crop's offset."""
    yield way
    if way.kind == WHOLE or (way.kind == SQUASH and not way.size):
        return
    for long, crop in itertools.product(ROUNDINGS, (*ROUNDINGS, "top left")):
        yield dataclasses.replace(way, long=long, crop=crop)


def _changes(way: Geometry, like: Geometry | None) -> int:
    """Return how many fields of both ways differ."""
    if like is None:
        return 0
    return sum(
        getattr(way, field.name) != getattr(like, field.name) for field in dataclasses.fields(way)
    )


def _affine(
    levels: np.ndarray,
    values: np.ndarray,
    spared: float,
) -> tuple[Values | None, float]:
    """Return the affine map from levels to values with the least squares, and its error in levels.

    The share `spared` of the pixels with the largest errors does not count.
    """
    solution, errors = affine_map(levels, values)
    if spared:
        largest = np.abs(errors).max(1)
        kept = largest <= np.quantile(largest, 1 - spared)
        solution, errors = affine_map(levels[kept], values[kept])
    fitted = Values(solution[:3].T, solution[3])
    level = fitted.level
    if (level <= 1e-12).any() or not np.isfinite(level).all():
        return None, np.inf
    return fitted, _rms(errors / level)


def affine_map(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the affine map from rows of `x` to rows of `y` with the least squares, and its errors.

    The last row of the map is added to the product with the others.
    """
    inputs = np.concatenate([x, np.ones((len(x), 1))], 1)
    solution = np.linalg.lstsq(inputs, y, rcond=1e-9)[0]
    return solution, inputs @ solution - y


def _rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def region_of(
    way: Geometry,
    picture: Picture,
    out: tuple[int, int],
) -> object:
    """Return which pixels of a picture a way uses; equal for equal crops and sizes."""
    width, height = picture.size
    return layout_of(way, (height, width), out)
