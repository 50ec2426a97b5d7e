"""Prepare the copy of a torch module that becomes the reference: its loss, its first weights, and
what is trained in it.
"""

import dataclasses
from typing import Any, NamedTuple

import torch

from resnet_fn.config.wording import first_few
from resnet_fn.parity.record.drawing import Drawing
from resnet_fn.parity.record.rates import Rates
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_layers import roles_of
from resnet_fn.parity.record.torch_module import call, first_call, layers_by_path, state, tensors
from resnet_fn.parity.record.torch_recipe import loss_of
from resnet_fn.parity.record.torch_run import Loss, MakeOptimizer, load
from resnet_fn.parity.trace.constants import SMALL
from resnet_fn.parity.trace.plan import MEAN_SIZE, Plan
from resnet_fn.parity.trace.tree import Tree


class Prepared(NamedTuple):
    """A copy of a module that is ready to be the reference, and what belongs to it."""

    module: torch.nn.Module
    plan: Plan  # with the loss of a task that trains nothing, if this is one
    loss: Loss
    rates: Rates  # of dropout, as the module was built
    notes: list[str]


def prepare(
    module: torch.nn.Module,
    plan: Plan,
    loss: Loss | None,
    make_optimizer: MakeOptimizer | None,
    drawing: Drawing | None,
) -> Prepared:
    """Copy a module as it was built, choose the loss, and prepare the copy.

    `drawing` draws the copy's weights, if it is given.
    """
    reference = copied(module).float()
    rates = Rates(layers_by_path(reference))
    loss, plan, untrained_note = choose_loss(reference, plan, loss, make_optimizer)
    with rates.off(layers_by_path(reference)):
        changed_note = prepare_reference(reference, plan.batches[0][0], plan.seed)
    if make_optimizer:
        freeze_as_optimizer(reference, make_optimizer)
    if drawing:
        roles = roles_of_reference(module, reference)
        load(reference, drawing.weights(state(reference), roles["trainable"], roles["tied"]))
    notes = [note for note in (_half_note(module), untrained_note, changed_note) if note]
    return Prepared(reference, plan, loss, rates, notes)


def _half_note(module: torch.nn.Module) -> str:
    """Return a line if a module has arrays in half precision, or an empty string."""
    dtypes = {array.dtype for array in (*module.parameters(), *module.buffers())}
    halves = dtypes & {torch.float16, torch.bfloat16}
    if not halves:
        return ""
    names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in halves))
    return f"the reference's {names} arrays become float32; how it runs in {names} is not compared"


def roles_of_reference(module: torch.nn.Module, reference: torch.nn.Module) -> dict[str, Any]:
    """Return which parameters are shared, trained or constant, as fields of a `Trace`.

    All are as in the given module, except what is trained: an optimizer may have frozen parameters
    of the reference (`freeze_as_optimizer`).
    """
    return roles_of(module) | {"trainable": roles_of(reference)["trainable"]}


def choose_loss(
    reference: torch.nn.Module, plan: Plan, loss: Loss | None, make_optimizer: MakeOptimizer | None
) -> tuple[Loss, Plan, str]:
    """Return the user's or the plan's loss, the plan, and a note or an empty string.

    If nothing is trained, the plan gets the loss of a task that trains nothing.
    """
    trains = any(parameter.requires_grad for parameter in reference.parameters())
    note = ""
    if not (trains or loss or make_optimizer):
        plan = dataclasses.replace(plan, loss=dataclasses.replace(plan.loss, name=MEAN_SIZE))
        note = (
            "nothing is trained in the reference, so only forward passes are compared; the loss is "
            "the mean size of the outputs"
        )
    outputs = first_call(reference, plan.first[0], True)
    return loss or loss_of(plan.loss, outputs), plan, note


def freeze_as_optimizer(reference: torch.nn.Module, make_optimizer: MakeOptimizer) -> None:
    """Freeze and unfreeze parameters, in place, as the function that makes the optimizer does."""
    trained = copied(reference)
    make_optimizer(trained)
    for name, parameter in reference.named_parameters():
        parameter.requires_grad_(trained.get_parameter(name).requires_grad)


@torch.no_grad()
def prepare_reference(module: torch.nn.Module, inputs: Tree, seed: int) -> str:
    """Randomise, in place, untrained BatchNorm statistics and trained parameters whose numbers are
    all equal.

    Initial values such as mean 0 and gamma 1 would hide how a port uses them. Statistics are drawn
    around those of a batch, so that activations keep their size. Returns a line that names the
    changed parameters, or an empty string.
    """
    generator = torch.Generator().manual_seed(seed)
    changed = _randomise_weights(module, generator)
    _randomise_statistics(module, inputs, generator)
    if not changed:
        return ""
    return (
        f"random numbers for {len(changed)} constant arrays of the reference: {first_few(changed)}"
    )


def _randomise_weights(module: torch.nn.Module, generator: torch.Generator) -> list[str]:
    """Randomise trained parameters whose numbers are all equal, and return their names."""
    changed = []
    for name, weight in module.named_parameters():
        if weight.requires_grad and weight.numel() and (weight == weight.flatten()[0]).all():
            constant = weight.flatten()[0]
            if 0 < constant.abs() < SMALL:  # a LayerScale hides its whole branch
                drawn = 0.2 + 0.6 * torch.rand(weight.shape, generator=generator)
                weight.copy_(drawn * torch.sgn(constant))
            else:
                # A matrix of zeros hides all layers before it, so its numbers get the size
                # 1/√fan-in.
                size = 0.2 * float(constant.abs()) or (
                    weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.2
                )
                weight += size * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            changed.append(name)
    return changed


def _randomise_statistics(
    module: torch.nn.Module, inputs: Tree, generator: torch.Generator
) -> None:
    """Draw BatchNorm statistics of mean 0 and variance 1 around those of a batch."""
    paths = [
        path for path, submodule in module.named_modules() if _has_initial_statistics(submodule)
    ]
    if not paths:
        return
    trial = copied(module).train()  # counters of the module itself stay
    norms = [(module.get_submodule(path), trial.get_submodule(path)) for path in paths]
    for _, of_batch in norms:
        of_batch.momentum = 1.0  # the statistics become the batch's
    call(trial, tensors(inputs, torch.float32))
    for layer, of_batch in norms:
        mean, variance = layer.get_buffer("running_mean"), layer.get_buffer("running_var")
        mean.copy_(of_batch.get_buffer("running_mean"))
        variance.copy_(of_batch.get_buffer("running_var"))
        mean += 0.2 * torch.randn(mean.shape, generator=generator) * variance.sqrt()
        variance *= torch.exp(0.5 * torch.randn(variance.shape, generator=generator))
        # A channel that is constant on this batch has variance 0. Dividing by √eps would magnify
        # rounding.
        variance.clamp_(min=0.01 * float(variance.mean()) + 1e-3)


def _has_initial_statistics(layer: torch.nn.Module) -> bool:
    """Return whether a layer is a BatchNorm with weights whose statistics are 0 and 1."""
    if not isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
        return False
    mean, variance = layer.running_mean, layer.running_var
    if not (layer.affine and layer.track_running_stats) or mean is None or variance is None:
        return False
    return bool(not mean.any() and (variance == 1).all())
