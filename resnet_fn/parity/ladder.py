"""The parity ladder: one net in MindSpore and in PyTorch, compared stage by stage through one training step.

Weights → forward → loss → gradients → clipping → update → further updates: a fault shows first in the stage where it
happens, and in every stage after it. So the first stage that differs names the fault's kind, the first layer that
differs names its place.
"""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mindspore import nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity import diagnose
from resnet_fn.parity.compare import DIFFERS, Difference, Stage
from resnet_fn.parity.layer import Layer
from resnet_fn.parity.layers import LayerDifference, compare_layers
from resnet_fn.parity.match import NameMap, match
from resnet_fn.parity.mindspore_side import run as mindspore_run
from resnet_fn.parity.mindspore_side.record import record_cell
from resnet_fn.parity.settings import settings_notes
from resnet_fn.parity.stages import TracePair, initialisation_stage, inputs_stage, stages_after_weights
from resnet_fn.parity.torch_side import relu_ties
from resnet_fn.parity.torch_side import run as torch_run
from resnet_fn.parity.torch_side.record import record_torch
from resnet_fn.parity.trace import Arrays, Batch, Trace, check_batches
from resnet_fn.update.loss import Loss, make_loss
from resnet_fn.update.optimizer import Optimizer, momentum_sgd, weight_decay_groups
from resnet_fn.update.schedule import make_schedule
from resnet_fn.update.step import make_train_step


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
    """

    stages: list[Stage]
    layers: list[LayerDifference]
    names: NameMap
    notes: list[str]
    ties: int = 0

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
            (stage for stage in self.stages if stage.verdict == DIFFERS and stage.name != "initialisation"), None
        )

    @property
    def first_gradient(self) -> Difference | None:
        """The first parameter in backward order whose gradient differs."""
        return next((stage.first for stage in self.stages if stage.name == "gradients"), None)

    @property
    def first_layer(self) -> LayerDifference | None:
        """The first layer in execution order whose output differs: in evaluation mode, else in training mode."""
        return next((layer for layer in self.layers if layer.output.verdict == DIFFERS), None)


def compressed_rates(recipe: Recipe, updates: int) -> list[float]:
    """The recipe's whole schedule, warm-up to end, compressed into a few updates."""
    schedule = make_schedule(recipe, updates / recipe.epochs)
    return [schedule(update) for update in range(updates)]


