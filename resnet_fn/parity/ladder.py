"""The parity ladder: one net in MindSpore and in PyTorch, compared stage by stage through one training step.

Weights → forward → loss → gradients → clipping → update → further updates: a fault shows first in the stage where it
happens, and in every stage after it. So the first stage that differs names the fault's kind, the first layer that
differs names its place.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from resnet_fn.parity import diagnose, stages
from resnet_fn.parity.compare import DIFFERS, Difference, Stage
from resnet_fn.parity.initialisation import initialisation_stage
from resnet_fn.parity.inputs import inputs_stage
from resnet_fn.parity.layers import LayerDifference, compare_layers
from resnet_fn.parity.matching.name_map import NameMap
from resnet_fn.parity.matching.roles import padding_notes, sharing_notes, training_notes
from resnet_fn.parity.optimizer_causes import adam_hints
from resnet_fn.parity.settings import settings_notes
from resnet_fn.parity.ties import tie_width
from resnet_fn.parity.traces.batches import Arrays, split
from resnet_fn.parity.traces.layer import Layer
from resnet_fn.parity.traces.trace import Recording, Trace

# Where a fault in the writing of Adam shows first.
_OF_ADAM = (stages.state_stage("momentum"), stages.state_stage("variance"), stages.CHANGE, stages.FIRST)


@dataclasses.dataclass
class Ladder:
    """What the ladder found.

    Attributes:
        stages: in the order of a training step.
        layers: every layer that both nets have, in execution order, in evaluation mode and then in training mode.
        names: which parameter and layer is which.
        notes: settings that differ, whether or not the numbers show it.
        ties: ReLU inputs over all updates that are within rounding of 0 (`relu_ties`), counted only where the
            gradients differ and no layer does; else 0.
        changed: what was changed in the nets to make them comparable, a line each.
        precision: in which the reference's own rounding was measured.
    """

    stages: list[Stage]
    layers: list[LayerDifference]
    names: NameMap
    notes: list[str]
    ties: int = 0
    changed: list[str] = dataclasses.field(default_factory=list)
    precision: str = "float32"

    @property
    def agrees(self) -> bool:
        """Whether no stage differs beyond rounding."""
        return self.first_stage is None

    @property
    def first_stage(self) -> Stage | None:
        """The first stage that differs."""
        return next((stage for stage in self.stages if stage.verdict == DIFFERS), None)

    @property
    def first_computed(self) -> Stage | None:
        """The first stage that differs although the weights were copied: the first, unless that's initialisation."""
        return next(
            (stage for stage in self.stages if stage.verdict == DIFFERS and stage.name != stages.INITIALISATION), None
        )

    @property
    def first_gradient(self) -> Difference | None:
        """The first parameter in backward order whose gradient differs."""
        return next((stage.first for stage in self.stages if stage.name == stages.GRADIENTS), None)

    @property
    def first_layer(self) -> LayerDifference | None:
        """The first layer in execution order whose output differs: in evaluation mode, else in training mode."""
        return next((layer for layer in self.layers if layer.output.verdict == DIFFERS), None)


def compare_recordings(ours: Recording, theirs: Recording, names: NameMap, initialisation: bool = True) -> Ladder:
    """Hold two recordings of the same task against each other.

    Args:
        ours, theirs: MindSpore's side, and the reference's, whose rounding is what tells rounding from a fault.
        names: which is which.
        initialisation: compare the distributions of the parameters as the two nets came.
    """
    found = inputs_stage(ours.task.batches, theirs.task.batches)
    first_stages = [found, _initialisation(ours, theirs, names, initialisation)]
    inputs = split(ours.task.batches[0][0], ours.task.accumulate)[0]
    layers = compare_layers(ours.layers, theirs.layers, names.layers, ours.trace.start, inputs)
    order = _execution_order(ours.layers["eval"], names)

    def all_stages(rounding: stages.Rounding) -> list[Stage]:
        return [*first_stages, *stages.Comparison(ours, theirs, names, rounding).all_stages(order)]

    notes = settings_notes(ours.layers["eval"], theirs.layers["eval"], names.layers)
    notes += [*sharing_notes(names, ours.tied), *training_notes(names, ours.trainable, theirs.trainable)]
    changed = list(dict.fromkeys([*theirs.notes, *ours.notes]))
    precision = "float16" if theirs.task.recipe.precision == "fp16" else "float32"
    ladder = Ladder(all_stages(theirs.rounding), layers, names, notes, changed=changed, precision=precision)
    if ladder.first_layer is None and ladder.first_gradient is not None and theirs.flipped is not None:
        # The same layers, other gradients: a fault, or inputs of a ReLU that float32 puts on either side of 0.
        rounding, ladder.ties = theirs.flipped(tie_width(layers))
        ladder.stages = all_stages(stages.worst_rounding(theirs.rounding, rounding))
    _evaluation(ladder, ours.random_eval, theirs.random_eval)
    explain(ladder, ours, theirs)
    return ladder


