"""Format the ladder (the comparison with PyTorch) as a table with a verdict."""

import math
from collections import Counter

from resnet_fn.parity.compare.stage import SKIPPED, Stage
from resnet_fn.parity.compare.verdict import Verdict
from resnet_fn.parity.show.titles import doubt_of, title_of, title_of_stage
from resnet_fn.parity.trace.difference import OK, ROUNDING, UNDECIDED, WIDE
from resnet_fn.parity.trace.stages import GRADIENTS

_MODES = {
    "eval": "evaluation mode",
    "train": "training mode",
    "dropout": "training mode with dropout",
}

COLUMNS = ("stage", "compared", "max abs", "relative", "cosine", "allowed", "rounding", "verdict")

_FORM = "{:36} {:>8} {:>9} {:>9} {:>12} {:>8} {:>9}  {}"  # of COLUMNS in the text


def table(ladder: Verdict) -> str:
    """Return the ladder as text: a table with one line for each stage, then the first differences
    and their causes.

    The column "relative" is ‖port − reference‖ / ‖reference‖ of the stage's worst array. The column
    "allowed" is the array's tolerance, which may be exceeded up to 4 times the rounding. The column
    "rounding" is what counts as the reference's rounding: its error against float64 or, if larger,
    its change by noise or by flipped ties, the stage's median, or a unit in the last place.
    """
    lines = [_FORM.format(*row) for row in (COLUMNS, *map(cells, ladder.stages))]
    if any(stage.verdict == ROUNDING for stage in ladder.stages):
        own = f"4 x the reference's own rounding in {ladder.precision}"
        lines.append(f"rounding: beyond the tolerance, but no further than {own}")
    if ladder.ties:
        undecided = f"float32 cannot say on which side of 0 {ladder.ties} inputs of a ReLU lie"
        lines.append(
            f"          {undecided}, over all batches and updates; rounding includes both cases"
        )
    for line in ladder.tied:
        lines.append(f"rounding decides at {line}; only what they change is excused")
    uncompiled = (
        []
        if ladder.compiled
        else ["not compiled (--mode pynative): the compiled net may have other errors"]
    )
    lines += [*ladder.changed, *uncompiled, "", *findings(ladder)]
    if ladder.notes:
        lines += ["settings that differ:", *(f"  {line}" for line in settings(ladder))]
    return "\n".join(lines)


def cells(stage: Stage) -> list[str]:
    """Return the cells of a stage's row in the table, in the order of `COLUMNS`."""
    worst, numbers, verdict = stage.worst, [""] * 5, stage.verdict
    if worst is None:
        verdict += f": {stage.note or stage.failed or doubt_of(stage)}"
    else:
        cosine = "" if math.isnan(worst.cosine) else f"{worst.cosine:.9f}"
        rounding = f"{worst.rounding:.1e}" if worst.rounding else ""
        numbers = [
            f"{worst.max_abs:.1e}",
            f"{worst.relative:.1e}",
            cosine,
            f"{worst.tolerance:.0e}",
            rounding,
        ]
        if worst.why and (stage.verdict == ROUNDING or worst.is_lent):
            verdict += f" by {worst.why}"
        verdict += f" ({title_of(worst.id)})" * (len(stage.differences) > 1 and worst.verdict != OK)
        verdict += "".join(
            f"; {words}" for words in (stage.note, "" if stage.hints else stage.failed) if words
        )
    return [title_of_stage(stage), str(len(stage.differences)), *numbers, verdict]


