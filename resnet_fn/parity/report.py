"""The ladder as a table with a verdict, as JSON and as a plot."""

import json
import math
from pathlib import Path
from typing import Any

from resnet_fn.config.cli import write_text
from resnet_fn.config.hints import finite_or_null
from resnet_fn.layers.difference import DIFFERS, OK, ROUNDING, UNDECIDED, Difference
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.stages import GRADIENTS, SKIPPED, Stage
from resnet_fn.runtime.extras import import_extra

VERSION = 2  # of the JSON file; docs/parity.md describes it

_HEAD = f"{'stage':36} {'compared':>8} {'max abs':>9} {'relative':>9} {'cosine':>12} {'allowed':>8} {'rounding':>9}"
_HEAD += "  verdict"


def table(ladder: Ladder) -> str:
    """One line for each stage, with the numbers of its worst array; then the first differences and their causes.

    "relative" is ‖a − b‖ / ‖b‖, "allowed" its tolerance, "rounding" the reference's own float32 from its float64.
    """
    lines = [_HEAD, *(_row(stage) for stage in ladder.stages)]
    if any(stage.verdict == ROUNDING for stage in ladder.stages):
        own = f"4 x the reference's own {ladder.precision} from float64"
        lines.append(f"rounding: beyond the tolerance, but no further than {own}")
    if ladder.ties:
        undecided = f"float32 cannot say on which side of 0 {ladder.ties} inputs of a ReLU lie"
        lines.append(f"          {undecided}, over all updates; the figures allow for both")
    return "\n".join([*lines, *ladder.changed, "", *_findings(ladder)])


def _row(stage: Stage) -> str:
    worst = stage.worst
    if worst is None:
        return f"{stage.name:36} {0:8} {'':51}  {stage.verdict}: {stage.note or stage.failed or stage.doubt}"
    cosine = "" if math.isnan(worst.cosine) else f"{worst.cosine:.9f}"
    rounding = f"{worst.rounding:.1e}" if worst.rounding else ""
    name = f" ({worst.name})" if len(stage.differences) > 1 and stage.verdict != OK else ""
    name += f"; {stage.note}" if stage.note else ""
    numbers = f"{worst.max_abs:9.1e} {worst.relative:9.1e} {cosine:>12} {worst.tolerance:8.0e} {rounding:>9}"
    return f"{stage.name:36} {len(stage.differences):8} {numbers}  {stage.verdict}{name}"


def _findings(ladder: Ladder) -> list[str]:
    stage = ladder.first_stage
    if stage is None and ladder.undecided:
        lines = ["verdict: undecided; no stage differs beyond rounding, but these cannot be decided:"]
    elif stage is None:
        but = ", on these inputs; but they are set differently" if ladder.notes else ""
        lines = [f"verdict: both compute the same{but}"]
    else:
        lines = _stage_lines("first stage that differs", stage)
        computed = ladder.first_computed
        if computed is not None and computed is not stage:
            lines += _stage_lines("first stage that differs with copied weights", computed)
        layer = ladder.first_layer
        if layer is None:
            outputs = [item.output for item in ladder.layers]
            results = [f"undecided; {one.name}: {one.doubt}" for one in outputs if one.verdict == UNDECIDED]
            results += ["none; every layer's output agrees, in evaluation and training mode"] if outputs else []
            lines.append(f"first layer that differs: {[*results, 'not compared'][0]}")
        else:
            mode = "evaluation" if layer.mode == "eval" else "training"
            other = "" if layer.theirs == layer.name else f" (the reference's {layer.theirs})"
            lines.append(f"first layer that differs: {layer.name}{other} in {mode} mode: {layer.output.values()}")
            lines += [f"  {layer.name}: {hint}" for hint in layer.hints]
        gradient = ladder.first_gradient
        verdict = next((one.verdict for one in ladder.stages if one.name == GRADIENTS), SKIPPED)
        none = {SKIPPED: "not compared", UNDECIDED: "undecided"}.get(verdict, "none")
        where = f"{gradient.name}: {gradient.values()}" if gradient else none
        lines.append(f"first gradient that differs, going backward: {where}")
        lines += ["undecided:"] if ladder.undecided else []
    lines += [f"  {stage.name}: {stage.doubt}" for stage in ladder.undecided]
    if ladder.notes:
        lines.append("settings that differ:")
        groups: dict[str, list[str]] = {}
        for note in ladder.notes:
            layer_name, _, words = note.partition(": ")
            groups.setdefault(words, []).append(layer_name)
        for words, names in groups.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            lines.append(f"  {names[0]}{more}: {words}")
    return lines


