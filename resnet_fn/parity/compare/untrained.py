"""Compare the initial values of arrays that are not trained."""

import dataclasses

from resnet_fn.parity.compare.allowed import OUTPUTS_TOLERANCE, within
from resnet_fn.parity.compare.measures import UNITS_OF_TABLE, as_units_in_the_last_place
from resnet_fn.parity.compare.rule import TraceRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage, with_note
from resnet_fn.parity.trace.difference import DIFFERS
from resnet_fn.parity.trace.stages import UNTRAINED, StageId

_OF_PRECISION = (
    "; one side may compute this table in float64: compute it in the reference's precision, or load "
    "the reference's"
)


@dataclasses.dataclass(frozen=True)
class Untrained(TraceRule):
    """Compares buffers, frozen weights and initial moving statistics bit for bit."""

    id: StageId = UNTRAINED

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison.

        Without initial values, statistics and frozen weights are left out, because loaded weights
        replace these arrays.
        """
        port, reference, names = sides.port, sides.reference, sides.names
        initial = names.rename(reference.initial)
        stage = Stage(self.id, overwritten=True, absent=Absent.NOT_IN_TASK)
        differences = []
        hints: list[str] = []
        for name in [name for name in names.parameters if name in port.initial and name in initial]:
            sources = names.sources(name)
            loaded = not sides.initialisation and not {*sources} <= {*reference.constants}
            # names of both sides, which may be the same for different arrays
            trained = name in port.trainable or not {*sources}.isdisjoint(reference.trainable)
            if name in sides.random_arrays or trained or loaded:
                continue
            a = port.initial[name]
            b = initial[name]
            b = b.astype(a.dtype) if a.dtype.kind == b.dtype.kind == "f" else b
            item = within(self.tolerance).compare(name, a, b)
            if item.verdict == DIFFERS and a.dtype.kind == "f":
                # a table that one side computed in float64
                item = as_units_in_the_last_place(item, a, b)
                if item.verdict != DIFFERS:
                    note = f"at most {UNITS_OF_TABLE} units in the last place apart"
                    stage = with_note(stage, f"{name}: {note}")
            differences.append(item)
            if item.verdict == DIFFERS:
                are_floats = a.dtype.kind == b.dtype.kind == "f"
                alike = are_floats and 0 < item.relative <= OUTPUTS_TOLERANCE
                hints.append(f"{name}: {item.values()}{_OF_PRECISION if alike else ''}")
        if not differences:
            note = "no buffers in both nets; weights and statistics are not compared"
            return with_note(stage, "there are none" if sides.initialisation else note)
        return dataclasses.replace(stage, differences=differences, hints=hints)
