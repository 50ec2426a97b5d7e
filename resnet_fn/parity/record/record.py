"""Record what a net computes: what a trace holds, and in which order it is made."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.parity.record.alone import losses_alone
from resnet_fn.parity.record.common import dropout_notes, place_of
from resnet_fn.parity.record.dropouts import drops_of, in_evaluation
from resnet_fn.parity.record.randomness import cut_random, is_random, other_draws
from resnet_fn.parity.record.side import Side
from resnet_fn.parity.trace.data import Drop, Probes, Rounding, Run, Trace
from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.masks import SharedMasks, shared_masks
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.source import Recorded
from resnet_fn.parity.trace.stages import (
    EVAL_FORWARD,
    FIRST,
    LOSS,
    LOSS_ALONE,
    TRAIN_FORWARD,
    ArrayId,
    StageId,
    marked,
)
from resnet_fn.parity.trace.tree import Arrays, map_tree, paired_outputs, shared

_SEEN = 1e-6  # kernels that move no output and no loss so far are left out


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
    plan = side.plan
    of_port = not side.is_reference
    random_train = ""
    answers: Probes = {}
    with side.session():
        initial = side.state()
        side.start(like)
        random_eval = is_random(partial(_evaluated, side))
        evaluated = side.layers("eval") if random_eval else []
        if not random_eval:
            side.evaluate_as_built()
        probed = probes and plan.precision == "fp32" and not random_eval
        with side.without_dropout() as dropped:
            # This order matters for a net that draws random numbers in evaluation mode, too: its
            # recorded outputs depend on how often the net ran before.
            random = not of_port and _draws(side)
            layers = {mode: side.layers(mode) for mode in ("eval", "train")}
            drawn = of_port and _draws(side)
            again = other_draws(layers["train"], side.layers_again) if drawn else None
            output = _only_output(side) if any(not name for name, *_ in dropped) else None
            if probed and of_port:  # updates that are not compiled may change a cell's attributes
                answers = _probes(side, layers)
        drops = drops_of(dropped, layers["train"], side.dropping_layer, output)
        drops = in_evaluation(drops, evaluated)
        masks, left = _masks(side, drops, layers["train"], like)
        if again is not None:
            random_train = cut_random(layers["train"], again)
        settings = side.optimizer_settings()
        # of the port before the updates, which leave its optimizer with state
        alone = side.optimizer_alone(like) if of_port else {}
        with side.masked(masks):
            if masks and not of_port:
                layers["dropout"] = side.layers("dropout")
            run = side.updates(like)
            initial = shared(initial, run.start)
            losses = _losses_alone(side, run, like)
            if masks and of_port:  # until the end of the updates, compiled masks are ones
                layers["dropout"] = side.layers("dropout")
        rounding = side.rounding(run)  # of the reference: float64 and noise
        ties = side.ties(run)
        changing = side.changing(run)
        # of the reference late, because the results are as large as several nets
        alone = alone if of_port else side.optimizer_alone(like)
        if random:
            again = other_draws(layers["train"], side.layers_again)
            random_train = cut_random(layers["train"], again)
        # After the updates, which compile the net: these runs are not compiled. They move nothing.
        draws = random_eval or random or again is not None
        kernels = {} if draws else _kernels(side, run, like, layers)
        if probed and not of_port:  # last: their outputs may fill the memory
            answers = _probes(side, layers)
        trace = Trace(
            framework=side.framework,
            plan=_as_seen(side),
            initial=initial,
            layers=layers,
            run=run,
            rounding=rounding,
            ties=ties,
            kernels=kernels,
            changing=changing,
            unread=sorted(side.unread),
            notes=[*dropout_notes(side.is_reference, dropped, plan), *side.notes],
            environment=side.environment(),
            random_eval=random_eval,
            random_train=random_train,
            drops=drops,
            unmasked=left,
            probes=answers,
            limits=side.limits(),
            optimizer_alone=alone,
            losses_alone=losses,
            optimizer_settings=settings,
            **side.roles(),
        )
        builds = _builds(side, trace.notes)  # last, because it seeds all generators
        trace = dataclasses.replace(trace, builds=builds)
        return Recorded(trace, side.source(trace))


def _evaluated(side: Side, batch: int = FIRST) -> Arrays:
    """Return the outputs of a batch in evaluation mode."""
    inputs, _ = side.plan.batches[batch - FIRST]
    return side.arrays(side.forward(inputs, False))


def _trained(side: Side, batch: int = FIRST) -> Arrays:
    """Return the outputs of a batch's first micro-batch in training mode, and their loss."""
    inputs, labels = side.plan.first_of(batch)
    outputs = side.forward(inputs, True)
    return {**side.arrays(outputs), LOSS.name: side.loss(outputs, labels)}


