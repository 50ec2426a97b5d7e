"""python -m resnet_fn.benchmark PART: measure one part of the package on this machine.

A part is a module here with `DESCRIPTION` (what it measures, and what its numbers mean), `FLAGS` (name: default,
meaning) and `run(options)`, which returns JSON types.
"""

import importlib
import json
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_fn.config import cli
from resnet_fn.config.hints import closest, finite_or_null

PARTS = {name: name for name in ("step", "data", "allreduce", "startup")} | {"time-to-accuracy": "accuracy"}


def lines(result: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A result as text: name and value, nested ones below their name; several rounds as "median [min, max]"."""
    for name, value in result.items():
        if isinstance(value, dict) and value.keys() != {"median", "min", "max"}:
            yield indent + name
            yield from lines(value, indent + "  ")
        else:
            yield f"{indent + name:36}  {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) > 2 and None not in value:
        value = {"median": statistics.median(value), "min": min(value), "max": max(value)}
    if isinstance(value, dict):
        return f"{_shown(value['median'])} [{_shown(value['min'])}, {_shown(value['max'])}]"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main(arguments: Sequence[str]) -> int:
    """Run one part, print its numbers, and write them as JSON if `--json` is given."""
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        print("usage: python -m resnet_fn.benchmark PART [--json FILE] [flags; PART --help lists them]\n")
        print(textwrap.fill(f"parts: {', '.join(PARTS)}", 80) + "\n\nexamples:")
        print("\n".join(f"  python -m resnet_fn.benchmark {part} --json {part}.json" for part in PARTS))
        return 0
    if name not in PARTS:
        raise cli.UsageError(f"part: {name!r} is unknown; {closest(name, PARTS)}")
    part = importlib.import_module(f"resnet_fn.benchmark.{PARTS[name]}")
    parser = cli.Parser(f"benchmark {name}", part.DESCRIPTION)
    parser.add_argument("--json", type=cli.file_to_write, metavar="FILE", help="write the numbers")
    for flag, (default, meaning) in part.FLAGS.items():
        unit, text = {int: "N", float: "X"}.get(type(default), "NAME"), f"{meaning}; default {default}"
        parser.add_argument(f"--{flag}", type=type(default), default=default, metavar=unit, help=text)
    options = parser.parse(arguments[1:])
    given = ((flag, default, getattr(options, flag.replace("-", "_"))) for flag, (default, _) in part.FLAGS.items())
    least = {flag: (value, min(default, 1)) for flag, default, value in given if type(default) is int}
    cli.raise_usage_errors(
        *((value < low, f"--{flag}: {value} is too small; give {low} or more") for flag, (value, low) in least.items())
    )
    result = finite_or_null(part.run(options))
    print(part.DESCRIPTION, *lines(result), sep="\n")
    if options.json:
        cli.write_text(Path(options.json), json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    cli.run("benchmark", main)
