"""A live source's answers as functions in its trace, as the comparison takes them."""

import dataclasses
from functools import partial

from resnet_fn.parity.trace.data import Rounding, Trace, Wanted
from resnet_fn.parity.trace.probes import Asked
from resnet_fn.parity.trace.source import Recorded, Source


def answering(recorded: Recorded) -> Trace:
    """Return the trace with the functions that ask its live source."""
    trace, source = recorded

    def measure_probes(asked: Asked) -> None:
        for layer, titles in (source.probe_rounding(asked) or {}).items():
            for title, errors in titles.items():
                known = trace.probes[layer][title].rounding
                for name, error in errors.items():
                    known[name] = max(error, known.get(name, 0.0))

    def search(wanted: Wanted) -> list[str]:
        from resnet_fn.parity.explain.torch_search import make_searcher

        return source.run(lambda rerun: make_searcher(rerun)(wanted))

    searched = trace.task.precision != "fp16"
    return dataclasses.replace(
        trace,
        flipped={width: partial(_flip, source, width) for width in source.tie_widths},
        search=search if searched else None,
        measure_probes=measure_probes if trace.probes else None,
    )


def _flip(source: Source, width: float) -> tuple[Rounding, int]:
    flipped = source.flipped_ties(width)
    assert flipped is not None
    return flipped
