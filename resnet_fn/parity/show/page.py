"""Write the ladder (the comparison with PyTorch) as an HTML page."""

from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.stage import SKIPPED, Stage
from resnet_fn.parity.show.table import COLUMNS, cells, findings, settings
from resnet_fn.parity.show.titles import doubt_of, title_of, title_of_stage
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    OK,
    ROUNDING,
    ROUNDING_FACTOR,
    UNDECIDED,
    Difference,
)
from resnet_fn.parity.trace.stages import GRADIENTS, RATE, TRAJECTORY
from resnet_fn.report.page import document, table, text
from resnet_fn.runtime.outputs import write_output

PANELS = {
    "eval": "output, evaluation mode",
    "train": "output, training mode",
    "dropout": "output, with dropout",
}

_GRADIENTS = GRADIENTS.name  # a key of PANELS

PANELS[_GRADIENTS] = "gradients"

Depth = dict[str, dict[str, Difference]]  # layer's name → key of PANELS → difference

_COLOURS = {
    OK: "#2e7d32",
    ROUNDING: "#2e7d32",
    UNDECIDED: "#b26a00",
    DIFFERS: "#c62828",
    SKIPPED: "#777777",
}

_LEAST, _MOST = 1e-8, 1e3  # the errors at the left and at the right end of a bar

_STYLE = """
.verdict { border-left: .5rem solid; padding: .3rem 1rem; background: #f6f6f6; overflow-wrap: anywhere; }
.verdict b { font-size: 1.35rem; } .verdict p { margin: .3rem 0; color: #1c1c1c; } .cause { padding-left: 1.5rem; }
.DIFFERS .cause { font-weight: bold; } .scroll { max-height: none; } .hint { display: none; }
li { overflow-wrap: anywhere; }
.bar { min-width: 9rem; padding-bottom: 8px; background: linear-gradient(var(--colour) 0 0) 0 100%/var(--error) 4px,
linear-gradient(#ccc 0 0) 0 100%/var(--allowed) 8px; background-repeat: no-repeat; }
h1 { overflow-wrap: anywhere; } .stages { font-size: .8rem; }
.stages td:first-child { min-width: 11rem; } .stages td:nth-child(2) { overflow-wrap: anywhere; }
@media (max-width: 600px) {
  h1 { font-size: 1.2rem; } .bar { min-width: 4rem; } .stages thead { display: none; }
  .stages tr { display: grid; grid-template-columns: 1.3fr 1fr 1fr; column-gap: .5rem;
    padding: .3rem 0; border-bottom: 1px solid #e4e4e4; }
  .stages td { border: 0; padding: 0; font-size: .75rem; text-align: left; }
  .stages td.text { grid-column: 1 / -1; font-size: .85rem; } .stages td:empty { display: none; }
  .stages td:not(.text)::before { color: #555; }
"""

# In a narrow window, a stage is a few lines, in which the column's name stands before each number.
_STYLE += "".join(
    f'  .stages td:nth-child({column})::before {{ content: "{name} "; }}\n'
    for column, name in enumerate(COLUMNS[1:-1], 3)
)

_STYLE += "}\n"

_DEPTH = """<p>Each number is the relative error ‖port − reference‖ / ‖reference‖. Outputs are computed from top to
bottom, gradients from bottom to top. Bars are logarithmic. The grey bar is the allowed error. An error that is too
large has a red bar.</p>"""


