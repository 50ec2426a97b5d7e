"""Decide whether two sides prepare the same pictures alike: the verdict."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from resnet_fn.config.wording import first_few, words_of
from resnet_fn.parity.inputs.causes import Cause, causes_of
from resnet_fn.parity.inputs.exercised import not_exercised
from resnet_fn.parity.inputs.fitting import Arrays, Fitter, Preparation
from resnet_fn.parity.inputs.labels import LabelResult, compare_labels
from resnet_fn.parity.inputs.layout import Planes, planes_of
from resnet_fn.parity.inputs.pictures import Picture
from resnet_fn.parity.inputs.pixels import PixelDifference, difference_of
from resnet_fn.parity.inputs.reading import Sample
from resnet_fn.parity.inputs.relation import relation_of
from resnet_fn.parity.trace.difference import DIFFERS, OK, ROUNDING, UNDECIDED, VERDICTS

SKIPPED = "skipped"
NOT_READ = "not read"

Read = Mapping[Picture, Sample | str]  # a sample, or why it could not be read


@dataclasses.dataclass(frozen=True)
class Stage:
    """One row of the comparison."""

    name: str
    compared: int
    verdict: str
    words: str = ""  # what differs, or why nothing is compared
    worst: PixelDifference | None = None
    first: str = ""  # the first picture that differs


@dataclasses.dataclass(frozen=True)
class PictureResult:
    """The comparison of one picture."""

    picture: Picture
    verdict: str
    difference: PixelDifference | None = None
    words: str = ""  # why it is not compared, or what differs beside pixels


@dataclasses.dataclass(frozen=True)
class InputsVerdict:
    """The result of a comparison of two sides' pictures."""

    stages: Sequence[Stage]
    pictures: Sequence[PictureResult]
    causes: Sequence[Cause] = ()
    settings: Sequence[str] = ()  # differences that the numbers do not show
    not_exercised: Sequence[str] = ()
    unread: Sequence[str] = ()  # one line for each picture that a side could not read
    left: Sequence[str] = ()  # parts of samples beside picture and label, which are not compared
    order: str = ""  # information about the order of samples
    preparations: Mapping[str, Preparation | None] = dataclasses.field(default_factory=dict)

    @property
    def first_stage(self) -> Stage | None:
        """The first stage that differs."""
        return next((stage for stage in self.stages if stage.verdict == DIFFERS), None)

    @property
    def first_picture(self) -> PictureResult | None:
        """The first picture whose pixels differ."""
        return next((result for result in self.pictures if result.verdict == DIFFERS), None)

    @property
    def undecided(self) -> list[Stage]:
        """The stages that are undecided."""
        return [stage for stage in self.stages if stage.verdict == UNDECIDED]

    @property
    def agrees(self) -> bool:
        """Whether no stage differs and none is undecided."""
        return self.first_stage is None and not self.undecided

    @property
    def code(self) -> int:
        """The exit code: 1 a difference, 3 undecided, 0 the same."""
        return 1 if self.first_stage else 3 if self.undecided else 0


def compare_pictures(
    port: Read,
    reference: Read,
    made: bool,
    random: bool = False,
) -> InputsVerdict:
    """Compare what both sides made of the same pictures.

    Args:
        port, reference: samples, or errors, by picture.
        made: whether the pictures are our twelve, which a side need not read.
        random: whether a side is random. Then its values are not compared.
    """
    reading, unread = _reading(port, reference, made)
    pairs, others = _pairs(port, reference)
    labels = _labels(port, reference)
    stages = [reading, _shapes(pairs, others), _layouts(pairs)]
    label_stages = [_label_stage(labels)] if labels.verdict else []
    missing = [*unread] if labels.verdict else [*unread, labels.words]
    kinds = [*_kinds(pairs), *labels.notes]
    left = _left(port, reference)
    if random:
        missing = ["pixels: random, so they are compared in law alone", *missing]
        return InputsVerdict(
            stages=[*stages, *label_stages],
            pictures=[],
            settings=kinds,
            not_exercised=missing,
            unread=unread,
            left=left,
        )
    port_planes = {picture: planes for picture, (planes, _) in pairs.items()}
    reference_planes = {picture: planes for picture, (_, planes) in pairs.items()}
    fits, failed = _fitted(port_planes, reference_planes)
    level = next((fit.values.level for fit in fits if fit is not None), None)
    compared = _pixel_results(pairs, level)
    try:
        causes, settings = _causes(fits, pairs, compared)
        missing = [*not_exercised(fits[1], reference_planes), *missing]
    except Exception as error:  # costs the explanation, never the verdict
        causes, settings = [], []
        failed = failed or _failure(error)
    results = {result.picture: result for result in (*others, *compared.values())}
    return InputsVerdict(
        stages=[*stages, _ranges(pairs), _pixels(compared), *label_stages],
        pictures=[results[picture] for picture in reference],
        causes=causes,
        settings=[*kinds, *settings],
        not_exercised=[failed, *missing] if failed else missing,
        unread=unread,
        left=left,
        preparations={"port": fits[0], "reference": fits[1]},
    )


