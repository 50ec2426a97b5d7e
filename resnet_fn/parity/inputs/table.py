"""Show the comparison of inputs as text."""

import math
from collections.abc import Sequence

from resnet_fn.config.wording import counted, first_few
from resnet_fn.parity.inputs.comparing import InputsVerdict, PictureResult, Stage
from resnet_fn.parity.inputs.law import QUANTITIES, LawResult
from resnet_fn.parity.inputs.pixels import TOLERANCE
from resnet_fn.parity.inputs.result import Result
from resnet_fn.parity.trace.difference import DIFFERS, OK, ROUNDING

COLUMNS = ("stage", "compared", "max abs", "relative", "levels", "allowed", "verdict")

_FORM = "{:24} {:>8} {:>9} {:>9} {:>7} {:>8}  {}"
_MOST_PICTURES = 12
_MOST_ITEMS = 6  # of the line "not exercised"; the JSON file and the page have all


def table(result: Result) -> str:
    """Return the comparison as text: a line for each stage and each awkward picture, then the
    verdict with the first differences and their causes.
    """
    verdict = result.verdict
    lines = [_FORM.format(*row) for row in (COLUMNS, *map(cells, verdict.stages))]
    if result.law and result.law.results:
        lines += ["", f"augmentation, {result.law.draws} draws of each side:"]
        lines += [f"  {line}" for line in map(law_line, result.law.results)]
    shown = [picture_result for picture_result in verdict.pictures if picture_result.verdict != OK]
    if shown:
        lines += ["", "pictures that are not equal:"]
        lines += [f"  {picture_line(picture_result)}" for picture_result in shown[:_MOST_PICTURES]]
        more = len(shown) - _MOST_PICTURES
        lines += [f"  and {more} more (--json has all)"] if more > 0 else []
    return "\n".join(
        [
            *lines,
            "",
            *findings(result),
        ]
    )


def cells(stage: Stage) -> list[str]:
    """Return the cells of a stage's row, in the order of `COLUMNS`."""
    worst, numbers = stage.worst, [""] * 4
    if worst is not None:
        levels = "" if math.isnan(worst.levels) else f"{worst.levels:.2g}"
        numbers = [
            f"{worst.max_abs:.1e}",
            f"{worst.relative:.1e}",
            levels,
            f"{TOLERANCE:.0e}",
        ]
    text = stage.verdict
    text += f" ({stage.first})" if stage.first and stage.verdict != OK else ""
    text += f"; {stage.words}" if stage.words else ""
    return [
        stage.name,
        str(stage.compared),
        *numbers,
        text,
    ]


def picture_line(result: PictureResult) -> str:
    """Return a line about a picture: its name, what is awkward about it, and how it compares."""
    name = _name(result)
    difference = result.difference
    if difference is None:
        return f"{name}: {result.verdict}; {result.words}"
    levels = ""
    if not math.isnan(difference.levels):
        levels = f", {difference.levels:.2g} levels"
    return f"{name}: {difference.verdict}, {difference.max_abs:.2g}{levels} at most"


def _name(result: PictureResult) -> str:
    picture = result.picture
    if not picture.words:
        return picture.name
    return f"{picture.name} ({picture.words})"


def law_line(result: LawResult) -> str:
    """Return a line about one quantity of the augmentation."""
    title = QUANTITIES[result.name]
    values = f"{result.port} in the port, {result.reference} in the reference"
    return f"{title}: {values}; allowed {result.allowed}: {result.verdict}"


def _doubts(verdict: InputsVerdict) -> list[str]:
    return [f"  {stage.name}: {stage.words}" for stage in verdict.undecided]


def findings(result: Result) -> list[str]:
    """Return lines with the verdict and the first differences. Indented lines give the causes."""
    verdict = result.verdict
    lines = _difference_lines(result) if verdict.first_stage else [verdict_line(result)]
    if not verdict.first_stage:
        lines += _doubts(verdict)
    if verdict.settings:
        lines += ["settings that differ:", *(f"  {line}" for line in verdict.settings)]
    lines += [f"read: {line}" for line in verdict.unread]
    left = [line for line in not_exercised(result) if line not in verdict.unread]
    if left:
        lines.append(f"not exercised: {first_few(left, _MOST_ITEMS, '; ')}")
    lines += [f"not compared: {', '.join(verdict.left)}"] if verdict.left else []
    lines += [verdict.order] if verdict.order else []
    return [*lines, *result.notes]


def not_exercised(result: Result) -> list[str]:
    """Return a line for each thing that the comparison does not cover."""
    of_law = result.law.not_exercised if result.law else ()
    return [*result.verdict.not_exercised, *of_law]


def verdict_line(result: Result) -> str:
    """Return the verdict in one line, with what it covers."""
    verdict = result.verdict
    if verdict.first_stage:
        return f"verdict: they differ, first in {verdict.first_stage.name}"
    if verdict.undecided:
        return "verdict: undecided; no stage differs, but these cannot be decided:"
    compared = [
        picture_result
        for picture_result in verdict.pictures
        if picture_result.difference is not None
    ]
    random = result.law is not None
    what = f"{len(compared)} of {counted(len(verdict.pictures), 'picture')}"
    rounded = sum(picture_result.verdict == ROUNDING for picture_result in compared)
    parts = [] if random else [what]
    parts += [f"{rounded} within rounding to 256 levels"] if rounded else []
    parts += [f"augmentation in law, by {result.law.draws} draws"] if result.law else []
    parts += [_of_labels(verdict)]
    parts += ["but some settings differ"] if verdict.settings else []
    return f"verdict: both prepare the same, {', '.join(parts)}"


def _of_labels(verdict: InputsVerdict) -> str:
    labels = next((stage for stage in verdict.stages if stage.name == "labels"), None)
    return f"{counted(labels.compared, 'label')}" if labels else "no labels"


def _difference_lines(result: Result) -> list[str]:
    verdict = result.verdict
    stage = verdict.first_stage
    assert stage is not None
    where = f", {stage.first}" if stage.first else ""
    text = f": {stage.words}" if stage.words else ""
    if stage.worst is not None:
        where = f", worst in {stage.first}"
        text = f": {stage.worst.values()}"
    lines = [f"first stage that differs: {stage.name}{where}{text}"]
    lines += [f"  {line}" for line in _law_causes(result)]
    picture = verdict.first_picture
    if picture is not None:
        values = picture.difference.values() if picture.difference else picture.words
        lines.append(f"first picture that differs: {_name(picture)}: {values}")
    lines += [f"  {line}" for line in cause_lines(result)]
    for other in verdict.stages:
        if other is not stage and other.verdict == DIFFERS and other.name == "labels":
            lines.append(f"labels: {other.words}")
    if verdict.undecided:
        lines.append("undecided:")
    return lines + _doubts(verdict)


def cause_lines(result: Result) -> list[str]:
    """Return a line for each cause, after the reference's line if it is known."""
    lines = []
    for cause in result.verdict.causes:
        line = result.places.get(cause.of) or (
            result.places.get("open") if cause.of == "decode" else None
        )
        start = f"{line}: " if line else ""
        shown = f" ({cause.picture})" if cause.picture else ""
        lines.append(f"{start}{cause.words}{shown}")
    return lines


def _law_causes(result: Result) -> Sequence[str]:
    results = result.law.results if result.law else ()
    return [law_line(quantity) for quantity in results if quantity.verdict == DIFFERS]
