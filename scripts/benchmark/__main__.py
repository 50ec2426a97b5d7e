"""Measure one part of the package: python scripts/benchmark PART [--json FILE] [flags; PART --help
lists them].

The package that is measured is that of this checkout, installed or not. A part is a module here
with `DESCRIPTION` (what it measures, and what its numbers mean), `FLAGS` (name: default, meaning)
and `run(options)`, which returns JSON types.
"""

import argparse
import importlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PARTS = {name: name for name in ("step", "data", "allreduce", "startup")} | {
    "time-to-accuracy": "accuracy"
}
CHECKOUT = str(Path(__file__).resolve().parents[2])


def lines(result: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A result as text: name and value, nested ones below their name; several rounds as "median
    [min, max]".
    """
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


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is too small; give {least} or more")
        return int(text)

    return whole_number


def main(arguments: Sequence[str]) -> None:
    """Run one part, print its numbers, and write them as JSON if `--json` is given."""
    sys.path.insert(0, CHECKOUT)  # here, and below in all processes that a part starts
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    first = argparse.ArgumentParser(
        "benchmark", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    first.add_argument("part", choices=PARTS)
    name = first.parse_args(arguments[:1]).part
    part = importlib.import_module(PARTS[name])
    parser = argparse.ArgumentParser(
        f"benchmark {name}", description=part.DESCRIPTION, allow_abbrev=False
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    for flag, (default, meaning) in part.FLAGS.items():
        kind = _at_least(min(default, 1)) if isinstance(default, int) else type(default)
        parser.add_argument(
            f"--{flag}", type=kind, default=default, help=f"{meaning}; default {default}"
        )
    options = parser.parse_args(arguments[1:])
    from resnet_fn.doctor.machine import describe_cpu

    try:
        result = {"cpu": describe_cpu(), **part.run(options)}
    except ValueError as error:
        sys.exit(f"benchmark {name}: error: {error}")
    print(part.DESCRIPTION, *lines(result), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