def _only_output(side: Side) -> np.ndarray | None:
    """Return the output of the first micro-batch in training mode, or None if there are several."""
    outputs = side.arrays(side.forward(side.plan.first[0], True))
    return next(iter(outputs.values())) if len(outputs) == 1 else None


def _draws(side: Side) -> bool:
    """Return whether the net draws random numbers in training mode, without dropout."""
    return is_random(lambda: _trained(side))


def _probes(side: Side, layers: dict[str, list[Layer]]) -> Probes:
    """Return the results on probes. If an error is raised, return {} and add a note."""
    try:
        return side.probes(layers["eval"])
    except Exception as error:  # the verdict does not need probes
        framework = side.framework.partition(" ")[0]
        side.notes.append(
            f"the probes of {framework} failed, so there are none ({type(error).__name__}: "
            f"{first_line(error)})"
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
        fault = f"{type(error).__name__}{place_of(error)}: {first_line(error)}"
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


def _losses_alone(side: Side, run: Run, like: Like | None) -> dict[ArrayId, float]:
    """Return the losses of other outputs than the net's, which are equal on both sides."""
    example = side.loss_example()
    if example is None:
        return {}
    given = like.train_outputs if like else side.of_all_workers(run.train_outputs[0])
    if not side.is_reference:
        named = paired_outputs(side.arrays(example), given)
        if not named:
            return {}
        given = {named[name]: array for name, array in given.items() if name in named}
    return losses_alone(side.loss, given, side.plan, example, side.tensor)


def _kernels(side: Side, run: Run, like: Like | None, layers: dict[str, list[Layer]]) -> Rounding:
    """Return how far inaccurate kernels move outputs and losses, and note it for each layer, too.

    If an error is raised, return {} and add a note.
    """

    def results() -> dict[StageId, dict[Any, np.ndarray]]:
        alone = {} if side.workers > 1 else _losses_alone(side, run, like)
        of_losses = {case: np.asarray(loss) for case, loss in alone.items()}
        return {**_results(side), LOSS_ALONE: of_losses}

    if side.is_reference:
        return {}
    try:
        with side.exact_kernels() as calls:
            exact = results()
        if not calls():
            return {}
        computed = results()
        if _largest(_errors(results(), computed)) > _SEEN:
            return {}  # a state moves the results
        kernels = _errors(computed, exact)
        for batch in range(FIRST + 1, FIRST + len(side.plan.batches)):
            with side.exact_kernels():
                exact = _results(side, batch)
            kernels |= _errors(_results(side, batch), exact)
        if _largest(kernels) > _SEEN:
            for mode in ("eval", "train"):
                with side.exact_kernels():
                    exactly = side.layers(mode)
                for layer, one, other in zip(layers[mode], side.layers(mode), exactly, strict=True):
                    if one.output is not None and other.output is not None:
                        layer.output_rounding = relative_error(one.output, other.output)
        return kernels
    except Exception as error:  # the bounds are only closer without it
        side.notes.append(
            f"the error of kernels is not measured ({type(error).__name__}: {first_line(error)})"
        )
        return {}


def _results(side: Side, batch: int = FIRST) -> dict[StageId, dict[Any, np.ndarray]]:
    """Return outputs in both modes and the loss, of one batch with the weights as they are."""
    trained = _trained(side, batch)
    results = {
        EVAL_FORWARD: _evaluated(side, batch),
        TRAIN_FORWARD: {name: one for name, one in trained.items() if name != LOSS.name},
        LOSS: {LOSS.name: trained[LOSS.name]},
    }
    return marked(results, batch=batch)


def _largest(errors: Rounding) -> float:
    return max(itertools.chain(*(one.values() for one in errors.values())), default=0.0)


def _errors(
    computed: Mapping[StageId, Mapping[Any, np.ndarray]],
    exact: Mapping[StageId, Mapping[Any, np.ndarray]],
) -> Rounding:
    """Return the finite relative errors of the arrays that both have, by stage."""
    errors: Rounding = {}
    for stage, arrays in computed.items():
        both = {name: one for name, one in arrays.items() if name in exact[stage]}
        of_stage = {name: relative_error(one, exact[stage][name]) for name, one in both.items()}
        errors[stage] = {name: one for name, one in of_stage.items() if math.isfinite(one)}
    return errors


def _as_seen(side: Side) -> Plan:
    """Return the plan with its batches as the framework's tensors hold them."""

    def seen(array: np.ndarray) -> np.ndarray:
        return np.array(side.tensor(np.array(array)).numpy())

    batches = [map_tree(seen, tuple(batch)) for batch in side.plan.batches]
    return dataclasses.replace(side.plan, batches=batches)