def _stage_lines(title: str, stage: Stage) -> list[str]:
    first = stage.first
    where = f", {first.name}: {first.values()}" if first else ""
    lines = [f"{title}: {stage.name}{where}", *(f"  {hint}" for hint in stage.hints[:12])]
    return [*lines, f"  and {len(stage.hints) - 12} more (--json has all)"] if len(stage.hints) > 12 else lines


def name_map(ladder: Ladder) -> str:
    """How names were paired; lists all pairs unless names alone decided."""
    names = ladder.names
    head = f"names: {len(names.parameters)} parameters and statistics paired by "
    if names.how == "names":
        return f"{head}name"
    width = max((len(name) for name in names.parameters), default=0)
    rows = [f"  {ours:{width}}  {theirs}" for ours, theirs in names.parameters.items()]
    return "\n".join([f"{head}{names.how}; ours, the reference's:", *rows])


def write_json(ladder: Ladder, path: str) -> None:
    """Write everything to a file; a number that is not finite becomes null."""
    first_stage, layer = ladder.first_stage, ladder.first_layer
    content = {
        "format": "resnet_fn parity ladder",
        "version": VERSION,
        "agrees": ladder.agrees,
        "undecided": [stage.name for stage in ladder.undecided],
        "first_stage": first_stage.name if first_stage else None,
        "first_layer": layer.name if layer else None,
        "first_gradient": ladder.first_gradient.name if ladder.first_gradient else None,
        "stages": [
            {
                "name": stage.name,
                "verdict": stage.verdict,
                "note": stage.note or stage.failed or stage.doubt,
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
                "hints": list(item.hints),
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
    }
    write_text(Path(path), json.dumps(finite_or_null(content), indent=1, allow_nan=False) + "\n")


def _difference(item: Difference) -> dict[str, Any]:
    keys = ("name", "verdict", "max_abs", "relative", "cosine", "tolerance", "rounding", "ours", "theirs")
    return {**{key: getattr(item, key) for key in keys}, "place": list(item.place)}


def write_plot(ladder: Ladder, path: str, title: str) -> None:
    """Draw every layer's relative error in both modes, beside float32's own (.png, .svg, .pdf; needs matplotlib)."""
    import_extra("matplotlib", "--figure").use("Agg")
    plots = import_extra("matplotlib.pyplot", "--figure")
    figure, axes = plots.subplots(2, 1, figsize=(10, 6), sharex=True, layout="constrained")
    for ax, mode, words in zip(axes, ("eval", "train"), ("evaluation", "training"), strict=True):
        layers = [item for item in ladder.layers if item.mode == mode]
        errors = [max(item.output.relative, 1e-10) for item in layers]
        ax.semilogy(errors, marker=".", label="MindSpore against the reference")
        own = [max(item.output.rounding, 1e-10) for item in layers]
        ax.semilogy(own, "--", label="the reference, float32 to float64")
        wrong = [index for index, item in enumerate(layers) if item.output.verdict == DIFFERS]
        ax.semilogy(wrong, [errors[index] for index in wrong], "rx", label="differs")
        ax.set_ylabel(f"relative error, {words} mode")
        ax.grid(alpha=0.3)
        if layers:
            every = range(0, len(layers), -(-len(layers) // 40))
            ax.set_xticks(every, [layers[index].name for index in every], rotation=90, fontsize=7)
    axes[0].legend()
    axes[0].set_title(title)
    figure.savefig(path, dpi=120)
    plots.close(figure)
