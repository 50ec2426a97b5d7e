"""Format the ladder (the comparison with PyTorch) as a table with a verdict."""

import math
from collections import Counter

from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.stage import SKIPPED, Stage
from resnet_fn.parity.show.titles import doubt_of, title_of, title_of_stage
from resnet_fn.parity.trace.difference import OK, ROUNDING, UNDECIDED, WIDE
from resnet_fn.parity.trace.reasons import KERNELS
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
    passing = [item for stage in ladder.stages for item in stage.differences]
    reasons = {item.why for item in passing if item.verdict == ROUNDING}
    if KERNELS in reasons:
        lines.append(f"rounding: of {KERNELS} up to twice what exact ones in their place change")
    if reasons - {KERNELS}:
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
    lines += [*ladder.changes, *uncompiled, "", *findings(ladder)]
    if ladder.settings:
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
        largest = "" if worst.estimated else f"{worst.max_abs:.1e}"
        numbers = [
            largest,
            f"{worst.relative:.1e}",
            cosine * (not worst.estimated),
            f"{worst.tolerance:.0e}",
            rounding,
        ]
        if worst.why and (stage.verdict == ROUNDING or worst.is_lent):
            verdict += f" by {worst.why}"
        verdict += f" ({title_of(worst.id)})" * (len(stage.differences) > 1 and worst.verdict != OK)
        verdict += "".join(
            f"; {note}" for note in (stage.note, "" if stage.hints else stage.failed) if note
        )
    return [title_of_stage(stage), str(len(stage.differences)), *numbers, verdict]


def findings(ladder: Verdict) -> list[str]:
    """Return lines with the verdict and the first differences. Indented lines give the causes."""
    if stage := ladder.first_stage:
        lines = _differs(ladder, stage)
    elif ladder.undecided:
        lines = _undecided()
    else:
        lines = _same(ladder)
    lines += [f"  {title_of_stage(stage)}: {doubt_of(stage)}" for stage in ladder.undecided]
    if ladder.seen:
        lines.append(f"not decided by a small trace: {'; '.join(ladder.seen.undecided)}")
    return lines + ladder.probed.lines()


def _same(ladder: Verdict) -> list[str]:
    """Return the verdict that both sides compute the same, and what it does not cover."""
    within = ""
    if ladder.beyond:
        worst = ladder.beyond[0]
        count = f"{len(ladder.beyond)} array{'s' * (len(ladder.beyond) > 1)}"
        within = (
            f" within tolerance; {count} beyond rounding: {title_of(worst.id)} "
            f"{worst.beyond:.2g} × its limit"
        )
    if not ladder.measured:
        within = " without measured rounding of the reference"
    undecided, every = ladder.counts
    if undecided:
        within += f"; {undecided} of {every} arrays undecided"
    line = "verdict: both compute the same"
    if seen := ladder.seen:
        line = f"verdict: agree in {seen.numbers} sampled numbers and norms of {seen.arrays} arrays"
    if not ladder.compiled:
        line += ", not compiled"
    line += within + _lent(ladder)
    if ladder.settings:
        line += ", on these inputs; but some settings differ"
    if ladder.coverage.compared:
        line += f", {ladder.coverage.compared}"
    lines = [line]
    if ladder.coverage.line:
        lines.append(ladder.coverage.line)
    return lines


def _undecided() -> list[str]:
    return ["verdict: undecided; no stage differs beyond rounding, but these cannot be decided:"]


def _differs(ladder: Verdict, stage: Stage) -> list[str]:
    """Return the first stage, the first layer and the first gradient that differ."""
    lines = _stage_lines("first stage that differs", stage)
    computed = ladder.first_computed
    if computed is not None and computed is not stage:
        lines += _stage_lines("first stage that differs with copied weights", computed)
    lines += _layer_lines(ladder)
    lines.append(f"first gradient that differs, going backward: {_gradient_words(ladder)}")
    if ladder.undecided:
        lines.append("undecided:")
    return lines


def _gradient_words(ladder: Verdict) -> str:
    gradient = ladder.first_gradient
    if gradient:
        return f"{title_of(gradient.id)}: {gradient.values()}"
    verdict = next((stage.verdict for stage in ladder.stages if stage.id == GRADIENTS), SKIPPED)
    if verdict == SKIPPED:
        return "not compared"
    if verdict == UNDECIDED:
        return "undecided"
    return "none"


def _layer_lines(ladder: Verdict) -> list[str]:
    """Return the first layer that differs with its hints, or why there is none."""
    title = "first layer that differs"
    layer = ladder.first_layer
    if layer:
        where = layer.name
        if layer.reference != layer.name:
            where += f" (the reference's {layer.reference})"
        where += f" in {_MODES[layer.mode]}"
        hints = [f"  {layer.name}: {hint}" for hint in layer.hints]
        return [f"{title}: {where}: {layer.output.values()}", *hints]
    for item in ladder.layers:
        if item.output.verdict == UNDECIDED:
            return [f"{title}: undecided; {title_of(item.output.id)}: {item.output.doubt}"]
    if not ladder.layers:
        return [f"{title}: not compared"]
    return [f"{title}: none; {_agreement(ladder)}"]


def _lent(ladder: Verdict) -> str:
    """Return how many arrays pass by a bound above `WIDE` only, or an empty string."""
    if not ladder.lent:
        return ""
    _, total = ladder.counts
    reasons = Counter(item.why for item in ladder.lent)
    counts = [f"{count} {why}" for why, count in reasons.most_common()]
    by_reason = ", ".join(counts)
    many = f"{len(ladder.lent)} of {total} arrays"
    return f"; {many} pass by a bound above {WIDE:g} ({by_reason})"


def _agreement(ladder: Verdict) -> str:
    compared = Counter(layer.mode for layer in ladder.layers)
    counts = [
        f"{compared[mode]} of {count} in {_MODES[mode]}" for mode, count in ladder.ran.items()
    ]
    where = " in sampled numbers and norms" if ladder.seen else ""
    return f"the outputs of layers agree{where}, {', '.join(counts)}"


def settings(ladder: Verdict) -> list[str]:
    """Return a line for each setting that differs. Layers with the same difference share a line."""
    groups: dict[str, list[str]] = {}
    for line in ladder.settings:
        layer_name, _, difference = line.partition(": ")
        groups.setdefault(difference, []).append(layer_name)
    more = {
        difference: f" and {len(names) - 1} more" * (len(names) > 1)
        for difference, names in groups.items()
    }
    return [f"{names[0]}{more[difference]}: {difference}" for difference, names in groups.items()]


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