def findings(ladder: Verdict) -> list[str]:
    """Return lines with the verdict and the first differences. Indented lines give the causes."""
    stage = ladder.first_stage
    if stage is None and ladder.undecided:
        lines = [
            "verdict: undecided; no stage differs beyond rounding, but these cannot be decided:"
        ]
    elif stage is None:
        but = ", on these inputs; but some settings differ" if ladder.notes else ""
        within = ""
        if ladder.beyond:
            worst = ladder.beyond[0]
            count = f"{len(ladder.beyond)} array{'s' * (len(ladder.beyond) > 1)}"
            within = (
                f" within tolerance; {count} beyond rounding: {title_of(worst.id)} "
                f"{worst.beyond:.2g} "
                "× its limit"
            )
        if not ladder.measured:
            within = " by tolerances alone (no side's rounding was measured)"
        undecided, every = ladder.counts
        if undecided:
            within += f"; {undecided} of {every} arrays undecided"
        how = f"{'' if ladder.compiled else ', not compiled'}{within}{_lent(ladder)}{but}"
        compared = f", {ladder.coverage.compared}" if ladder.coverage.compared else ""
        lines = [f"verdict: both compute the same{how}{compared}"]
        lines += [line] if (line := ladder.coverage.line) else []
    else:
        lines = _stage_lines("first stage that differs", stage)
        computed = ladder.first_computed
        if computed is not None and computed is not stage:
            lines += _stage_lines("first stage that differs with copied weights", computed)
        layer = ladder.first_layer
        if layer is None:
            outputs = [item.output for item in ladder.layers]
            results = [
                f"undecided; {title_of(one.id)}: {one.doubt}"
                for one in outputs
                if one.verdict == UNDECIDED
            ]
            results += [f"none; {_agreement(ladder)}"] if outputs else []
            lines.append(f"first layer that differs: {[*results, 'not compared'][0]}")
        else:
            other = "" if layer.reference == layer.name else f" (the reference's {layer.reference})"
            where = f"{layer.name}{other} in {_MODES[layer.mode]}"
            lines.append(f"first layer that differs: {where}: {layer.output.values()}")
            lines += [f"  {layer.name}: {hint}" for hint in layer.hints]
        gradient = ladder.first_gradient
        verdict = next((one.verdict for one in ladder.stages if one.id == GRADIENTS), SKIPPED)
        none = {SKIPPED: "not compared", UNDECIDED: "undecided"}.get(verdict, "none")
        where = f"{title_of(gradient.id)}: {gradient.values()}" if gradient else none
        lines.append(f"first gradient that differs, going backward: {where}")
        lines += ["undecided:"] if ladder.undecided else []
    lines += [f"  {title_of_stage(stage)}: {doubt_of(stage)}" for stage in ladder.undecided]
    return lines + ladder.probed.lines()


def _lent(ladder: Verdict) -> str:
    """Return how many arrays pass by a bound above `WIDE` only, or an empty string."""
    if not ladder.lent:
        return ""
    _, total = ladder.counts
    reasons = Counter(item.why for item in ladder.lent)
    counts = [f"{count} {why}" for why, count in reasons.most_common()]
    words = ", ".join(counts)
    many = f"{len(ladder.lent)} of {total} arrays"
    return f"; {many} pass by a bound above {WIDE:g} ({words})"


def _agreement(ladder: Verdict) -> str:
    compared = Counter(layer.mode for layer in ladder.layers)
    counts = [
        f"{compared[mode]} of {count} in {_MODES[mode]}" for mode, count in ladder.ran.items()
    ]
    return f"the outputs of layers agree, {', '.join(counts)}"


def settings(ladder: Verdict) -> list[str]:
    """Return a line for each setting that differs. Layers with the same difference share a line."""
    groups: dict[str, list[str]] = {}
    for note in ladder.notes:
        layer_name, _, words = note.partition(": ")
        groups.setdefault(words, []).append(layer_name)
    more = {
        words: f" and {len(names) - 1} more" * (len(names) > 1) for words, names in groups.items()
    }
    return [f"{names[0]}{more[words]}: {words}" for words, names in groups.items()]


def _stage_lines(title: str, stage: Stage) -> list[str]:
    first = stage.first
    where = f", {title_of(first.id)}: {first.values()}" if first else ""
    why = [] if stage.failed in "; ".join(stage.hints) else [f"  {stage.failed}"]
    lines = [
        f"{title}: {title_of_stage(stage)}{where}",
        *why,
        *(f"  {hint}" for hint in stage.hints[:12]),
    ]
    return (
        [*lines, f"  and {len(stage.hints) - 12} more (--json has all)"]
        if len(stage.hints) > 12
        else lines
    )


def name_map(ladder: Verdict) -> str:
    """Return a text about the pairs of parameters.

    The pairs are listed, unless all were paired by name.
    """
    names = ladder.names
    head = f"names: {len(names.parameters)} parameters and statistics paired by "
    if names.how == "names":
        return f"{head}name"
    width = max((len(name) for name in names.parameters), default=0)
    rows = [f"  {port:{width}}  {reference}" for port, reference in names.parameters.items()]
    return "\n".join([f"{head}{names.how}; the port's, the reference's:", *rows])
