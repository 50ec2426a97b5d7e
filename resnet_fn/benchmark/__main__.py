"""python -m resnet_fn.benchmark PART: measure one part of the package on this machine.

A part is a module of this package with `DESCRIPTION`, `add_arguments(parser)`, `run(options) -> dict` (JSON types)
and `table(result) -> str`.
"""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from resnet_fn.config import cli
from resnet_fn.config.hints import closest

PARTS = {
    "step": "resnet_fn.benchmark.step",
    "data": "resnet_fn.benchmark.data",
    "allreduce": "resnet_fn.benchmark.allreduce",
    "startup": "resnet_fn.benchmark.startup",
    "accumulation": "resnet_fn.benchmark.accumulation",
    "evaluation": "resnet_fn.benchmark.evaluation",
    "time-to-accuracy": "resnet_fn.benchmark.accuracy",
}


def main(arguments: Sequence[str]) -> int:
    """Run one part, print its table, write its figures as JSON if asked."""
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        print("usage: python -m resnet_fn.benchmark PART [--json FILE] [flags; PART --help lists them]\n")
        print(f"parts: {', '.join(PARTS)}")
        print(
            "\nexamples:\n" + "\n".join(f"  python -m resnet_fn.benchmark {part} --json {part}.json" for part in PARTS)
        )
        return 0
    if name not in PARTS:
        raise cli.UsageError(f"part: {name!r} is unknown; {closest(name, PARTS)}")
    part = importlib.import_module(PARTS[name])
    parser = cli.Parser(f"benchmark {name}", part.DESCRIPTION)
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    part.add_arguments(parser)
    options = parser.parse(arguments[1:])
    result = part.run(options)
    print(part.table(result))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    cli.run("benchmark", main)
