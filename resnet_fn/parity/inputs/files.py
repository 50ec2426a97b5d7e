"""Write the comparison of inputs as JSON and as a page."""

import json
from pathlib import Path
from typing import Any

from resnet_fn.parity.inputs import table as text_table
from resnet_fn.parity.inputs.causes import channels_of, mean_and_deviation
from resnet_fn.parity.inputs.fitting import Preparation
from resnet_fn.parity.inputs.pixels import PixelDifference
from resnet_fn.parity.inputs.result import Result
from resnet_fn.parity.inputs.stored import FORMAT, VERSION
from resnet_fn.parity.trace.difference import DIFFERS, OK, ROUNDING, UNDECIDED
from resnet_fn.report.page import document, table, text
from resnet_fn.runtime.disk import finite_or_null
from resnet_fn.runtime.outputs import write_output

_COLOURS = {OK: "#2e7d32", ROUNDING: "#2e7d32", UNDECIDED: "#b26a00", DIFFERS: "#c62828"}
_STYLE = """
.verdict { border-left: .5rem solid; padding: .3rem 1rem; background: #f6f6f6; overflow-wrap: anywhere; }
.verdict b { font-size: 1.35rem; } .verdict p { margin: .3rem 0; color: #1c1c1c; } .cause { padding-left: 1.5rem; }
li, h1, td:last-child { overflow-wrap: anywhere; }
"""


def write_json(result: Result, path: str) -> None:
    """Write the comparison to a JSON file. A number that is not finite becomes null."""
    content = finite_or_null(_content(result))
    write_output(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _content(result: Result) -> dict[str, Any]:
    verdict, law = result.verdict, result.law
    first = verdict.first_picture
    return {
        "format": FORMAT,
        "version": VERSION,
        "port": result.port,
        "reference": result.reference,
        "pictures_from": result.pictures,
        "agrees": verdict.agrees,
        "verdict": text_table.verdict_line(result).removeprefix("verdict: ").rstrip(":"),
        "undecided": [stage.name for stage in verdict.undecided],
        "first_stage": verdict.first_stage.name if verdict.first_stage else None,
        "first_picture": first.picture.name if first else None,
        "causes": text_table.cause_lines(result),
        "settings": [*verdict.settings],
        "stages": [
            {
                "name": stage.name,
                "verdict": stage.verdict,
                "compared": stage.compared,
                "note": stage.words,
                "first": stage.first,
                **_difference(stage.worst),
            }
            for stage in verdict.stages
        ],
        "pictures": [
            {
                "name": picture_result.picture.name,
                "features": sorted(picture_result.picture.features),
                "verdict": picture_result.verdict,
                "note": picture_result.words,
                **_difference(picture_result.difference),
            }
            for picture_result in verdict.pictures
        ],
        "augmentation": [vars(quantity) for quantity in law.results] if law else None,
        "draws": law.draws if law else 0,
        "preparations": {
            name: _prepared(preparation) for name, preparation in verdict.preparations.items()
        },
        "unread": [*verdict.unread],
        "not_compared": [*verdict.left],
        "not_exercised": text_table.not_exercised(result),
        "order": verdict.order,
    }


def _difference(difference: PixelDifference | None) -> dict[str, Any]:
    if difference is None:
        return {}
    return {name: value for name, value in vars(difference).items() if name != "verdict"}


def _prepared(preparation: Preparation | None) -> dict[str, Any] | None:
    """Return a preparation as plain values, or None if it is not known."""
    if preparation is None:
        return None
    mean, deviation = mean_and_deviation(preparation.values)
    return {
        **vars(preparation.geometry),
        "channels": channels_of(preparation.values),
        "mean": mean.tolist(),
        "deviation": deviation.tolist(),
        "gamma": preparation.curve,
        "decoding": dict(preparation.readings),
        "border": preparation.border,
        "error_in_levels": preparation.error,
    }


def write_page(result: Result, folder: str) -> Path:
    """Write the page as inputs.html in a folder, which is made, and return the file's path."""
    path = Path(folder, "inputs.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, page(result))
    return path


def page(result: Result) -> str:
    """Return the comparison as an HTML document."""
    verdict = result.verdict
    state = DIFFERS if verdict.first_stage else UNDECIDED if verdict.undecided else OK
    heading = {DIFFERS: "They differ", UNDECIDED: "Undecided", OK: "Both prepare the same"}[state]
    title = f"{result.port} against {result.reference}"
    lines = [
        f'<p class="{"cause" * line.startswith(" ")}">{text(line.strip())}</p>'
        for line in text_table.findings(result)
    ]
    box = f'<div class="verdict {state}" style="color: {_COLOURS[state]}"><b>{heading}</b>'
    body = [f"<h1>{text(title)}</h1>", box, *lines, "</div>"]
    header = (text_table.COLUMNS[0], text_table.COLUMNS[-1], *text_table.COLUMNS[1:-1])
    rows = [_row(text_table.cells(stage), stage.verdict) for stage in verdict.stages]
    body += ["<h2>Stages</h2>", table(header, rows, text_columns=2)]
    pictures = [text_table.picture_line(picture_result) for picture_result in verdict.pictures]
    laws = [text_table.law_line(quantity) for quantity in result.law.results] if result.law else []
    lists = {"Pictures": pictures, "Augmentation": laws}
    lists["Not exercised"] = text_table.not_exercised(result)
    for head, items in lists.items():
        shown = (f"<li>{text(item)}</li>" for item in items)
        body += [f"<h2>{head}</h2><ul>", *shown, "</ul>"] if items else []
    return document(title, [*body, f"<footer>{text(result.pictures)}</footer>"], _STYLE)


def _row(row: list[str], verdict: str) -> list[str]:
    name, *numbers, outcome = row
    colour = _COLOURS.get(verdict, "#777777")
    return [text(name), f'<b style="color: {colour}">{text(outcome)}</b>', *map(text, numbers)]
