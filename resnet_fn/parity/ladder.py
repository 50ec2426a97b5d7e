"""Compare a net in MindSpore with a net in PyTorch, stage by stage through one training step."""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from resnet_fn.config.hints import few, first_line
from resnet_fn.parity.compare import comparison, stage
from resnet_fn.parity.compare.comparison import inputs_stage
from resnet_fn.parity.compare.coverage import Coverage, coverage_of
from resnet_fn.parity.compare.initial import initial_stage
from resnet_fn.parity.compare.layers import LayerDifference, compare_layers, tie_width
from resnet_fn.parity.compare.notes import attempt, settings_notes, sharing_notes, training_notes
from resnet_fn.parity.compare.probes import Probed, compare_probes
from resnet_fn.parity.compare.randomness import with_doubts
from resnet_fn.parity.compare.ranks import with_ranks
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.explain.causes import StageCase, explain
from resnet_fn.parity.explain.rank_causes import worker_causes
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.data import RATE, Rounding, Trace
from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED, Difference, difference
from resnet_fn.parity.trace.environment import environment_notes
from resnet_fn.parity.trace.stages import INITIALISATION
from resnet_fn.parity.trace.tree import Arrays

# units in the last place by which a table computed in float32 may differ from one in float64
_UNITS = 4

Builds = tuple[Arrays, Arrays]  # the initial values of one build of each side, by our names


@dataclasses.dataclass
class Ladder:
    """The result of a comparison."""

    stages: list[Stage]  # in the order of a training step
    # the compared layers in execution order, first in evaluation mode, then in training mode, then
    # with masks
    layers: list[LayerDifference]
    names: NameMap  # the reference's parameter and layer for each of ours
    notes: list[str]  # settings that differ, whether or not the numbers show it
    # the number of ReLU inputs within rounding of 0; 0 unless gradients differ and all layers agree
    ties: int = 0
    # changes that made the nets comparable, one line each
    changed: list[str] = field(default_factory=list)
    # versions and variables that differ, one line each
    environment: list[str] = field(default_factory=list)
    precision: str = "float32"  # the precision in which the reference's rounding was measured
    compiled: bool = True  # whether MindSpore's side was compiled
    # whether the reference's rounding was measured; without it, tolerances decide
    measured: bool = True
    # mode → number of our layers that ran, compared or not
    ran: dict[str, int] = field(default_factory=dict)
    # outputs, losses and gradients within their tolerance that differ by more than rounding
    # explains, worst first
    beyond: list[Difference] = field(default_factory=list)
    probed: Probed = field(default_factory=Probed)  # the comparison on changed inputs
    coverage: Coverage = field(default_factory=Coverage)  # what the comparison covers

    @property
    def agrees(self) -> bool:
        """Whether no stage differs and no stage is undecided."""
        return not any(stage.verdict in (DIFFERS, UNDECIDED) for stage in self.stages)

    @property
    def first_stage(self) -> Stage | None:
        """The first stage that differs."""
        return next((stage for stage in self.stages if stage.verdict == DIFFERS), None)

    @property
    def undecided(self) -> list[Stage]:
        """The stages that are undecided."""
        return [stage for stage in self.stages if stage.verdict == UNDECIDED]

    @property
    def first_computed(self) -> Stage | None:
        """The first stage that differs, apart from the stages of initial values."""
        copied = (INITIALISATION, stages.UNTRAINED)
        return next(
            (
                stage
                for stage in self.stages
                if stage.verdict == DIFFERS and stage.name not in copied
            ),
            None,
        )

    @property
    def first_gradient(self) -> Difference | None:
        """The first gradient that differs."""
        names = (
            stages.GRADIENTS,
            stages.GRADIENTS + stages.LATER_BATCHES,
            stages.GRADIENTS + stages.WITH_DROPOUT,
        )
        return next(
            (stage.first for stage in self.stages if stage.name in names and stage.first), None
        )

    @property
    def first_layer(self) -> LayerDifference | None:
        """The first layer in `layers` whose output differs."""
        return next((layer for layer in self.layers if layer.output.verdict == DIFFERS), None)