def _failure(error: Exception) -> str:
    return f"causes: the search failed ({words_of(error)})"


def _left(*sides: Read) -> list[str]:
    """Return the names of what samples have beside picture and label, each of them once."""
    names = dict[str, None]()
    for sample in itertools.chain(*(side.values() for side in sides)):
        names |= {} if isinstance(sample, str) else dict.fromkeys(sample.left)
    return [*names]


def _pairs(
    port: Read, reference: Read
) -> tuple[dict[Picture, tuple[Planes, Planes]], list[PictureResult]]:
    """Return the pictures that both sides read, and results for the others."""
    pairs = {}
    others = []
    for picture, reference_sample in reference.items():
        port_sample = port[picture]
        if isinstance(port_sample, str) or isinstance(reference_sample, str):
            others.append(PictureResult(picture, UNDECIDED, words=NOT_READ))
            continue
        port_planes = planes_of(port_sample.image)
        reference_planes = planes_of(reference_sample.image)
        if port_planes is None or reference_planes is None:
            shapes = [*port_sample.image.shape], [*reference_sample.image.shape]
            message = f"not a picture: {shapes[0]} in the port, {shapes[1]} in the reference"
            others.append(PictureResult(picture, UNDECIDED, words=message))
        else:
            pairs[picture] = port_planes, reference_planes
    return pairs, others


def _fitted(port: Arrays, reference: Arrays) -> tuple[list[Preparation | None], str]:
    """Return the preparations, first the port's, and why the search failed."""
    port_fitter, reference_fitter = Fitter(port), Fitter(reference)
    try:
        like = reference_fitter.fit()
        return [port_fitter.fit(like), like], ""
    except Exception as error:  # costs the explanation, never the verdict
        return [None, None], _failure(error)


def _reading(
    port: Read,
    reference: Read,
    made: bool,
) -> tuple[Stage, list[str]]:
    """Return the stage of reading, and a line for each picture that a side did not read."""
    lines, doubtful, both = [], [], 0
    for picture, reference_sample in reference.items():
        errors = {"the port": port[picture], "the reference": reference_sample}
        failed = {side: error for side, error in errors.items() if isinstance(error, str)}
        both += not failed
        if failed:
            who = " and ".join(failed)
            kind = f" ({picture.words})" if picture.words else ""
            lines.append(f"not read by {who}: {picture.name}{kind}: {next(iter(failed.values()))}")
        # twelve pictures are made: a project need not read each kind of file
        if len(failed) == 1 and (picture.is_plain or not made):
            doubtful.append(picture.name)
    message = f"one side alone does not read {first_few(doubtful)}" if doubtful else ""
    verdict = UNDECIDED if doubtful or not both else OK
    return Stage("read", both, verdict, message or ("nothing was read" if not both else "")), lines


def _shapes(
    pairs: Mapping[Picture, tuple[Planes, Planes]], others: Sequence[PictureResult]
) -> Stage:
    """Compare heights, widths and numbers of channels."""
    if apart := _first_apart("shape", pairs, _shape):
        return apart
    strange = [
        f"{result.picture.name}: {result.words}" for result in others if result.words != NOT_READ
    ]
    verdict = UNDECIDED if strange or not pairs else OK
    return Stage("shape", len(pairs), verdict, first_few(strange, 1))


def _shape(planes: Planes) -> str:
    height, width = planes.size
    return f"{height} × {width} pixels of {planes.channels} channels"


def _layouts(pairs: Mapping[Picture, tuple[Planes, Planes]]) -> Stage:
    apart = _first_apart("layout", pairs, lambda planes: planes.layout)
    return apart or Stage("layout", len(pairs), OK if pairs else SKIPPED)


def _first_apart(
    stage: str,
    pairs: Mapping[Picture, tuple[Planes, Planes]],
    describe: Callable[[Planes], str],
) -> Stage | None:
    """Return the stage for the first picture that both sides describe by other words."""
    for picture, sides in pairs.items():
        port, reference = map(describe, sides)
        if port != reference:
            message = f"{port} in the port, {reference} in the reference"
            return Stage(stage, len(pairs), DIFFERS, message, first=picture.name)
    return None


def _kinds(pairs: Mapping[Picture, tuple[Planes, Planes]]) -> list[str]:
    """Return lines about types and leading axes that differ; values may be equal nevertheless."""
    lines = []
    for port, reference in pairs.values():
        if port.dtype != reference.dtype:
            lines.append(f"dtype: {port.dtype} in the port, {reference.dtype} in the reference")
        if port.batched != reference.batched:
            which = "port" if port.batched else "reference"
            lines.append(f"shape: a leading axis of one sample in the {which} alone")
    return list(dict.fromkeys(lines))


