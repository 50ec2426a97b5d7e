"""python -m resnet_fn.plot: draw the curves of one or several runs, or compare them in a table."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnet_fn.config import cli
from resnet_fn.config.hints import closest
from resnet_fn.report.plots import plain
from resnet_fn.telemetry import read_log
from resnet_fn.telemetry.run_table import read_run, run_table

_EXAMPLES = """examples:
  python -m resnet_fn.plot runs/first
  python -m resnet_fn.plot runs/a runs/b --out compare.svg
  python -m resnet_fn.plot runs/seed* --table         mean and standard deviation over seeds
"""
# title, axis label, (event, field, line style) of each curve
_PANELS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...] = (
    ("loss (training pale, evaluation dots)", "loss", (("train", "loss", "-"), ("eval", "loss", "o-"))),
    (
        "accuracy (training pale, evaluation dots)",
        "top-1 or mAP",
        (("train", "accuracy", "-"), ("eval", "top1", "o-"), ("eval", "map", "o-")),
    ),
    ("learning rate", "learning rate", (("train", "lr", "-"),)),
)


def parser() -> cli.Parser:
    """The command's flags."""
    about = "Draw loss, accuracy and learning rate of one or several runs, or compare them in a table."
    flags = cli.Parser("plot", about, _EXAMPLES, "RUN …")
    flags.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    flags.add_argument("--out", metavar="FILE", help=".png, .svg or .pdf; default curves.png")
    table = "print a table instead: runs that differ in the seed alone share a line"
    flags.add_argument("--table", action="store_true", help=table)
    return flags


def read_events(run: Path) -> list[dict[str, Any]]:
    """The events of a run's metrics.jsonl; a ValueError where the folder holds none, with the nearest that does."""
    file = run / "metrics.jsonl"
    try:
        events = read_log(file)
    except OSError:
        near = sorted(p.parent.name for p in run.parent.glob("*/metrics.jsonl")) if run.parent.is_dir() else []
        hint = closest(run.name, near) if near else "give a run folder"
        raise ValueError(f"{run}: holds no metrics.jsonl; {hint}") from None
    if not events:
        raise ValueError(f"{file}: is still empty; wait for the first update")
    return events


def draw(runs: dict[str, list[dict[str, Any]]], out: Path) -> None:
    """Draw the curves of runs (name → events), each in a colour of its own, over updates; `out`'s ending is the format.

    Raises:
        ValueError: no matplotlib, an ending that it does not know, or a file that cannot be written.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plot needs matplotlib; pip install matplotlib") from None
    figure = Figure(figsize=(8, 10), layout="constrained")
    for axes, (title, label, curves) in zip(figure.subplots(len(_PANELS), 1, sharex=True), _PANELS, strict=True):
        axes.set(title=title, ylabel=label)
        axes.grid(alpha=0.3)
        for index, (name, events) in enumerate(runs.items()):
            for kind, field, style in curves:
                rows = [event for event in events if event["event"] == kind and event.get(field) is not None]
                pale = kind == "train" and len(curves) > 1
                axes.plot(
                    [event["update"] for event in rows],
                    [event[field] for event in rows],
                    style,
                    color=f"C{index}",
                    markersize=3,
                    linewidth=0.8 if pale else 1.5,
                    alpha=0.45 if pale else 1.0,
                    label=None if pale else plain(name),
                )
    figure.axes[-1].set_xlabel("update")
    figure.axes[0].legend()
    try:
        with matplotlib.rc_context({"svg.hashsalt": "resnet_fn"}):
            figure.savefig(out, dpi=120, metadata={"Date": None} if out.suffix == ".svg" else None)
    except OSError as error:
        raise ValueError(f"out: {out} cannot be written ({error.strerror}); give another file") from None


def main(arguments: Sequence[str]) -> int:
    """Draw, and say where; or print a table."""
    parsed = parser().parse(arguments)
    if parsed.table:
        cli.refuse((parsed.out, "--out is for curves, --table prints; give one of them"))
        lines, notes = run_table({run: read_run(Path(run), read_events(Path(run))) for run in parsed.runs})
        print("\n".join(lines))
        for note in notes:
            print(note, file=sys.stderr)
        return 0
    out = Path(parsed.out or "curves.png")
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise cli.UsageError(f"--out: {str(out)!r} has no ending that is known; use .png, .svg or .pdf")
    draw({run: read_events(Path(run)) for run in parsed.runs}, out)
    print(f"curves of {', '.join(parsed.runs)}: {out}")
    return 0


if __name__ == "__main__":
    cli.run("plot", main)