def compare_recordings(
    ours: Trace,
    theirs: Trace,
    names: NameMap,
    initialisation: bool = True,
    search: bool = True,
) -> Ladder:
    """Compare two recordings of the same task.

    Args:
        ours, theirs: the recordings of MindSpore's side and of the reference.
        names: the pairing of our parameters and layers with the reference's.
        initialisation: whether to compare the initial parameters.
        search: whether to search for the causes of a difference.
    """
    if theirs.workers and not ours.workers:
        raise ValueError(
            "reference: several workers recorded this trace; give a trace of one worker as the "
            "reference"
        )
    builds = list(zip(ours.builds, map(names.rename, theirs.builds), strict=False))
    drawn, not_asked = _drawn(builds), Stage(INITIALISATION, note="not asked for")
    first_stages = [
        inputs_stage(ours.task.batches, theirs.task.batches),
        _initialisation(ours, theirs, names, builds, drawn) if initialisation else not_asked,
        _untrained(ours, theirs, names, initialisation, drawn),
    ]
    layers = compare_layers(ours.layers, theirs.layers, names.layers)
    # Parameters in the order of the forward pass, then unused parameters.
    used = [
        name for layer in ours.layers["eval"] for name in layer.owned() if name in names.parameters
    ]
    order = list(dict.fromkeys([*used, *names.parameters]))

    compared = comparison.Comparison(ours, theirs, names, {})
    idle = compared.without_gradient
    decayed = [
        name
        for name in order
        if name in idle
        and ours.run.after
        and (ours.run.after[0][name] != ours.run.start[name]).any()
    ]

    def all_stages(rounding: Rounding) -> list[Stage]:
        def stages_of(worker: Trace) -> list[Stage]:
            return comparison.Comparison(worker, theirs, names, rounding).all_stages(order)

        computed = with_ranks(stages_of(ours), ours, stages_of)
        with_layers = [
            stage for one in computed for stage in (one, *_layers_stage(one.name, layers))
        ]
        return with_doubts([*first_stages, *with_layers], ours, theirs, names.layers)

    notes = settings_notes(ours.layers["eval"], theirs.layers["eval"], names.layers)
    notes += [
        *sharing_notes(names, ours.tied),
        *training_notes(names, ours.trainable, theirs.trainable),
    ]
    changed = list(dict.fromkeys([*theirs.notes, *ours.notes]))
    if (RATE in ours.optimizer_settings) != (RATE in theirs.optimizer_settings):
        changed.append(
            "both optimizers get the recipe's learning rates; rates that only one has are not "
            "compared"
        )
    if left := [
        name
        for name in ours.trainable
        if name not in {*names.parameters, *itertools.chain(*ours.tied)}
    ]:
        changed.append(f"left out, since --map gives no counterpart: {few(left)}")
    changed += [line for _, line in compared.without_counterpart()]
    terms = "which trains each term separately, so that norms and updates differ"
    changed += [
        f"{name}: {one} in the reference, {terms}"
        for name, one in names.parameters.items()
        if one.added
    ]
    if decayed:
        changed.append(
            f"this step applies weight decay without a gradient, but torch does not: {few(decayed)}"
        )
    precision = "float16" if theirs.task.precision == "fp16" else "float32"
    ladder = Ladder(
        all_stages(theirs.rounding), layers, names, notes, changed=changed, precision=precision
    )
    ladder.measured = bool(theirs.rounding)
    ladder.environment = environment_notes(ours.environment, theirs.environment)
    ladder.compiled = "pynative" not in (
        ours.environment.get("mode"),
        theirs.environment.get("mode"),
    )
    ladder.ran = {mode: len(one) for mode, one in ours.layers.items()}
    same_layers = ladder.first_layer is None and ladder.first_gradient is not None
    if same_layers and theirs.flipped and precision == "float32":
        # The cause may be ReLU inputs whose sign float32 cannot decide. The rounding of float16
        # includes these inputs.
        width = next(
            (one for one in theirs.flipped if one >= tie_width(layers)), max(theirs.flipped)
        )
        flipped, ladder.ties = theirs.flipped[width]()
        theirs = dataclasses.replace(
            theirs, rounding=comparison.worst_rounding(theirs.rounding, flipped)
        )
        ladder.stages = all_stages(theirs.rounding)
    measured = [
        one for stage in ladder.stages if stage.name in stages.MEASURED for one in stage.differences
    ]
    if theirs.rounding and precision == "float32":
        ladder.beyond = sorted((one for one in measured if one.beyond), key=lambda one: -one.beyond)
    evaluation = next(stage for stage in ladder.stages if stage.name == stages.EVAL_FORWARD)
    try:
        ladder.probed = compare_probes(ours, theirs, names.layers, evaluation.verdict != DIFFERS)
        ladder.coverage = coverage_of(ours, theirs, names, layers, ladder.probed, idle)
    except Exception as error:  # the verdict does not need probes
        ladder.changed.append(
            f"probes and coverage failed ({type(error).__name__}: {first_line(error)})"
        )
    if (stage := ladder.first_computed) is not None:  # later stages differ because this stage does
        case = StageCase(stage, layers, ours, theirs, names)
        stage.hints += attempt(worker_causes, case) or explain(case, search)
    return ladder


