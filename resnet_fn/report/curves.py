"""Curves of runs over updates: one line for each run, or the mean and a band for several."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.report.plots import available, plain, plain_numbers, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Events = Sequence[dict[str, Any]]  # of a run's metrics.jsonl
# title, axis label, (event, field, line style) of each curve
PANELS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...] = (
    ("loss", "loss", (("train", "loss", "-"), ("eval", "loss", "o-"))),
    ("accuracy", "top-1 or mAP", (("train", "accuracy", "-"), ("eval", "top1", "o-"), ("eval", "map", "o-"))),
    ("learning rate", "learning rate", (("train", "lr", "-"),)),
)


def smoothing_note(smoothing: Sequence[float]) -> str:
    """Return what label smoothing does to the curves of the loss; "" where there is none."""
    values = few([f"{value:g}" for value in sorted({*smoothing} - {0.0})])
    return f"Label smoothing {values} raises the training loss; the validation loss is without it." * bool(values)


def draw_run(events: Events, update: int) -> list[bytes]:
    """Return a run's `PANELS` as PNG files, with a dotted line at `update`; [] without matplotlib or a log."""
    if not available() or not events:
        return []
    from matplotlib.figure import Figure

    files = []
    for panel in range(len(PANELS)):
        figure = Figure(figsize=(4.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        draw_panel(axes, panel, {"": [events]})
        axes.axvline(update, color="black", linestyle=":", linewidth=1)
        files.append(png(figure))
    return files


def draw_panel(axes: "Axes", panel: int, lines: Mapping[str, Sequence[Events]], note: str = "") -> None:
    """Draw one of `PANELS`: for each line its runs' curves, of several the mean and one standard deviation (n - 1).

    A mean is over the updates that all runs of a line have; a number that was not finite leaves a gap.
    """
    title, quantity, curves = PANELS[panel]
    title += ": training thin, validation with dots" * (len(curves) > 1)
    axes.set_title("\n".join(text for text in (title, note) if text), fontsize=10)
    axes.set(xlabel="update", ylabel=quantity)
    axes.grid(alpha=0.3)
    plain_numbers(axes.xaxis, axes.yaxis)
    for index, (name, runs) in enumerate(lines.items()):
        for kind, field, style in curves:
            updates, values = _values(runs, kind, field)
            thin = kind == "train" and len(curves) > 1
            width, alpha, label = (0.8, 0.6, None) if thin else (1.5, 1.0, plain(name))
            mean = values.mean(0)
            axes.plot(updates, mean, style, color=f"C{index}", lw=width, alpha=alpha, markersize=3, label=label)
            if len(runs) > 1:
                deviation = values.std(0, ddof=1)
                axes.fill_between(updates, mean - deviation, mean + deviation, color=f"C{index}", alpha=0.2, lw=0)


def _values(runs: Sequence[Events], kind: str, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the updates [n] at which all runs have the field, and its values [runs, n]; NaN if not finite."""
    rows = [{e["update"]: e[field] for e in events if e["event"] == kind and field in e} for events in runs]
    updates = sorted(set.intersection(*map(set, rows)))
    return np.array(updates), np.array([[row[update] for update in updates] for row in rows], float)
