"""Write the ladder (the comparison with PyTorch) as JSON."""

import json
from typing import Any

from resnet_fn.config.cli import write_text
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.trace.difference import Difference
from resnet_fn.runtime.disk import finite_or_null

VERSION = 3  # of the JSON file; docs/parity.md describes it


def write_json(ladder: Ladder, path: str) -> None:
    """Write the ladder to a JSON file. A number that is not finite becomes null."""
    content = {
        "format": "resnet_fn parity ladder",
        "version": VERSION,
        "agrees": ladder.agrees,
        "compiled": ladder.compiled,
        "rounding_measured": ladder.measured,
        "undecided": [stage.name for stage in ladder.undecided],
        "first_stage": getattr(ladder.first_stage, "name", None),
        "first_layer": getattr(ladder.first_layer, "name", None),
        "first_gradient": getattr(ladder.first_gradient, "name", None),
        "stages": [
            {
                "name": stage.name,
                "verdict": stage.verdict,
                "note": "; ".join(filter(None, (stage.note, stage.failed or stage.doubt))),
                "hints": stage.hints,
                "differences": [_difference(item) for item in stage.differences],
            }
            for stage in ladder.stages
        ],
        "layers": [
            {
                "mode": item.mode,
                "name": item.name,
                "reference": item.theirs,
                "hints": item.hints,
                "output": _difference(item.output),
                "input": _difference(item.input) if item.input else None,
            }
            for item in ladder.layers
        ],
        "names": {
            "how": ladder.names.how,
            "parameters": {k: str(v) for k, v in ladder.names.parameters.items()},
            "layers": ladder.names.layers,
        },
        "settings": ladder.notes,
        "undecided_relu_inputs": ladder.ties,
        # of two modes the larger
        "beyond_rounding": {one.name: one.beyond for one in reversed(ladder.beyond)},
        "probes": [
            {**vars(one), "difference": _difference(one.difference) if one.difference else None}
            for one in ladder.probed.findings
        ],
        "kernels": ladder.probed.kernels,
        "coverage": ladder.coverage.facts,
        "not_exercised": ladder.coverage.not_exercised,
    }
    write_text(path, json.dumps(finite_or_null(content), indent=1, allow_nan=False) + "\n")


def _difference(item: Difference) -> dict[str, Any]:
    return {**vars(item), "verdict": item.verdict}