def _layers_stage(after: str, layers: Sequence[LayerDifference]) -> list[Stage]:
    """Return [the stage that compares layers' outputs after the stage `after`], or [] if there is
    none.
    """
    mode, name = stages.LAYERS_OF.get(after, ("", ""))
    outputs = [one.output for one in layers if one.mode == mode]
    return [stage.sure(Stage(name, outputs))] if outputs else []


def _initialisation(
    ours: Trace, theirs: Trace, names: NameMap, builds: Sequence[Builds], drawn: set[str]
) -> Stage:
    initial = names.rename(theirs.initial)
    compared = [name for name in initial if name in ours.run.gradients or name in drawn]
    sides = zip(*builds, strict=True) if len(builds) > 1 else ([ours.initial], [initial])
    mine, others = ([{name: one[name] for name in compared} for one in side] for side in sides)
    return initial_stage(mine, others, names.seams(theirs.initial))


def _drawn(builds: Sequence[Builds]) -> set[str]:
    """Return the names of random arrays, which differ between two builds of one net."""
    sides = zip(*builds[:2], strict=True) if len(builds) > 1 else ()
    return {name for a, b in sides for name in a if not np.array_equal(a[name], b[name])}


def _untrained(
    ours: Trace, theirs: Trace, names: NameMap, statistics: bool, drawn: set[str]
) -> Stage:
    """Compare the initial values of arrays that are not trained.

    If `statistics` is False, statistics and frozen weights are left out, because loaded weights
    replace these arrays.
    """
    trained, given = {*ours.trainable, *theirs.trainable}, names.rename(theirs.initial)
    stage = Stage(stages.UNTRAINED)
    for name in [name for name in names.parameters if name in ours.initial and name in given]:
        sources = names.sources(name)
        if (
            name in drawn
            or trained & {name, *sources}
            or not (statistics or set(sources) <= set(theirs.constants))
        ):
            continue
        a, b = ours.initial[name], given[name]
        b = b.astype(a.dtype) if a.dtype.kind == b.dtype.kind == "f" else b
        item = difference(name, a, b)
        if (
            item.verdict == DIFFERS
            and a.dtype.kind == "f"
            and (np.abs(a - b) <= _UNITS * np.spacing(np.abs(b))).all()
        ):
            # a table that one side computed in float64
            item = dataclasses.replace(item, tolerance=item.relative)
            stage.note += (
                f"{'; ' * bool(stage.note)}{name}: at most {_UNITS} units in the last place apart"
            )
        stage.differences.append(item)
        stage.hints += [f"{name}: {item.values()}"] * (item.verdict == DIFFERS)
    if not stage.differences:
        stage.note = (
            "there are none"
            if statistics
            else "no buffers; weights and statistics are not compared"
        )
    return stage
