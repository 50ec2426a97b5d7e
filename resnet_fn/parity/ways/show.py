"""Show the ways to compute a net: a table with a line for each, the first differences, JSON."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from resnet_fn.config.wording import counted, first_few
from resnet_fn.parity.compare.stage import SKIPPED
from resnet_fn.parity.show.json_file import content_of_layer, content_of_stage
from resnet_fn.parity.show.titles import doubt_of, title_of, title_of_stage
from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED
from resnet_fn.parity.ways.way import BY_PRECISION, WayResult
from resnet_fn.runtime.disk import finite_or_null
from resnet_fn.runtime.outputs import write_output

VERSION = 1  # of the JSON file; docs/parity.md describes it
_COLUMNS = ("way", "state", "expected", "compared", "relative", "verdict")
_FORM = "{:13} {:13} {:12} {:>8} {:>8}  {}"
_WIDTH = 80


def row(result: WayResult | None = None) -> str:
    """Return the line of a way in the table, or the line of titles."""
    cells = _cells(result) if result else _COLUMNS
    return _FORM.format(*cells).rstrip()


def _cells(result: WayResult) -> list[str]:
    way, worst = result.way, result.worst
    numbers = [str(result.compared), f"{worst.relative:.1e}"] if worst else ["", ""]
    return [way.name, way.state, way.expected, *numbers, result.words]


def findings(results: Sequence[WayResult]) -> str:
    """Return lines with the verdict, then the first difference of each way that differs, and what
    is undecided or not exercised.
    """
    lines = [_verdict(results)]
    for result in results:
        lines += _first_differences(result)
    for result in results:
        name = result.way.name
        if result.verdict == UNDECIDED:
            lines.append(f"{name}: undecided; {_doubt(result)}")
        if result.skipped:
            lines.append(f"{name}: {result.skipped}")
        lines += [f"{name}: {note}" for note in result.notes if result.verdict != DIFFERS]
    return "\n".join(part for line in lines for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _verdict(results: Sequence[WayResult]) -> str:
    differs = _names(results, DIFFERS)
    if differs:
        return f"verdict: the net differs from itself: {', '.join(differs)}"
    if _names(results, UNDECIDED):
        return "verdict: undecided; no way differs, but not all can be decided"
    computed = len(results) - len(_names(results, SKIPPED))
    if not computed:
        return "verdict: undecided; no way was computed"
    return f"verdict: the net computes the same in {counted(computed, 'way')}"


def agree(results: Sequence[WayResult]) -> bool:
    """Return whether a way was computed, none differs and none is undecided."""
    verdicts = {result.verdict for result in results}
    return verdicts.isdisjoint((DIFFERS, UNDECIDED)) and verdicts != {SKIPPED}


def _names(results: Sequence[WayResult], verdict: str) -> list[str]:
    return [result.way.name for result in results if result.verdict == verdict]


def _first_differences(result: WayResult) -> list[str]:
    stage, layer, way = result.first_stage, result.first_layer, result.way
    if stage is None:
        return []
    why = stage.failed or stage.note
    if first := stage.first:
        why = f"{title_of(first.id)}: {first.values(way.port, way.reference)}"
    lines = [f"{way.name}, first stage that differs: {title_of_stage(stage)}, {why}"]
    if layer:
        values = layer.output.values(way.port, way.reference)
        lines.append(f"  first layer that differs: {layer.name}: {values}")
    elif result.layers:
        lines.append(f"  first layer that differs: none of {len(result.layers)}")
    return [*lines, *(f"  {hint}" for hint in (*stage.hints, *result.notes))]


def _doubt(result: WayResult) -> str:
    doubts = [doubt_of(stage) for stage in result.stages if stage.verdict == UNDECIDED]
    return result.undecided or first_few(doubts)


def write_json(results: Sequence[WayResult], net: str, framework: str, path: str) -> None:
    """Write the ways to a JSON file. A number that is not finite becomes null."""
    first = next((result for result in results if result.verdict == DIFFERS), None)
    stage = first.first_stage if first else None
    layer = first.first_layer if first else None
    content = {
        "format": "resnet_fn parity self",
        "version": VERSION,
        "net": net,
        "framework": framework,
        "agrees": agree(results),
        "first_way": first.way.name if first else None,
        "first_stage": title_of_stage(stage) if stage else None,
        "first_layer": layer.name if layer else None,
        "undecided": _names(results, UNDECIDED),
        "not_exercised": _names(results, SKIPPED),
        "ways": [_content(result) for result in results],
    }
    write_output(path, json.dumps(finite_or_null(content), indent=1, allow_nan=False) + "\n")


def _content(result: WayResult) -> dict[str, Any]:
    layer = result.first_layer
    return {
        "name": result.way.name,
        "state": result.way.state,
        "expected": result.way.expected,
        "verdict": result.verdict,
        "explained": result.words if result.way.expected == BY_PRECISION else None,
        "note": "; ".join([*filter(None, (result.skipped, result.undecided)), *result.notes]),
        "first_layer": layer.name if layer else None,
        "stages": [content_of_stage(stage) for stage in result.stages],
        "layers": [content_of_layer(item) for item in result.layers],
    }
