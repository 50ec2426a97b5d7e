"""The report's pictures, drawn by matplotlib where it is installed (`pip install 'resnet_fn[plots]'`)."""

import base64
import importlib.util
import io
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from resnet_fn.report.samples import sample_pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from resnet_fn.evaluation.evaluate import Evaluation

_NUMBERS_UP_TO = 20  # classes; above it the numbers in a confusion matrix could not be read
_NAMES_UP_TO = 60
_BLUE, _RED, _GREY = "#3b6fb6", "#c0504d", "#8a8a8a"


def available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_all(report: dict[str, Any], evaluation: "Evaluation") -> dict[str, str]:
    """Draw every picture of the report.

    Returns:
        "confusion", "reliability" and, where there are mistakes, "mistakes": each a data: URL of a PNG. Empty
        without matplotlib: the page then has its tables only.
    """
    if not available():
        return {}
    drawn = {"confusion": confusion_figure(report), "reliability": reliability_figure(report["calibration"])}
    if report["mistakes"]:
        drawn["mistakes"] = mistakes_figure(report["mistakes"], evaluation)
    return {name: _data_url(figure) for name, figure in drawn.items()}


def confusion_figure(report: dict[str, Any]) -> "Figure":
    """The confusion matrix as shares of each true class, with the counts where they can be read."""
    from matplotlib.figure import Figure

    counts = np.array(report["confusion"])
    names = [row["name"] for row in report["classes"]]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = min(3.0 + 0.42 * len(names), 11.0)
    figure = Figure(figsize=(side + 0.8, side), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true")
    if len(names) <= _NAMES_UP_TO:
        size = 9 if len(names) <= 30 else 6
        long = max(map(len, names)) > 3
        axes.set_xticks(range(len(names)), names, rotation=90 if long else 0, fontsize=size)
        axes.set_yticks(range(len(names)), names, fontsize=size)
    if len(names) <= _NUMBERS_UP_TO:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                color = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, str(count), ha="center", va="center", color=color, fontsize=9)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    return figure


def reliability_figure(calibration: dict[str, Any]) -> "Figure":
    """Accuracy against confidence in each bin, above how many samples the bin holds."""
    from matplotlib.figure import Figure

    rows = [row for row in calibration["bins"] if row["count"]]
    middle = [(row["from"] + row["to"]) / 2 for row in rows]
    width = 1 / len(calibration["bins"])
    figure = Figure(figsize=(5.6, 6.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.bar(middle, [row["accuracy"] for row in rows], width * 0.92, color=_BLUE, label="accuracy")
    upper.plot([row["confidence"] for row in rows], [row["accuracy"] for row in rows], "o", color="black", ms=3)
    upper.plot([0, 1], [0, 1], "--", color=_RED, label="perfectly calibrated")
    upper.set(ylabel="accuracy", ylim=(0, 1), title=f"expected calibration error {calibration['error']:.4f}")
    upper.legend(loc="upper left", framealpha=0.95)
    lower.bar(middle, [row["count"] for row in rows], width * 0.92, color=_GREY)
    lower.set(xlabel="confidence", ylabel="samples", yscale="log", xlim=(0, 1), ylim=(0.5, None))
    return figure


def mistakes_figure(mistakes: list[dict[str, Any]], evaluation: "Evaluation") -> "Figure":
    """A contact sheet: each wrongly classified image with its name, label, prediction and confidence."""
    from matplotlib.figure import Figure

    columns = min(6, len(mistakes))
    rows = math.ceil(len(mistakes) / columns)
    figure = Figure(figsize=(1.9 * columns, 2.35 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    indices = [mistake["index"] for mistake in mistakes]
    shown = sample_pictures(evaluation.dataset, indices)
    for axes, mistake, picture in zip(grid.flat, mistakes, shown, strict=False):
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        text = f"{_short(mistake['name'])}\n{_short(mistake['label'])} → {_short(mistake['prediction'])}"
        # parse_math off: a $ in a file name is a $
        axes.set_title(f"{text}\n{mistake['confidence']:.1%}", fontsize=8, parse_math=False)
    return figure


def _short(name: str, most: int = 22) -> str:
    return name if len(name) <= most else "…" + name[-most + 1 :]


def _data_url(figure: "Figure") -> str:
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that the font lacks are boxes; the tables have them
        # Without this the file would name matplotlib's version: two machines, two files.
        figure.savefig(data, format="png", dpi=110, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
