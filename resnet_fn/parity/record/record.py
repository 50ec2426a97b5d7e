"""Record what a net computes: what a trace holds, and in which order it is made."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record.alone import LossesAlone, losses_alone
from resnet_fn.parity.record.common import dropout_notes, words_with_place
from resnet_fn.parity.record.dropouts import drops_of, in_evaluation
from resnet_fn.parity.record.kernel_errors import (
    KernelErrors,
    errors_with_masks,
    kernel_errors,
)
from resnet_fn.parity.record.passes import evaluated, output_in_training, trained
from resnet_fn.parity.record.randomness import before_random, is_random
from resnet_fn.parity.record.side import Dropped, Side
from resnet_fn.parity.trace.data import Probes, Run, Trace
from resnet_fn.parity.trace.drop import Drop
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.masks import SharedMasks, shared_masks
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.source import Recorded
from resnet_fn.parity.trace.tree import Arrays, map_tree, shared


class _WithoutDropout(NamedTuple):
    """What the net computes without dropout, before the updates."""

    dropped: Dropped  # the dropouts that are off
    # all executions in training mode: dropout is looked for in those after a random one, too
    executions: list[Layer]
    layers: dict[str, list[Layer]]  # the executions that are compared, by mode
    training_draws: bool  # whether training draws random numbers
    output: np.ndarray | None  # all outputs in training mode, if the net itself has a rate
    # of the port; of the reference, they are empty here, and computed after the updates
    what_draws: str  # `Trace.random_train`
    probed: Probes


# Long: the steps of a recording, one after the other.
def record(side: Side, like: Like | None = None, probes: bool = True) -> Recorded:
    """Train a net for a few updates without dropout, and record what the comparison needs.

    If `like` is given, the net takes over the reference's weights and dropout masks. If `probes` is
    False, the net is not run on changed inputs. Returns the trace, and what the side can still be
    asked. Afterwards, the net has the weights from before the first update.

    A Trace is made in these steps, which the code below has by number:

    1. The weights: as the net was built, then as it is trained.
    2. Evaluation mode, with dropout as built: whether it draws random numbers.
    3. Without dropout: the layers in both modes; whether training draws random numbers; of the
       port, probes.
    4. Dropout: where the net applies it, and the masks that both sides get.
    5. The optimizer: what makes the updates; its settings; of the port, its changes alone.
    6. The updates, the loss alone, and the layers with masks; of the port, by exact kernels, too.
    7. Of the reference: how far rounding moves the updates; what the port did in 3 and 5.
    8. Of the port: how far inaccurate kernels move what else it computes.
    9. The Trace, with limits that nothing reached and the initial values of further builds.

    Each step may draw random numbers, so their order is part of the result.
    """
    of_port = not side.is_reference
    with side.session():
        # 1. The weights
        initial = side.start(side.state(), like)
        # 2. Evaluation mode, with dropout as built
        evaluation_draws = is_random(partial(evaluated, side))
        # a net that draws there may drop there: step 4 looks for masks in these executions
        evaluation_with_dropout = side.layers("eval") if evaluation_draws else []
        if not evaluation_draws:
            side.evaluate_as_built()
        with_probes = probes and side.plan.precision == "fp32" and not evaluation_draws
        # 3. Without dropout
        # unpacked at once, without a name for the whole: `del executions` (before 5) and the
        # replaced layers of 7 must free memory
        dropped, executions, layers, training_draws, output, what_draws, probed = _without_dropout(
            side, with_probes
        )
        # 4. Dropout
        drops = drops_of(dropped, executions, side.dropping_layer, output)
        drops = in_evaluation(drops, evaluation_with_dropout)
        masks, unmasked = _masks(side, drops, executions, like)
        del executions  # of the port: during the updates, random ones would fill the memory
        # 5. The optimizer
        side.prepare_updates()  # rejects an optimizer whose settings cannot be read
        settings = side.optimizer_settings()
        alone = side.optimizer_alone(like) if of_port else {}
        # 6. The updates
        draws = bool(training_draws or evaluation_draws)
        run, losses, layers_with_masks, of_masked = _updates_with_masks(side, masks, like, draws)
        initial = shared(initial, run.start)  # both stay in memory: equal arrays are kept once
        layers |= layers_with_masks
        # 7. Of the reference: rounding first, for which the updates' decisions are in memory
        measured = side.measured()  # of the port, nothing
        if not of_port:
            alone = side.optimizer_alone(like)
            layers["train"], what_draws = _cut_before_random(side, layers["train"], training_draws)
            if with_probes:
                probed = _probes_or_note(side, layers["eval"])
        # 8. Of the port, which the updates have compiled: kernels, in runs that are not compiled
        kernels = KernelErrors()
        if of_port and not draws:
            kernels = kernel_errors(side, run, like, layers, masks, of_masked)
        for mode, errors in kernels.layers.items():
            layers[mode] = _with_errors(layers[mode], errors)
        # 9. The Trace
        limits = _lines_of_limits(side, losses, like)
        plan = _as_seen(side)
        unread = sorted(side.unread)
        environment = side.environment()
        roles = side.roles()  # tied, trainable, constants; buffers or attributes
        # last, because it seeds all generators, and because the user's function may set flags
        builds = _builds_or_note(side)
        notes = [*dropout_notes(side.is_reference, dropped, side.plan), *side.notes]
        trace = Trace(
            framework=side.framework,
            plan=plan,
            initial=initial,
            layers=layers,
            run=run,
            kernels=kernels.rounding,
            unread=unread,
            notes=notes,
            environment=environment,
            random_eval=evaluation_draws,
            random_train=what_draws,
            drops=drops,
            unmasked=unmasked,
            probes=probed,
            limits=limits,
            builds=builds,
            optimizer_alone=alone,
            losses_alone=losses.losses,
            optimizer_settings=settings,
            rounding=measured.rounding,
            ties=measured.ties,
            changing=measured.changing,
            **roles,
        )
        return Recorded(trace, side.source(trace))


def _without_dropout(side: Side, with_probes: bool) -> _WithoutDropout:
    """Run the net without dropout, before the updates."""
    what_draws, probed = "", Probes()
    with side.without_dropout() as dropped:
        layers, training_draws = _layers_in_both_modes(side)
        executions = layers["train"]
        of_port = not side.is_reference
        # The port itself is trained, so its probes and, in step 5, its optimizer alone come before
        # the updates, which may change the net's attributes and the optimizer's state. Of the
        # reference copies are trained, so both come late, in step 7: their results take the memory
        # of several nets.
        if of_port:
            layers["train"], what_draws = _cut_before_random(side, executions, training_draws)
        # the path "": the net itself has an attribute with a rate, which its output shows
        output = None
        if any(path == "" for path, *_ in dropped):
            output = output_in_training(side)
        if of_port and with_probes:
            probed = _probes_or_note(side, layers["eval"])
    return _WithoutDropout(dropped, executions, layers, training_draws, output, what_draws, probed)


def _layers_in_both_modes(side: Side) -> tuple[dict[str, list[Layer]], bool]:
    """Return the executions of layers in both modes, and whether the net draws random numbers in
    training mode, without dropout.

    What a net that draws in evaluation mode records depends on how often it ran before: the
    reference is tried before its layers are recorded, the port afterwards.
    """
    training = partial(trained, side)
    before = side.is_reference and is_random(training)
    layers = {mode: side.layers(mode) for mode in ("eval", "train")}
    return layers, before if side.is_reference else is_random(training)


def _cut_before_random(
    side: Side, executions: list[Layer], training_draws: bool
) -> tuple[list[Layer], str]:
    """Return the executions before the first that draws random numbers, and what draws them; if
    training draws none, all executions and "".
    """
    return before_random(executions, side.layers_again) if training_draws else (executions, "")


def _probes_or_note(side: Side, executions: Sequence[Layer]) -> Probes:
    """Return the results on probes, or {} and add a note if an error is raised."""
    try:
        return side.probes(executions)
    except Exception as error:  # the verdict does not need probes
        side.notes.append(
            f"the probes of {_framework(side)} failed, so there are none ({words_of(error)})"
        )
        return {}


def _framework(side: Side) -> str:
    """Return the framework's name without its version."""
    return side.framework.partition(" ")[0]


