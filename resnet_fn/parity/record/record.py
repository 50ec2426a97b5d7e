"""Record what a net computes: what a trace holds, and in which order it is made."""

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np

from resnet_fn.config.hints import words_of
from resnet_fn.parity.record.alone import losses_alone
from resnet_fn.parity.record.common import dropout_notes, words_with_place
from resnet_fn.parity.record.dropouts import drops_of, in_evaluation
from resnet_fn.parity.record.kernel_errors import kernel_errors
from resnet_fn.parity.record.passes import evaluated, only_output, trained
from resnet_fn.parity.record.randomness import cut_random, is_random, other_draws
from resnet_fn.parity.record.side import Side
from resnet_fn.parity.trace.data import Drop, Probes, Trace
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.masks import SharedMasks, shared_masks
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.source import Recorded
from resnet_fn.parity.trace.tree import Arrays, map_tree, shared


# Long: the order of the measurements is part of the result.
def record(side: Side, like: Like | None = None, probes: bool = True) -> Recorded:
    """Train a net for a few updates without dropout, and record what the comparison needs.

    If `like` is given, the net takes over the reference's weights and dropout masks. If `probes` is
    False, the net is not run on changed inputs. Afterwards, the net has the weights from before the
    first update.

    The order of the measurements is part of the result, since each may draw random numbers. The two
    orders differ because the port is trained itself, but copies of the reference:

    - of the reference: whether it draws random numbers, its layers; the layers with masks, the
      updates, losses alone; rounding, ties, integers that change; the optimizer alone, layers
      again, probes, builds
    - of the port: its layers, whether it draws random numbers, layers again, probes; the optimizer
      alone; the updates, losses alone, the layers with masks; inaccurate kernels, builds
    """
    of_port = not side.is_reference
    probed: Probes = {}
    random_train = ""
    with side.session():
        initial = side.state()
        side.start(like)
        random_eval = is_random(partial(evaluated, side))
        dropping = side.layers("eval") if random_eval else []
        if not random_eval:
            side.evaluate_as_built()
        with side.without_dropout() as dropped:
            # Whether the net draws random numbers: the reference before its layers, a port after
            # them. This order matters for a net that draws random numbers in evaluation mode, too:
            # its recorded outputs depend on how often the net ran before.
            draws = not of_port and _draws(side)
            layers = {mode: side.layers(mode) for mode in ("eval", "train")}
            draws = draws or (of_port and _draws(side))
            if draws and of_port:
                again = other_draws(layers["train"], side.layers_again)
            output = only_output(side) if any(not name for name, *_ in dropped) else None
            with_probes = probes and side.plan.precision == "fp32" and not random_eval
            # of the port before the updates, which may change a cell's attributes if not compiled
            if with_probes and of_port:
                probed = _probes(side, layers["eval"])
        drops = drops_of(dropped, layers["train"], side.dropping_layer, output)
        drops = in_evaluation(drops, dropping)
        masks, unmasked = _masks(side, drops, layers["train"], like)
        if draws and of_port:  # before the updates, during which the layers would fill the memory
            random_train = cut_random(layers["train"], again)
            again.clear()
        settings = side.optimizer_settings()
        # of the port before the updates, which leave its optimizer with state
        alone = side.optimizer_alone(like) if of_port else {}
        with side.masked(masks):
            if masks and not of_port:
                layers["dropout"] = side.layers("dropout")
            run = side.updates(like)
            initial = shared(initial, run.start)
            losses = losses_alone(side, run, like)
            if masks and of_port:  # until the end of the updates, compiled masks are ones
                layers["dropout"] = side.layers("dropout")
        measured = side.measured()  # of the reference: float64, noise, ties, changing integers
        if not of_port:  # late, because the results are as large as several nets
            alone = side.optimizer_alone(like)
        if draws and not of_port:
            again = other_draws(layers["train"], side.layers_again)
            random_train = cut_random(layers["train"], again)
        # after the updates, which compile the net: these runs are not compiled, and move nothing
        kernels = {} if draws or random_eval else kernel_errors(side, run, like, layers)
        if with_probes and not of_port:  # last: their outputs may fill the memory
            probed = _probes(side, layers["eval"])
        limits = side.limits()
        # the plan's loss is not compared alone, and failing cases of a port are named by that stage
        if losses.limit and side.plan.loss.custom and not like:
            limits.append(f"loss alone: {losses.limit}")
        trace = Trace(
            framework=side.framework,
            plan=_as_seen(side),
            initial=initial,
            layers=layers,
            run=run,
            rounding=measured.rounding,
            ties=measured.ties,
            changing=measured.changing,
            kernels=kernels,
            unread=sorted(side.unread),
            notes=[*dropout_notes(side.is_reference, dropped, side.plan), *side.notes],
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
            **side.roles(),
        )
        trace.builds = _builds(side, trace.notes)  # last, because it seeds all generators
        return Recorded(trace, side.source(trace))


def _draws(side: Side) -> bool:
    """Return whether the net draws random numbers in training mode, without dropout."""
    return is_random(partial(trained, side))


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
    if side.plan.accumulate % side.workers:
        return SharedMasks({}, [])
    own = (drops, layers)
    if like:
        return shared_masks(own, like.dropping, like.layers)
    return shared_masks(own, own, {layer.name: layer.name for layer in layers})


def _as_seen(side: Side) -> Plan:
    """Return the plan with its batches as the framework's tensors hold them."""

    def seen(array: np.ndarray) -> np.ndarray:
        return np.array(side.tensor(np.array(array)).numpy())

    batches = [map_tree(seen, tuple(batch)) for batch in side.plan.batches]
    return dataclasses.replace(side.plan, batches=batches)
