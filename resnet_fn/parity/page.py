"""The ladder as one HTML page: the verdict and its cause, the stages, each layer's error along the net, the losses."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from resnet_fn.config.cli import write_text
from resnet_fn.parity.coverage import NOT_COMPARED
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.layers.difference import DIFFERS, OK, ROUNDING, ROUNDING_FACTOR, UNDECIDED, Difference
from resnet_fn.parity.report import COLUMNS, cells, findings, settings
from resnet_fn.parity.stages import GRADIENTS, RATE, SKIPPED, TRAJECTORY, Stage
from resnet_fn.report.page import document, image, table, text
from resnet_fn.report.plots import available, plain, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {"eval": "output, evaluation mode", "train": "output, training mode", "dropout": "output, with dropout"}
PANELS[GRADIENTS] = "gradients"
Depth = dict[str, dict[str, Difference]]  # of each layer, in each of PANELS that it has
_COLOURS = {OK: "#2e7d32", ROUNDING: "#2e7d32", UNDECIDED: "#b26a00", DIFFERS: "#c62828", SKIPPED: "#777777"}
_STYLE = """
.verdict { border-left: .5rem solid; padding: .3rem 1rem; background: #f6f6f6; overflow-wrap: anywhere; }
.verdict b { font-size: 1.35rem; } .verdict p { margin: .3rem 0; color: #1c1c1c; } .cause { padding-left: 1.5rem; }
.DIFFERS .cause { font-weight: bold; } .scroll { max-height: none; } .scroll img { min-width: 560px; }
li { overflow-wrap: anywhere; }
"""
_DEPTH = """<p>‖here − reference‖ / ‖reference‖ of the layer's output, going forward from left to right, and of its
parameters' gradients, going backward from right to left. Rounding is how far the reference is from its own float64; a
layer above what is allowed, the grey area, differs.</p>"""


def write_page(ladder: Ladder, folder: str, title: str) -> Path:
    """Write the page as parity.html in a folder, which is made if it is missing. Returns the file's path."""
    path = Path(folder, "parity.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, ladder_page(ladder, title, available()))
    return path


def ladder_page(ladder: Ladder, title: str, plots: bool) -> str:
    """The ladder as an HTML document, with plots by matplotlib or with tables alone."""
    verdict = DIFFERS if ladder.first_stage else UNDECIDED if ladder.undecided else OK
    words = {DIFFERS: "They differ", UNDECIDED: "Undecided", OK: "Both compute the same"}[verdict]
    lines = [f'<p class="{"cause" * line.startswith(" ")}">{text(line.strip())}</p>' for line in findings(ladder)]
    box = f'<div class="verdict {verdict}" style="color: {_COLOURS[verdict]}"><b>{words}</b>'
    body = [f"<h1>{text(title)}</h1>", box, *lines, "</div>", "<h2>Stages of a training step</h2>"]
    body.append(table((COLUMNS[0], COLUMNS[-1], *COLUMNS[1:-1]), map(_row, ladder.stages), text_columns=2))
    if depth := along_depth(ladder):
        rows = [[text(name), *(cell for key in PANELS for cell in _cells(row.get(key)))] for name, row in depth.items()]
        numbers = table(("layer", *(word for panel in PANELS.values() for word in (panel, "rounding"))), rows)
        body += ["<h2>Error of each layer along the net</h2>", _DEPTH]
        if plots:
            body.append(f'<div class="scroll">{image("error of each layer", png(plot_depth(depth)))}</div>')
            numbers = f"<details><summary>as a table</summary>{numbers}</details>"
        body.append(numbers)
    for stage in [one for one in ladder.stages if one.name in (TRAJECTORY, RATE) and one.differences]:
        rows = [[item.name, f"{item.ours:.7g}", f"{item.theirs:.7g}"] for item in stage.differences]
        body += [f"<h2>{stage.name.capitalize()}</h2>", table(("update", "here", "reference"), rows)]
    lists = {"Settings that differ": settings(ladder), "Environments that differ": ladder.environment}
    lists |= {"Changed to make them comparable": ladder.changed, "Not exercised": ladder.coverage.not_exercised}
    facts = [f"{name}: {value}" for name, value in ladder.coverage.facts.items() if value]
    for head, items in (lists | {"Exercised": facts, "Kernels": ladder.probed.kernels}).items():
        body += [f"<h2>{head}</h2><ul>", *(f"<li>{text(item)}</li>" for item in items), "</ul>"] if items else []
    body.append(f"<footer>{text(NOT_COMPARED.capitalize())}.</footer>")
    return document(title, body, _STYLE)


def _row(stage: Stage) -> list[str]:
    """A row of the text's table as HTML, its verdict second and in its colour."""
    name, *numbers, verdict = map(text, cells(stage))
    return [name, f'<b style="color: {_COLOURS[stage.verdict]}">{verdict}</b>', *numbers]


def _cells(item: Difference | None) -> tuple[str, str]:
    """Error and rounding, the error in the verdict's colour where that is bad."""
    if item is None:
        return "", ""
    style = f' style="color: {_COLOURS[item.verdict]}; font-weight: bold"' * (item.verdict in (UNDECIDED, DIFFERS))
    return f"<span{style}>{item.relative:.1e}</span>", f"{item.rounding:.1e}" if item.rounding else ""


def along_depth(ladder: Ladder) -> Depth:
    """How each layer differs, in execution order: its output in both modes, and the worst gradient of its parameters.

    A parameter that no layer owns has a row of its own after the layers.
    """
    rows: Depth = {}
    for layer in ladder.layers:
        rows.setdefault(layer.name, {})[layer.mode] = layer.output
    for item in next((stage.differences for stage in ladder.stages if stage.name == GRADIENTS), []):
        owner = max((name for name in rows if item.name.startswith(f"{name}.")), key=len, default=item.name)
        row = rows.setdefault(owner, {})
        row[GRADIENTS] = Stage(GRADIENTS, [item, row.get(GRADIENTS, item)]).worst or item
    return rows


def plot_depth(depth: Depth) -> "Figure":
    """Error, rounding and what is allowed of each layer; the first that differs is named, of gradients the last."""
    from matplotlib.figure import Figure

    panels = [key for key in PANELS if any(key in row for row in depth.values())]
    figure, names = Figure(figsize=(8.6, 1.6 + 2.1 * len(panels)), layout="constrained"), [*map(plain, depth)]
    every = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, key in zip(every, panels, strict=True):
        places = np.array([place for place, row in enumerate(depth.values()) if key in row])
        items = [row[key] for row in depth.values() if key in row]
        numbers = [(i.relative, i.rounding, max(i.tolerance, ROUNDING_FACTOR * i.rounding)) for i in items]
        # On a log axis: what is exact is drawn at the bottom, what is not finite at the top.
        errors, rounding, allowed = np.nan_to_num(numbers, nan=1e3, posinf=1e3).clip(1e-8, 1e3).T
        axes.fill_between(places, 1e-8, allowed, color="#8a8a8a", alpha=0.25, label="allowed")
        axes.plot(places, rounding, "--", color="#8a8a8a", label="rounding")
        axes.plot(places, errors, ".-", color="#3b6fb6", label="error")
        for verdict, mark in ((UNDECIDED, "s"), (DIFFERS, "X")):
            chosen = np.array([item.verdict == verdict for item in items])
            axes.plot(places[chosen], errors[chosen], mark, color=_COLOURS[verdict], label=verdict.lower())
        if chosen.any():
            first = places[chosen][-1 if key == GRADIENTS else 0]
            axes.axvline(first, color=_COLOURS[DIFFERS], linewidth=0.8)
            axes.set_title(f"{names[first]} differs first", color=_COLOURS[DIFFERS], fontsize=10)
        axes.set(yscale="log", ylabel=PANELS[key].replace(", ", "\n"), ylim=(errors.min() / 3, None))
        axes.grid(alpha=0.3)
    shown = range(0, len(names), -(-len(names) // 50))
    every[-1].set_xticks(shown, [names[place] for place in shown], rotation=90, fontsize=7)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure
