"""Write the ladder (the comparison with PyTorch) as JSON."""

import json
from typing import Any

from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.probes import Finding
from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.show.titles import doubt_of, title_of, title_of_stage
from resnet_fn.parity.trace.difference import Difference
from resnet_fn.runtime.disk import finite_or_null
from resnet_fn.runtime.outputs import write_output

VERSION = 4  # of the JSON file; docs/parity.md describes it


def write_json(ladder: Verdict, path: str, inputs: str = "") -> None:
    """Write the ladder to a JSON file. A number that is not finite becomes null.

    `inputs` is the line of `parity inputs`' verdict, if there is one.
    """
    content = {
        "format": "resnet_fn parity ladder",
        "version": VERSION,
        "agrees": ladder.agrees,
        "compiled": ladder.compiled,
        "rounding_measured": ladder.measured,
        "undecided": [title_of_stage(stage) for stage in ladder.undecided],
        "undecided_arrays": ladder.counts[0],
        "compared_arrays": ladder.counts[1],
        "first_stage": title_of_stage(stage) if (stage := ladder.first_stage) else None,
        "first_layer": getattr(ladder.first_layer, "name", None),
        "first_gradient": title_of(item.id) if (item := ladder.first_gradient) else None,
        "stages": [content_of_stage(stage) for stage in ladder.stages],
        "layers": [content_of_layer(item) for item in ladder.layers],
        "names": {
            "how": ladder.names.how,
            "parameters": {k: str(v) for k, v in ladder.names.parameters.items()},
            "layers": ladder.names.layers,
        },
        "settings": ladder.settings,
        "undecided_relu_inputs": ladder.ties,
        "ties": ladder.tied,
        "passed_by_wide_bounds": {title_of(array.id): array.why for array in reversed(ladder.lent)},
        # of two modes the larger
        "beyond_rounding": {title_of(array.id): array.beyond for array in reversed(ladder.beyond)},
        "probes": [_probe(finding) for finding in ladder.probed.findings],
        "kernels": ladder.probed.kernels,
        "coverage": ladder.coverage.facts,
        "not_exercised": ladder.coverage.not_exercised,
        "inputs": inputs or None,
        "small_trace": ladder.seen and ladder.seen._asdict(),
    }
    write_output(path, json.dumps(finite_or_null(content), indent=1, allow_nan=False) + "\n")


def content_of_stage(stage: Stage) -> dict[str, Any]:
    """Return a stage as an entry of `stages`."""
    return {
        "name": title_of_stage(stage),
        "verdict": stage.verdict,
        "note": "; ".join(filter(None, (stage.note, stage.failed or doubt_of(stage)))),
        "hints": stage.hints,
        "differences": [_difference(item) for item in stage.differences],
    }


def content_of_layer(item: LayerDifference) -> dict[str, Any]:
    """Return a layer as an entry of `layers`."""
    return {
        "mode": item.mode,
        "name": item.name,
        "reference": item.reference,
        "hints": item.hints,
        "output": _difference(item.output),
        "input": _difference(item.input) if item.input else None,
    }


def _difference(item: Difference) -> dict[str, Any]:
    return {
        "name": title_of(item.id),
        "max_abs": item.max_abs,
        "relative": item.relative,
        "cosine": item.cosine,
        "port": item.port,
        "reference": item.reference,
        "place": item.place,
        "rounding": item.rounding,
        "tolerance": item.tolerance,
        "unsure": item.unsure,
        "verdict": item.verdict,
        "why": item.why,
        "estimated": item.estimated,
    }


def _probe(finding: Finding) -> dict[str, Any]:
    return {
        "layer": finding.layer,
        "probe": finding.probe,
        "difference": _difference(finding.difference) if finding.difference else None,
        "words": finding.words,
    }