def _ranges(pairs: Mapping[Picture, tuple[Planes, Planes]]) -> Stage:
    """Compare the ranges of all pictures, roughly: pixels decide."""
    if not pairs:
        return Stage("value range", 0, SKIPPED)
    (low, high), (other_low, other_high) = (
        _range([pair[side] for pair in pairs.values()]) for side in (0, 1)
    )
    message = (
        f"{low:.4g}..{high:.4g} in the port, {other_low:.4g}..{other_high:.4g} in the reference"
    )
    span, other = high - low, other_high - other_low
    apart = max(abs(low - other_low), abs(high - other_high))
    differs = not (span <= 2 * other and other <= 2 * span and apart <= other / 2)
    return Stage("value range", len(pairs), DIFFERS if differs else OK, message if differs else "")


def _range(planes: Sequence[Planes]) -> tuple[float, float]:
    lows = [
        np.min(picture.pixels, initial=math.inf, where=np.isfinite(picture.pixels))
        for picture in planes
    ]
    highs = [
        np.max(picture.pixels, initial=-math.inf, where=np.isfinite(picture.pixels))
        for picture in planes
    ]
    return float(min(lows)), float(max(highs))


def _pixel_results(
    pairs: Mapping[Picture, tuple[Planes, Planes]], level: np.ndarray | None
) -> dict[Picture, PictureResult]:
    low, high = _range([reference for _, reference in pairs.values()]) if pairs else (0.0, 1.0)
    results = {}
    for picture, (port, reference) in pairs.items():
        if port.pixels.shape != reference.pixels.shape:
            message = f"{_shape(port)} in the port, {_shape(reference)} in the reference"
            results[picture] = PictureResult(picture, DIFFERS, words=message)
            continue
        fits = level is not None and len(level) == reference.channels
        difference = difference_of(port, reference, high - low, level if fits else None)
        results[picture] = PictureResult(picture, difference.verdict, difference)
    return results


def _pixels(results: Mapping[Picture, PictureResult]) -> Stage:
    """Return the stage of pixels, whose worst picture is named."""
    compared = {
        result.picture.name: result.difference
        for result in results.values()
        if result.difference is not None
    }
    if not compared:
        return Stage("pixels", 0, UNDECIDED, "no picture has the same shape on both sides")
    first, worst = max(
        compared.items(), key=lambda item: (VERDICTS.index(item[1].verdict), item[1].max_abs)
    )
    note = ""
    if worst.verdict == ROUNDING:
        count = sum(difference.verdict == ROUNDING for difference in compared.values())
        note = f"{count} pictures within rounding to 256 levels, at most {worst.levels:.2g} levels"
    return Stage(
        "pixels",
        len(compared),
        worst.verdict,
        note,
        worst,
        first,
    )


def _labels(port: Read, reference: Read) -> LabelResult:
    labels = [
        {
            picture.name: None if isinstance(read, str) else read.label
            for picture, read in side.items()
        }
        for side in (port, reference)
    ]
    return compare_labels(*labels)


def _label_stage(labels: LabelResult) -> Stage:
    return Stage(
        "labels",
        labels.compared,
        labels.verdict,
        labels.words,
        first=labels.first,
    )


def _causes(
    fits: Sequence[Preparation | None],
    pairs: Mapping[Picture, tuple[Planes, Planes]],
    results: Mapping[Picture, PictureResult],
) -> tuple[list[Cause], list[str]]:
    """Return causes of pixels that differ, and settings that differ where pixels do not."""
    port, reference = fits
    differing = [result for result in results.values() if result.verdict == DIFFERS]
    if port is None or reference is None:
        causes = relation_of([pairs[result.picture] for result in differing]) if differing else []
        who = "the port" if port is None else "the reference"
        message = f"{who} prepares plain pictures in no way that is known, so causes are incomplete"
        if not any(
            picture.is_plain and reference_planes.has_texture
            for picture, (_, reference_planes) in pairs.items()
        ):
            message = "no cause is sought, because no plain picture has texture"
        return causes + ([Cause(message, "")] if differing else []), []
    causes = causes_of(port, reference)
    if not differing:
        return [], [cause.words for cause in causes]
    of_all = [cause for cause in causes if not cause.picture]
    covered = {cause.picture for cause in causes if cause.picture}
    left = [
        result.picture
        for result in differing
        if not result.picture.is_plain
        and result.picture.name not in covered
        and not _is_explained(result, port, reference, of_all)
    ]
    if left:
        names = [f"{picture.name} ({picture.words})" for picture in left]
        causes.append(Cause(f"no cause found for {first_few(names)}", ""))
    elif not causes:
        causes.append(
            Cause(
                f"no cause found for {first_few([result.picture.name for result in differing])}", ""
            )
        )
    return causes, []


def _is_explained(
    result: PictureResult, port: Preparation, reference: Preparation, causes: Sequence[Cause]
) -> bool:
    """Return whether causes of all pictures, or of others of its kind, explain this picture."""
    name = result.picture.name
    port_reading, reference_reading = port.readings.get(name, ""), reference.readings.get(name, "")
    return bool(
        port_reading and reference_reading and (causes or port_reading != reference_reading)
    )
