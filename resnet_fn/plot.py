"""The command `plot` draws the curves of runs, or compares the runs in a table."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from resnet_fn.config import cli
from resnet_fn.config.path_hints import near_run
from resnet_fn.config.printing import say
from resnet_fn.config.wording import first_few
from resnet_fn.report.fonts import font_families, with_codes
from resnet_fn.report.plots import PANELS, Events, draw_panel
from resnet_fn.report.run_table import different_updates, group_runs, read_run, run_table
from resnet_fn.runtime.disk import writing
from resnet_fn.runtime.extras import import_extra
from resnet_fn.telemetry import read_log

_EXAMPLES = """examples:
  python -m resnet_fn.plot runs/first
  python -m resnet_fn.plot runs/a runs/b --out compare.svg
  python -m resnet_fn.plot runs/seed*                 mean and band over seeds
  python -m resnet_fn.plot runs/seed* --table         mean and standard deviation over seeds
"""


def read_events(run: Path) -> list[dict[str, Any]]:
    """Read the events of a run from metrics.jsonl."""
    file = run / "metrics.jsonl"
    try:
        events = read_log(file)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{run}: contains no metrics.jsonl; {near_run(run, 'give a run folder')}"
        ) from None
    except OSError as error:
        raise ValueError(f"{file}: cannot be read ({error.strerror}); give another run") from None
    if not events:
        raise ValueError(f"{file}: is still empty; wait for the first update")
    return events


def lines_of(runs: dict[str, list[dict[str, Any]]]) -> tuple[dict[str, list[Events]], list[str]]:
    """Group the events of `runs` by curve. Evaluated runs of `train` that differ only in the seed
    share a curve.

    Returns a dict from each curve's title to the events of the curve's runs, and a list of
    warnings.
    """
    recipes: dict[str, dict[str, Any]] = {}
    for name, events in runs.items():
        # a run without a recipe or an evaluation gets its own curve
        with contextlib.suppress(ValueError):
            recipes[name] = read_run(Path(name), events).recipe
    lines: dict[str, list[Events]] = {
        name: [events] for name, events in runs.items() if name not in recipes
    }
    warnings: list[str] = []
    for names in group_runs(recipes).values():
        seeds = {recipes[name].get("seed") for name in names}
        if len(names) > 1 and len(seeds) == len(names):
            title = f"{first_few(names)}: mean of {len(names)} seeds, band ± standard deviation"
            lines[title] = [runs[name] for name in names]
            warnings += different_updates({name: runs[name][-1]["update"] for name in names})
        else:
            lines |= {name: [runs[name]] for name in names}
    return lines, warnings


def draw(lines: dict[str, list[Events]], out: Path) -> list[str]:
    """Draw the curves `lines`, which `lines_of` returns, as the file `out`, and return warnings."""
    matplotlib = import_extra("matplotlib", "plot")
    from matplotlib.figure import Figure

    families, without_font = font_families(lines)
    labelled = {fill(with_codes(name, without_font), 90): runs for name, runs in lines.items()}
    with matplotlib.rc_context({"svg.hashsalt": "resnet_fn", "font.family": families}):
        figure = Figure(figsize=(8, 10), layout="constrained")
        for panel, axes in enumerate(figure.subplots(len(PANELS), 1, sharex=True)):
            draw_panel(axes, panel, labelled)
            axes.label_outer()
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left")
        with writing(f"out: {out}", "give another file"):
            figure.savefig(out, dpi=120, metadata={"Date": None} if out.suffix == ".svg" else None)
    return [
        f"warning: no installed font has {first_few(without_font, 10)}; the names show their "
        "codes; install a font that has them"
    ] * bool(without_font)


def main(arguments: Sequence[str]) -> int:
    """Draw the curves of runs to a file, or print a table."""
    flags = cli.Parser(
        "plot",
        "Draw the curves of runs, or compare runs in a table.\nRuns of train that differ only "
        "in the seed are combined.",
        _EXAMPLES,
        "RUN …",
    )
    flags.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    flags.add_argument(
        "--out", metavar="FILE", help="image file to write (.png, .svg or .pdf); default curves.png"
    )
    flags.add_argument("--table", action="store_true", help="print a table instead of drawing")
    parsed = flags.parse(arguments)
    out = Path(parsed.out or "curves.png")
    cli.raise_usage_errors(
        (parsed.out and parsed.table, "--out cannot be used with --table; give one of them"),
        (
            out.suffix not in (".png", ".svg", ".pdf") and not parsed.table,
            f"--out: {str(out)!r} has an unknown ending; use .png, .svg or .pdf",
        ),
    )
    runs = {run: read_events(Path(run)) for run in parsed.runs}
    if parsed.table:
        rows, warnings = run_table(
            {run: read_run(Path(run), events) for run, events in runs.items()}
        )
        say(*rows)
    else:
        lines, warnings = lines_of(runs)
        warnings += draw(lines, out)
        say(f"curves of {', '.join(parsed.runs)}: {out}")
    say(*warnings, stream=sys.stderr)
    return 0


if __name__ == "__main__":
    cli.run("plot", main)
