"""Record what a net computes: what a trace holds, and in which order it is made."""

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record.alone import LossesAlone, losses_alone
from resnet_fn.parity.record.common import dropout_notes, words_with_place
from resnet_fn.parity.record.dropouts import drops_of, in_evaluation
from resnet_fn.parity.record.kernel_errors import kernel_errors
from resnet_fn.parity.record.passes import evaluated, only_output, trained
from resnet_fn.parity.record.randomness import before_random, is_random
from resnet_fn.parity.record.side import Side
from resnet_fn.parity.trace.data import Probes, Trace
from resnet_fn.parity.trace.drop import Drop
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.masks import SharedMasks, shared_masks
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.source import Recorded
from resnet_fn.parity.trace.tree import Arrays, map_tree, shared


# Long: the steps of a recording, one after the other.
def record(side: Side, like: Like | None = None, probes: bool = True) -> Recorded:
    """Train a net for a few updates without dropout, and record what the comparison needs.

    If `like` is given, the net takes over the reference's weights and dropout masks. If `probes` is
    False, the net is not run on changed inputs. Afterwards, the net has the weights from before the
    first update.

    A Trace is made in these steps, which the code below has by number:

    1. The weights: as the net was built, then as it is trained.
    2. Evaluation mode: whether it draws random numbers with dropout as built.
    3. Without dropout: the layers in both modes; whether training draws random numbers.
    4. Dropout: where the net applies it, and the masks that both sides get.
    5. The optimizer: its settings.
    6. The updates; with their outputs, the loss alone; with masks, the layers again: before the
       updates of the reference, after those of the port.
    7. Of the reference: how rounding changes the updates; the optimizer alone; if training draws
       random numbers, the layers again; probes.
    8. Of the port: how inaccurate kernels change what it computes.
    9. Limits that no number has reached; the Trace; the initial values of further builds.

    Each step may draw random numbers, so their order is part of the result. The port itself is
    trained, so its probes (in 3) and its optimizer alone (in 5) come before the updates, which may
    change the net's attributes and the optimizer's state. Of the reference copies are trained, so
    both come late (in 7): their results take the memory of several nets.
    """
    of_port = not side.is_reference
    random_train, probed = "", Probes()  # set in 3 of the port, in 7 of the reference
    with side.session():
        # 1. The weights
        initial = side.state()
        side.start(initial, like)
        # 2. Evaluation mode, with dropout as built
        random_eval = is_random(partial(evaluated, side))
        # a net that draws there may drop there: step 4 looks for masks in these executions
        dropping_in_evaluation = side.layers("eval") if random_eval else []
        if not random_eval:
            side.evaluate_as_built()
        with_probes = probes and side.plan.precision == "fp32" and not random_eval
        # 3. Without dropout
        with side.without_dropout() as dropout_rates:
            layers, at_random = _layers_in_both_modes(side)  # whether training draws
            executions = layers["train"]  # dropout is looked for in those after a random one, too
            if of_port:
                layers["train"], random_train = _cut_before_random(side, executions, at_random)
            # the path "": the net itself has an attribute with a rate, which its output shows
            output = only_output(side) if any(path == "" for path, *_ in dropout_rates) else None
            if with_probes and of_port:
                probed = _probes(side, layers["eval"])
        # 4. Dropout
        drops = drops_of(dropout_rates, executions, side.dropping_layer, output)
        drops = in_evaluation(drops, dropping_in_evaluation)
        masks, unmasked = _masks(side, drops, executions, like)
        del executions  # during the updates, random ones would fill the memory
        # 5. The optimizer
        settings = side.optimizer_settings()
        alone = side.optimizer_alone(like) if of_port else {}
        # 6. The updates
        with side.masked(masks):
            if masks and not of_port:
                layers["dropout"] = side.layers("dropout")
            run = side.updates(like)
            initial = shared(initial, run.start)
            losses = losses_alone(side, run, like)
            if masks and of_port:  # a port's masks are ones until all updates are made
                layers["dropout"] = side.layers("dropout")
        # 7. Of the reference: rounding first, for which the updates' decisions are in memory
        measured = side.measured()
        if not of_port:
            alone = side.optimizer_alone(like)
            layers["train"], random_train = _cut_before_random(side, layers["train"], at_random)
            if with_probes:
                probed = _probes(side, layers["eval"])
        # 8. Of the port, which the updates have compiled: kernels, in runs that are not compiled.
        # This also sets the rounding of outputs of `layers` whose kernels are inaccurate.
        kernels = {} if at_random or random_eval else kernel_errors(side, run, like, layers)
        # 9. Limits
        limits = _limits(side, losses, like)
        trace = Trace(
            framework=side.framework,
            plan=_as_seen(side),
            initial=initial,
            layers=layers,
            run=run,
            kernels=kernels,
            unread=sorted(side.unread),
            notes=[*dropout_notes(side.is_reference, dropout_rates, side.plan), *side.notes],
            environment=side.environment(),
            random_eval=random_eval,
            random_train=random_train,
            drops=drops,
            unmasked=unmasked,
            probes=probed,
            limits=limits,
            optimizer_alone=alone,
            losses_alone=losses.losses,
            optimizer_settings=settings,
            rounding=measured.rounding,
            ties=measured.ties,
            changing=measured.changing,
            **side.roles(),  # tied, trainable, constants; buffers or attributes
        )
        trace.builds = _builds(side, trace.notes)  # last, because it seeds all generators
        return Recorded(trace, side.source(trace))


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
    side: Side, executions: list[Layer], at_random: bool
) -> tuple[list[Layer], str]:
    """Return the executions before the first that draws random numbers, and what draws them; if
    training draws none, all executions and "".
    """
    return before_random(executions, side.layers_again) if at_random else (executions, "")


def _probes(side: Side, executions: Sequence[Layer]) -> Probes:
    """Return the results on probes. If an error is raised, return {} and add a note."""
    try:
        return side.probes(executions)
    except Exception as error:  # the verdict does not need probes
        framework = side.framework.partition(" ")[0]
        side.notes.append(
            f"the probes of {framework} failed, so there are none ({words_of(error)})"
        )
        return {}


def _builds(side: Side, notes: list[str]) -> list[Arrays]:
    """Return the initial values of several nets, or [] and add a note if a net is built once only.

    A function of the user's may fail the second time, if it writes a file or sets a flag.
    """
    try:
        return side.builds()
    except Exception as error:
        framework = side.framework.partition(" ")[0]
        fault = words_with_place(error)
        notes.append(
            f"{framework}'s net cannot be built again ({fault}), so initial values of one build "
            "are compared"
        )
        return []


def _masks(
    side: Side, drops: Sequence[Drop], layers: Sequence[Layer], like: Like | None
) -> SharedMasks:
    """Return the dropout masks of each layer, which are the reference's if `like` is given."""
    # Without micro-batches, masks have the shape of the whole batch, but a worker gets only a part
    # of the batch.
    if side.plan.accumulate % side.worker_count:
        return SharedMasks({}, [])
    own = (drops, layers)
    if like:
        return shared_masks(own, like.dropping, like.layers)
    return shared_masks(own, own, {layer.name: layer.name for layer in layers})


def _limits(side: Side, losses: LossesAlone, like: Like | None) -> list[str]:
    """Return what no update or probe has reached (`Side.limits`), and where the reference's own
    loss fails alone.

    The plan's loss is not compared alone. Where a port's loss fails, that stage names the cases.
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