def _initialisation(ours: Recording, theirs: Recording, names: NameMap, asked: bool) -> Stage:
    if not asked:
        return Stage(stages.INITIALISATION, note="not asked for")
    drawn = names.rename(theirs.initial)
    compared = {name: drawn[name] for name in ours.trace.gradients if name in drawn}
    return initialisation_stage(ours.initial, compared, names.seams(theirs.initial))


def _execution_order(layers: Sequence[Layer], names: NameMap) -> list[str]:
    """Our parameters as the forward pass meets them; what it does not meet comes last."""
    met = [f"{layer.name}.{leaf}" for layer in layers for leaf, _ in layer.parameters]
    known = [name for name in dict.fromkeys(met) if name in names.parameters]
    return known + [name for name in names.parameters if name not in set(known)]


def _evaluation(ladder: Ladder, ours: bool, theirs: bool) -> None:
    """What drops in evaluation mode differs, although dropout was set to 0 for everything else."""
    stage = next(stage for stage in ladder.stages if stage.name == stages.EVAL_FORWARD)
    for random, side in ((ours, "the net"), (theirs, "the reference")):
        if random:
            words = f"{side} gives another output each time it is called in evaluation mode: dropout is left on"
            stage.hints.append(words)
            stage.failed = words


def _by_our_names(names: NameMap, trace: Trace) -> dict[str, Arrays]:
    """What the reference's first update is made of."""
    parts = {"start": trace.start, "after": trace.after[0], "clipped": trace.clipped}
    named = {part: names.rename(arrays) for part, arrays in {**parts, **trace.state}.items()}
    return {**named, "rates": {"rate": np.asarray(trace.rates[0])}}


def explain(ladder: Ladder, ours: Recording, theirs: Recording) -> None:
    """Look for the cause of the first divergence; what follows from it needs none."""
    stage, task = ladder.first_computed, theirs.task
    if stage is None:
        return
    names = ladder.names
    gradients = names.rename(theirs.trace.gradients)
    if stage.name == stages.LOSS:
        diagnose.sum_hints(stage, task.batches[0][1], theirs.trace.train_outputs[0], task.accumulate)
        if task.accumulate == 1 and not task.own_loss:
            logits = next(iter(theirs.trace.train_outputs[0].values())).astype(np.float64)
            labels = task.batches[0][1]
            if labels.ndim == 1:
                diagnose.loss_hints(stage, logits, labels, task.recipe.label_smoothing)
    elif stage.name == stages.GRADIENTS:
        common = {name: gradients[name] for name in ours.trace.gradients if name in gradients}
        diagnose.gradient_hints(stage, ours.trace.gradients, common, task.accumulate)
        stage.hints += [
            *sharing_notes(names, ours.tied),
            *padding_notes(names, ours.trace.gradients, common, theirs.layers["eval"]),
        ]
        if ladder.first_layer is None:
            sign_changes = [(item.name, item.sign_changes) for item in ladder.layers if item.mode == "train"]
            diagnose.relu_hints(stage, sign_changes)
    elif stage.name in (stages.NORM, stages.CLIPPED) and task.recipe.clip_norm:
        parts = [names.rename(part) for part in theirs.trace.parts] or [gradients]
        diagnose.clip_hints(stage, ours.trace, parts, task.recipe)
    elif stage.name == stages.RATE:
        diagnose.rate_hints(stage, ours.trace.rates, theirs.trace.rates)
    elif stage.name in _OF_ADAM and (hints := adam_hints(ours.trace, _by_our_names(names, theirs.trace))):
        stage.hints += hints
    elif stage.name == stages.state_stage("momentum"):
        diagnose.momentum_hints(stage, ours.trace, names.rename(theirs.trace.state["momentum"]))
    elif stage.name == stages.CHANGE:
        first, start = names.rename(theirs.trace.after[0]), names.rename(theirs.trace.start)
        diagnose.update_hints(stage, ours.trace, {name: first[name] - start[name] for name in gradients})
        buffers = names.rename(theirs.trace.state.get("momentum", {}))
        if buffers and "momentum" in ours.trace.state:
            update = {"start": start, "after": first, "momentum": buffers}
            diagnose.nesterov_hints(stage, ours.trace, update, theirs.trace.rates[0])
    elif stage.name == stages.STATISTICS and task.accumulate == 1:
        momenta = {layer.name: layer.settings.get("momentum") for layer in theirs.layers["eval"]}
        sources = {name: names.sources(name)[0] for name in names.parameters}
        known = {name: momenta.get(source.rpartition(".")[0]) for name, source in sources.items()}
        diagnose.statistics_hints(
            stage,
            ours.trace,
            names.rename(theirs.trace.start),
            names.rename(theirs.trace.after[0]),
            {name: momentum for name, momentum in known.items() if momentum},
        )