def write_page(ladder: Verdict, folder: str, title: str, inputs: str = "") -> Path:
    """Write the page as parity.html in a folder, and return the file's path.

    A missing folder is created. `inputs` is the line of `parity inputs`' verdict, if there is one.
    """
    path = Path(folder, "parity.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, ladder_page(ladder, title, inputs))
    return path


def ladder_page(ladder: Verdict, title: str, inputs: str = "") -> str:
    """Return the ladder as an HTML document."""
    verdict = DIFFERS if ladder.first_stage else UNDECIDED if ladder.undecided else OK
    same = "They agree in sampled numbers" if ladder.seen else "Both compute the same"
    headline = {DIFFERS: "They differ", UNDECIDED: "Undecided", OK: same}[verdict]
    lines = [
        f'<p class="{"cause" * line.startswith(" ")}">{text(line.strip())}</p>'
        for line in findings(ladder)
    ]
    box = f'<div class="verdict {verdict}" style="color: {_COLOURS[verdict]}"><b>{headline}</b>'
    body = [f"<h1>{text(title)}</h1>", box, *lines, "</div>"]
    if depth := along_depth(ladder):
        present = {key for row in depth.values() for key in row}
        panels = [key for key in PANELS if key in present]
        rows = [
            [text(name), *(_bar(row.get(key)) for key in panels)] for name, row in depth.items()
        ]
        layers = table(("layer", *(PANELS[key] for key in panels)), rows)
        body += ["<h2>Error of each layer along the net</h2>", _DEPTH, layers]
    header = (COLUMNS[0], COLUMNS[-1], *COLUMNS[1:-1])
    stages = table(header, map(_row, ladder.stages), text_columns=2)
    body += ["<h2>Stages of a training step</h2>", f'<div class="stages">{stages}</div>']
    for stage in [
        stage for stage in ladder.stages if stage.id in (TRAJECTORY, RATE) and stage.differences
    ]:
        rows = [
            [title_of(item.id), f"{item.port:.7g}", f"{item.reference:.7g}"]
            for item in stage.differences
        ]
        body += [
            f"<h2>{title_of_stage(stage).capitalize()}</h2>",
            table(("update", "in the port", "reference"), rows),
        ]
        body += [f"<p>{text(stage.note)}</p>"] if stage.note else []
    lists = {
        "Settings that differ": settings(ladder),
        "Environments that differ": ladder.environment,
    }
    lists |= {
        "Changes that make both sides comparable": ladder.changes,
        "Not exercised": ladder.coverage.not_exercised,
    }
    covered, left_out = ladder.coverage.facts.items(), ladder.coverage.not_compared
    facts = [f"{name}: {_plain(value)}" for name, value in covered if value and value != left_out]
    for head, items in (lists | {"Exercised": facts, "Kernels": ladder.probed.kernels}).items():
        body += (
            [f"<h2>{head}</h2><ul>", *(f"<li>{text(item)}</li>" for item in items), "</ul>"]
            if items
            else []
        )
    body += [f"<p>{text(inputs)}</p>"] if inputs else []
    body.append(f"<footer>{text(left_out.capitalize())}.</footer>")
    return document(title, body, _STYLE)


def _plain(value: Any) -> str:
    """Return a fact of the coverage as text: "a: b, c; d: e" for a dict of lists."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_plain(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _row(stage: Stage) -> list[str]:
    name, *numbers, verdict = cells(stage)
    why = stage.failed or doubt_of(stage)
    verdict += f"; {why}" if why not in verdict else ""
    return [
        text(name),
        f'<b style="color: {_COLOURS[stage.verdict]}">{text(verdict)}</b>',
        *map(text, numbers),
    ]


def _bar(item: Difference | None) -> str:
    """Return an HTML cell with a relative error, a bar for the error, and a bar for the allowed
    error.
    """
    if item is None:
        return ""
    errors = np.clip(
        [item.relative, max(item.tolerance, ROUNDING_FACTOR * item.rounding)], _LEAST, _MOST
    )
    error, allowed = np.nan_to_num(100 * np.log10(errors / _LEAST) / np.log10(_MOST / _LEAST))
    style = f"--colour: {_COLOURS[item.verdict]}; --error: {error:.2f}%; --allowed: {allowed:.2f}%"
    return (
        f'<div class="bar" style="{style}" title="rounding '
        f'{item.rounding:.1e}">{item.relative:.1e}</div>'
    )


def along_depth(ladder: Verdict) -> Depth:
    """Return each layer's output difference in each mode and its worst gradient difference, in
    execution order.
    """
    rows: Depth = {}
    for layer in ladder.layers:
        rows.setdefault(layer.name, {})[layer.mode] = layer.output
    for item in next((stage.differences for stage in ladder.stages if stage.id == GRADIENTS), ()):
        owner = max(
            (name for name in rows if item.name.startswith(f"{name}.")),
            key=len,
            default=title_of(item.id),
        )
        row = rows.setdefault(owner, {})
        row[_GRADIENTS] = Stage(GRADIENTS, [item, row.get(_GRADIENTS, item)]).worst or item
    return rows