def _masks(
    side: Side, drops: Sequence[Drop], executions: Sequence[Layer], like: Like | None
) -> SharedMasks:
    """Return the dropout masks of each layer, which are the reference's if `like` is given."""
    # `check_shares` lets only a plan without micro-batches come here: masks have the shape of the
    # whole batch, but a worker gets a part of it.
    if side.plan.accumulate % side.worker_count:
        return SharedMasks({}, [])
    own = (drops, executions)
    if like:
        return shared_masks(own, like.dropping, like.layers)
    return shared_masks(own, own, {layer.name: layer.name for layer in executions})


def _updates_with_masks(
    side: Side, masks: Mapping[str, Sequence[np.ndarray]], like: Like | None, draws: bool
) -> tuple[Run, LossesAlone, dict[str, list[Layer]], list[float]]:
    """Make the updates, and run the loss alone.

    The third result is the executions of layers with masks, under their mode; {}: without masks.
    The fourth is their errors by a port's inaccurate kernels, unless it `draws` random numbers.
    """
    layers = {}
    errors: list[float] = []
    with side.masked(masks):
        if masks and side.is_reference:
            layers["dropout"] = side.layers("dropout")
        run = side.updates(like)
        losses = losses_alone(side, run, like)
        if masks and not side.is_reference:  # a port's masks are ones until all updates are made
            layers["dropout"] = side.layers("dropout")
            errors = [] if draws else errors_with_masks(side, layers["dropout"])
    return run, losses, layers, errors


def _with_errors(layers: Sequence[Layer], errors: Sequence[float]) -> list[Layer]:
    """Return the port's executions with these errors by inaccurate kernels, which its
    `output_rounding` holds (trace/layer.py).
    """
    return [
        dataclasses.replace(layer, output_rounding=error)
        for layer, error in zip(layers, errors, strict=True)
    ]


def _lines_of_limits(side: Side, losses: LossesAlone, like: Like | None) -> list[str]:
    """Return what no update or probe has reached (`Side.limits`), and where the reference's own
    loss fails alone.

    The plan's loss is not compared alone, so where it fails is left out. What a port's loss fails
    on is named by the stage, not here.
    """
    limits = side.limits()
    if losses.limit and side.plan.loss.custom and not like:
        limits.append(f"loss alone: {losses.limit}")
    return limits


def _as_seen(side: Side) -> Plan:
    """Return the plan with its batches as the framework's tensors hold them."""

    def seen(array: np.ndarray) -> np.ndarray:
        return np.array(side.tensor(np.array(array)).numpy())

    batches = [map_tree(seen, tuple(batch)) for batch in side.plan.batches]
    return dataclasses.replace(side.plan, batches=batches)


def _builds_or_note(side: Side) -> list[Arrays]:
    """Return the initial values of several nets, or [] and add a note if a net is built once only.

    A function of the user's may fail the second time, if it writes a file or sets a flag.
    """
    try:
        return side.builds()
    except Exception as error:
        fault = words_with_place(error)
        side.notes.append(
            f"{_framework(side)}'s net cannot be built again ({fault}), so initial values of one build "
            "are compared"
        )
        return []
