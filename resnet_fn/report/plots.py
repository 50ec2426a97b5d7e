"""These functions draw the plots of a report and the curves of runs with matplotlib."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resnet_fn.config.packages import is_importable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# matplotlib's colours; with more curves, none has a colour or a name.
_COLOURS = [
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
]
_BLUE, _RED, _GREY = "#3b6fb6", "#c0504d", "#8a8a8a"
Events = Sequence[dict[str, Any]]  # the events of a run's metrics.jsonl
# title, axis label, (event, field, line style) of each curve
PANELS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...] = (
    ("loss", "loss", (("train", "loss", "-"), ("eval", "loss", "o-"))),
    (
        "accuracy",
        "top-1 or mAP",
        (("train", "accuracy", "-"), ("eval", "top1", "o-"), ("eval", "map", "o-")),
    ),
    ("learning rate", "learning rate", (("train", "lr", "-"),)),
)


def available() -> bool:
    """Return whether matplotlib is installed."""
    return is_importable("matplotlib")


def plain_numbers(axis: "Axis") -> None:
    """Format the numbers of an axis as 20,000 or 0.00001, without powers of ten and without a
    common offset.
    """
    axis.set_major_formatter(lambda value, _: f"{value:,.10f}".rstrip("0").rstrip("."))
    axis.set_minor_formatter(lambda value, _: "")


def draw_all(report: dict[str, Any]) -> dict[str, bytes]:
    """Draw the plots of a report as PNG files, or return an empty dict if matplotlib is not
    installed.
    """
    if not available():
        return {}
    drawn = {}
    if report["calibration"]:
        drawn["reliability"] = png(plot_reliability(report["calibration"]))
    if any(curve["recall"] for curve in report["curves"]):
        drawn["curves"] = png(plot_curves(report))
    return drawn


def plot_reliability(calibration: dict[str, Any]) -> "Figure":
    """Plot the accuracy and the number of samples of each confidence bin."""
    from matplotlib.figure import Figure

    rows = [row for row in calibration["bins"] if row["count"]]
    middle = [(row["from"] + row["to"]) / 2 for row in rows]
    accuracy = [row["accuracy"] for row in rows]
    width = 0.92 / len(calibration["bins"])
    figure = Figure(figsize=(5.6, 6.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.bar(middle, accuracy, width, color=_BLUE, label="accuracy")
    upper.plot(
        [row["confidence"] for row in rows],
        accuracy,
        "o",
        color="black",
        ms=3,
        clip_on=False,
        label="mean confidence and accuracy",
    )
    upper.plot([0, 1], [0, 1], "--", color=_RED, label="perfectly calibrated")
    upper.set(
        ylabel="accuracy",
        ylim=(0, 1),
        title=f"expected calibration error {calibration['error']:.4f}",
    )
    figure.legend(loc="outside lower center", ncols=2)
    lower.bar(middle, [row["count"] for row in rows], width, color=_GREY)
    lower.set(xlabel="confidence", ylabel="samples", yscale="log", xlim=(0, 1), ylim=(0.5, None))
    plain_numbers(lower.yaxis)
    return figure


def plot_curves(report: dict[str, Any]) -> "Figure":
    """Plot the precision-recall curve of each class, in colours for up to 10 classes and in grey
    for more.
    """
    from matplotlib.figure import Figure

    curves = [curve for curve in report["curves"] if curve["recall"]]
    colours = [colour for _, colour in colours_of_curves(report)]
    figure = Figure(figsize=(5.6, 5.6), layout="constrained")
    axes = figure.add_subplot()
    for index, curve in enumerate(curves):
        style = {"color": colours[index]} if colours else {"color": _GREY, "alpha": 0.5}
        axes.plot(
            [0.0, *curve["recall"]],
            [curve["precision"][0], *curve["precision"]],
            drawstyle="steps-pre",
            lw=1.2,
            clip_on=False,
            **style,
        )
    axes.set(
        xlabel="recall",
        ylabel="precision",
        xlim=(0, 1),
        ylim=(0, 1),
        title=f"mean average precision {report['mean_average_precision']:.4f}",
    )
    axes.grid(alpha=0.3)
    return figure


def colours_of_curves(report: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return the classes of `plot_curves` with their colours, or [] if there are too many.

    The page shows them below the picture, because a picture's font may lack the letters of a name.
    """
    pairs = zip(report["classes"], report["curves"], strict=False)  # without probabilities: none
    drawn = [row for row, curve in pairs if curve["recall"]]
    return list(zip(drawn, _COLOURS, strict=False)) if len(drawn) <= len(_COLOURS) else []


def png(figure: "Figure") -> bytes:
    """Return a figure as a PNG file with the same bytes each time."""
    data = io.BytesIO()
    # Without this setting the file would name matplotlib's version, and differ between machines.
    figure.savefig(data, format="png", dpi=110, metadata={"Software": None})
    return data.getvalue()


def draw_run(events: Events, update: int) -> list[bytes]:
    """Draw a run's plots (`PANELS`) as PNG files, with a dotted line at `update`.

    Without matplotlib, return [].
    """
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


def draw_panel(axes: "Axes", panel: int, lines: Mapping[str, Sequence[Events]]) -> None:
    """Draw one of the `PANELS`.

    If a name in `lines` has several runs, draw the mean ± standard deviation.
    """
    title, quantity, curves = PANELS[panel]
    axes.set_title(
        title + " (thin line: training, dots: validation)" * (len(curves) > 1), fontsize=10
    )
    axes.set(xlabel="update", ylabel=quantity)
    axes.grid(alpha=0.3)
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    for index, (name, runs) in enumerate(lines.items()):
        for kind, field, style in curves:
            updates, values = _values(runs, kind, field)
            thin = kind == "train" and len(curves) > 1
            # matplotlib typesets text between dollar signs as mathematics
            plain = name.replace("$", r"\$")
            width, alpha, label = (0.8, 0.6, None) if thin else (1.5, 1.0, plain)
            mean = values.mean(0)
            axes.plot(
                updates,
                mean,
                style,
                color=f"C{index}",
                lw=width,
                alpha=alpha,
                markersize=3,
                label=label,
            )
            if len(runs) > 1:
                deviation = values.std(0, ddof=1)
                axes.fill_between(
                    updates, mean - deviation, mean + deviation, color=f"C{index}", alpha=0.2, lw=0
                )


def _values(runs: Sequence[Events], kind: str, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the updates [n] at which each run has an event `kind` with `field`, and `field`'s
    values [runs, n].
    """
    rows = [
        {e["update"]: e[field] for e in events if e["event"] == kind and field in e}
        for events in runs
    ]
    updates = sorted(set.intersection(*map(set, rows)))
    return np.array(updates), np.array([[row[update] for update in updates] for row in rows], float)
