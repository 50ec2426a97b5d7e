"""What a small trace keeps of a trace: a sketch of each recorded array."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.trace.data import Rounding, Run, Trace
from resnet_fn.parity.trace.derived import changes
from resnet_fn.parity.trace.flow import StandIns, few_digits
from resnet_fn.parity.trace.layer import Layer, fingerprint
from resnet_fn.parity.trace.sketch import FEW, Sketch, sketch
from resnet_fn.parity.trace.source import Source
from resnet_fn.parity.trace.stages import FIRST, StageId
from resnet_fn.parity.trace.tree import Arrays

_TABLE = 4096  # the most bytes of an array that is neither drawn nor left out

Sketches = dict[str, dict[str, Sketch]]  # by group of arrays, then by name

MODES = ("eval", "train")


@dataclasses.dataclass
class SmallTrace(Trace):
    """A trace with sketches in place of most arrays.

    Its layers have stand-ins for arrays (`flow`). Of `run`, only arrays of zeros are known.
    """

    seed: int = 0  # of the drawn arrays, and of the places in the sketches
    sketches: Sketches = dataclasses.field(default_factory=dict)
    updates: int = 0  # how many updates the last change has
    left_out: list[str] = dataclasses.field(default_factory=list)  # names of large tables


def after_first_and_last(run: Run) -> list[Arrays]:
    """Return the arrays after each recorded update, those of the first one for all but the last."""
    return [*run.after[:1] * (len(run.after) - 1), *run.after[-1:]]


OF_RUN: dict[str, Callable[[Run], Mapping[Any, np.ndarray]]] = {
    "evaluation": lambda run: run.eval_outputs,
    "training": lambda run: run.train_outputs[0] if run.train_outputs else {},
    "gradients": lambda run: run.gradients,
    "clipped": lambda run: run.clipped,
    "change": lambda run: changes(run, run.after[0]) if run.after else {},
    "last change": lambda run: changes(run, run.after[-1]) if len(run.after) > 1 else {},
    "average": lambda run: changes(run, run.average),
    "last evaluation": lambda run: run.last_outputs,
}
"""The groups of arrays of a run that have sketches."""

WHOLE = {"evaluation": 256, "training": 256, "last evaluation": 256}
"""The groups that have whole arrays of up to so many numbers: what a net returns."""


def of_layers(which: str, mode: str) -> str:
    """Return the group of the inputs or outputs (`which`) of layers in a mode."""
    return f"{which} of layers, {mode}"


def title_in(group: str, name: str) -> str:
    """Return the name under which the places of a sketch are chosen."""
    return f"{group}: {name}"


def small_trace(
    trace: Trace, source: Source, seed: int, drawn: Mapping[str, Any]
) -> tuple[SmallTrace, list[StandIns]]:
    """Return what is kept of a trace, and the stand-ins in its layers.

    `source` gives the rounding with flipped ties. `drawn` has the names of the arrays that are
    drawn again.
    """
    if trace.ties is not None:
        raise ValueError(
            f"small: rounding decides at {first_few(trace.ties.lines)}, and a small trace cannot "
            "hold both decisions; leave out --small"
        )
    run = trace.run
    left_out = [
        name
        for name, array in run.start.items()
        if name not in drawn and array.nbytes > _TABLE and not is_tied_to(trace, name, drawn)
    ]
    start = {name: array for name, array in run.start.items() if name not in left_out}
    stand_ins = {mode: StandIns() for mode in MODES}
    small = SmallTrace(
        framework=trace.framework,
        plan=trace.plan,
        initial={name: array for name, array in start.items() if name in trace.constants},
        layers={mode: stand_ins[mode].layers(trace.layers[mode]) for mode in MODES},
        run=_without_arrays(run, start),
        rounding=_few_digits(trace.rounding),
        flipped=_widest(source),
        unread=trace.unread,
        tied=trace.tied,
        trainable=trace.trainable,
        constants=trace.constants,
        buffers=trace.buffers,
        notes=trace.notes,
        environment=trace.environment,
        random_eval=trace.random_eval,
        random_train=trace.random_train,
        drops=trace.drops,
        limits=trace.limits,
        file=trace.file,
        optimizer_settings=trace.optimizer_settings,
        seed=seed,
        sketches=_sketches(trace, seed),
        updates=len(run.after),
        left_out=left_out,
    )
    return small, [*stand_ins.values()]


def is_tied_to(trace: Trace, name: str, names: Mapping[str, Any]) -> bool:
    """Return whether `name` is another name of an array in `names`."""
    return any(name in group and names.keys() & {*group} for group in trace.tied)


def _without_arrays(run: Run, start: Arrays) -> Run:
    return Run(
        {},
        start,
        run.rates,
        losses=run.losses,
        norms=run.norms,
        no_gradient=run.no_gradient,
        moved=run.moved,
    )


def _is_kept(stage: StageId) -> bool:
    """Return whether a stage is of the updates themselves."""
    return stage.batch == FIRST and not (stage.masked or stage.drawn)


def _few_digits(rounding: Rounding, digits: int = 2) -> Rounding:
    """Return the rounding of the updates themselves. A stage without numbers shows that rounding
    decides about later updates (`Sides.is_chaotic`).
    """
    kept: Rounding = {}
    for stage, errors in rounding.items():
        if stage.update:
            kept[stage] = {}
        elif errors and _is_kept(stage):
            kept[stage] = {key: few_digits(error, digits) for key, error in errors.items()}
    return kept


def _widest(source: Source) -> dict[float, tuple[Rounding, int]]:
    """Return the rounding with flipped ties of the widest kind."""
    width = max(source.tie_widths, default=0.0)
    flipped = source.flipped_ties(width)
    return {width: (_few_digits(flipped[0], 1), flipped[1])} if flipped else {}


def _sketches(trace: Trace, seed: int) -> Sketches:
    sketches: Sketches = {}
    for group, of in OF_RUN.items():
        # without a limit of their norm, gradients are not changed
        arrays = {} if group == "clipped" and not trace.plan.clip_norm else of(trace.run)
        sketches[group] = {
            name: sketch(array, seed, title_in(group, name), WHOLE.get(group, FEW))
            for name, array in arrays.items()
        }
    for mode in MODES:
        sketches |= _of_layers(trace.layers[mode], mode, seed)
    return sketches


def _of_layers(layers: Sequence[Layer], mode: str, seed: int) -> Sketches:
    """Return the sketches of outputs, and of inputs that are no layer's output."""
    inputs, outputs = of_layers("inputs", mode), of_layers("outputs", mode)
    result: Sketches = {inputs: {}, outputs: {}}
    known: set[str] = set()
    for layer in layers:
        if layer.input is not None and fingerprint(layer.input) not in known:
            result[inputs][layer.title] = sketch(layer.input, seed, title_in(inputs, layer.title))
        if layer.output is not None:
            known.add(fingerprint(layer.output))
            result[outputs][layer.title] = sketch(
                layer.output, seed, title_in(outputs, layer.title)
            )
    return result