def compare_step(
    net: nn.Cell,
    reference: Any,
    batches: Sequence[Batch],
    recipe: Recipe,
    *,
    accumulate: int = 1,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    schedule: Callable[[int], float] | None = None,
    make_step: mindspore_run.MakeStep = make_train_step,
    seed: int = 0,
    initialisation: bool = True,
) -> Ladder:
    """Compare a MindSpore net and the training step around it with a PyTorch module under plain torch code.

    The reference's weights, with random BatchNorm statistics, gamma and beta where they are fresh, are copied into
    the net; both see the same batches. The torch side is `cross_entropy`, `clip_grad_norm_` and `torch.optim.SGD`
    with the recipe's values; MindSpore's side is the compiled step, made of what the keyword arguments say.

    Args:
        net: images float32 [n, C, H, W] to logits [n, classes]. It is left with the reference's weights.
        reference: a torch Module that does the same. It is not changed.
        batches: one (images float32 [n, C, H, W], labels int32 [n]) for each update, all of one size.
        recipe: schedule, momentum, Nesterov, weight decay, clipping and label smoothing. The schedule is
            compressed into the updates given (`compressed_rates`).
        accumulate: micro-batches of each update, on both sides.
        loss: MindSpore's; default the recipe's.
        optimizer: MindSpore's, made for the net's trainable parameters; default the recipe's.
        schedule: MindSpore's learning rate as a function of the update number; default the recipe's, as the reference.
        make_step: a function with the signature of `make_train_step`.
        seed: of the random statistics.
        initialisation: compare the distributions of the parameters as the two nets come, before copying.

    Raises:
        ValueError: batches that do not fit, or a Dropout layer in the reference.
    """
    check_batches(batches, accumulate)
    ours_initial, theirs_initial = mindspore_run.state(net), torch_run.state(reference)
    reference = copy.deepcopy(reference).float()
    images = batches[0][0]
    torch_run.prepare_reference(reference, images, seed)
    recorded = record_cell(net, images, False), record_torch(reference, images, False)
    values = torch_run.state(reference)
    names = match(_shapes(ours_initial), _shapes(values), *recorded)
    first_stages = [inputs_stage(images)]
    if names.problems:
        problems = Stage("weights", failed="; ".join(names.problems), hints=list(names.problems))
        return Ladder([*first_stages, problems], [], names, [])
    if initialisation:
        parameters = mindspore_run.parameters_by_path(net)
        drawn = {a: theirs_initial[b] for a, b in names.parameters.items() if parameters[a].requires_grad}
        first_stages.append(initialisation_stage(ours_initial, drawn))
    else:
        first_stages.append(Stage("initialisation", note="not asked for"))
    mindspore_run.assign(net, {ours: values[theirs] for ours, theirs in names.parameters.items()})
    rates = compressed_rates(recipe, len(batches))

    def run_torch(double: bool) -> Trace:
        return torch_run.run_torch(reference, batches, recipe, rates, accumulate, names.parameters, double)

    theirs, exact = run_torch(double=False), run_torch(double=True)
    ours = mindspore_run.run_mindspore(
        net,
        batches,
        recipe,
        [schedule(update) for update in range(len(batches))] if schedule else rates,
        accumulate,
        loss or make_loss(recipe.label_smoothing),
        optimizer or momentum_sgd(weight_decay_groups(net, recipe.weight_decay), recipe.momentum, recipe.nesterov),
        make_step,
        theirs.eval_logits.shape[1],
    )
    mindspore_run.assign(net, ours.start)
    order = _execution_order(recorded[0], names)
    layers = compare_layers(net, reference, images[: len(images) // accumulate], names)
    stages = [*first_stages, *stages_after_weights(TracePair(ours, theirs, exact), order)]
    ladder = Ladder(stages, layers, names, settings_notes(*recorded, names.layers))
    if ladder.first_layer is None and ladder.first_gradient is not None:
        # The same layers, other gradients: a fault, or inputs of a ReLU that float32 puts on either side of 0.
        with relu_ties.flip_ties(relu_ties.tie_width(layers)) as count:
            flipped = run_torch(double=True)
        ladder.stages = [*first_stages, *stages_after_weights(TracePair(ours, theirs, exact, flipped), order)]
        ladder.ties = count()
    _explain(ladder, ours, theirs, reference, batches[0], recipe, accumulate)
    return ladder


def _shapes(values: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in values.items()}


def _execution_order(layers: Sequence[Layer], names: NameMap) -> list[str]:
    """The MindSpore net's parameters as its forward pass meets them; what it does not meet comes last."""
    met = [f"{layer.name}.{leaf}" for layer in layers for leaf, _ in layer.parameters]
    known = [name for name in dict.fromkeys(met) if name in names.parameters]
    return known + [name for name in names.parameters if name not in set(known)]


def _explain(
    ladder: Ladder, ours: Trace, theirs: Trace, reference: Any, batch: Batch, recipe: Recipe, accumulate: int
) -> None:
    """Look for the cause of the first divergence; what follows from it needs none."""
    stage = ladder.first_computed
    if stage is None:
        return
    names = ladder.names.parameters
    if stage.name == "loss":
        if accumulate == 1:
            diagnose.loss_hints(stage, theirs.train_logits[0].astype(np.float64), batch[1], recipe.label_smoothing)
    elif stage.name == "gradients":
        diagnose.gradient_hints(stage, ours.gradients, theirs.gradients, accumulate)
        if ladder.first_layer is None:
            sign_changes = [(item.name, item.sign_changes) for item in ladder.layers if item.mode == "train"]
            diagnose.relu_hints(stage, sign_changes)
    elif stage.name in ("gradient norm", "clipped gradients") and recipe.clip_norm:
        micro = zip(np.split(batch[0], accumulate), np.split(batch[1], accumulate), strict=True)
        parts = [torch_run.run_torch(reference, [one], recipe, theirs.rates[:1], 1, names).gradients for one in micro]
        diagnose.clip_hints(stage, ours, parts, recipe)
    elif stage.name == "learning rate":
        diagnose.rate_hints(stage, ours.rates, theirs.rates)
    elif stage.name == "momentum after update 1":
        diagnose.momentum_hints(stage, ours, theirs)
    elif stage.name == "change by update 1":
        diagnose.update_hints(stage, ours, theirs, theirs.rates)
    elif stage.name.startswith("BatchNorm") and accumulate == 1:
        modules = dict(reference.named_modules())
        momenta = {
            name: modules[path.rpartition(".")[0]].momentum
            for name, path in names.items()
            if name not in theirs.gradients
        }
        diagnose.statistics_hints(stage, ours, theirs, {n: m for n, m in momenta.items() if m})
