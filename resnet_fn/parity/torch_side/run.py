"""The reference's side of the ladder: plain torch, as its documentation says to write it."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.trace import LATER, Arrays, Batch, Trace


def state(module: Any) -> Arrays:
    """All parameters and statistics of a torch module as arrays, without BatchNorm's batch counters."""
    return {
        name: value.detach().cpu().numpy().copy()
        for name, value in module.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def prepare_reference(module: Any, images: np.ndarray, seed: int) -> None:
    """Give every fresh BatchNorm random statistics, gamma and beta, in place; trained ones stay.

    Statistics as they come (mean 0, variance 1) and gamma 1, beta 0 would hide what a port gets wrong: that they
    are applied, decayed, or moved. They are drawn around the statistics of a batch, so that activations keep their
    size however deep the net is.

    Raises:
        ValueError: a Dropout layer with p > 0, whose random masks no two frameworks share.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    norms = []
    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise ValueError(f"reference: {name} is Dropout with p={layer.p}, its masks are random; set p to 0 in both")
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and layer.affine and layer.track_running_stats:
            with torch.no_grad():
                if not layer.bias.any() and layer.weight.unique().numel() == 1:
                    layer.weight.uniform_(0.5, 1.5, generator=generator)
                    layer.bias.normal_(0, 0.2, generator=generator)
            if not layer.running_mean.any() and (layer.running_var == 1).all():
                norms.append((layer, layer.momentum))
                layer.momentum = 1.0
    was_training = module.training
    module.train(True)
    with torch.no_grad():
        module(torch.from_numpy(images))
        for layer, momentum in norms:
            layer.momentum = momentum
            noise = torch.randn(layer.running_mean.shape, generator=generator)
            layer.running_mean += 0.2 * noise * layer.running_var.sqrt()
            layer.running_var *= torch.exp(0.5 * torch.randn(layer.running_var.shape, generator=generator))
            # A channel that is dead on this batch has variance 0; dividing by √eps would blow up any rounding.
            layer.running_var.clamp_(min=0.01 * float(layer.running_var.mean()) + 1e-3)
    module.train(was_training)


def decay_groups(module: Any, weight_decay: float) -> list[dict[str, Any]]:
    """torch.optim parameter groups: weight decay on all but norm layers' parameters and biases."""
    import torch

    norms = (torch.nn.modules.batchnorm._NormBase, torch.nn.GroupNorm, torch.nn.LayerNorm)
    decayed: list[Any] = []
    spared: list[Any] = []
    for layer in module.modules():
        for leaf, parameter in layer.named_parameters(recurse=False):
            if parameter.requires_grad:
                (spared if leaf == "bias" or isinstance(layer, norms) else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]


def run_torch(
    module: Any,
    batches: Sequence[Batch],
    recipe: Recipe,
    rates: Sequence[float],
    accumulate: int,
    names: dict[str, str],
    double: bool = False,
) -> Trace:
    """Train a copy of a torch module for a few updates and record everything that the ladder compares.

    Args:
        module: images [n, C, H, W] to logits; it is not changed.
        batches: one for each update.
        recipe: momentum, Nesterov, weight decay, clipping and label smoothing.
        rates: the learning rate of each update.
        accumulate: micro-batches of each update.
        names: the MindSpore net's parameter name → the module's.
        double: compute in float64.
    """
    import torch

    module = copy.deepcopy(module)
    module = module.double() if double else module.float()
    dtype = torch.float64 if double else torch.float32
    module.eval()
    with torch.no_grad():
        eval_logits = module(torch.from_numpy(batches[0][0]).to(dtype)).numpy()
    module.train()
    optimizer = torch.optim.SGD(
        decay_groups(module, recipe.weight_decay), lr=rates[0], momentum=recipe.momentum, nesterov=recipe.nesterov
    )
    trace = Trace(eval_logits, start=_renamed(state(module), names), rates=list(rates))
    parameters = dict(module.named_parameters())
    ours = {theirs: name for name, theirs in names.items()}
    for update, (images, labels) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rates[update]
        optimizer.zero_grad()
        total = 0.0
        pairs = zip(np.split(images, accumulate), np.split(labels, accumulate), strict=True)
        for micro_images, micro_labels in pairs:
            logits = module(torch.from_numpy(micro_images).to(dtype))
            target = torch.from_numpy(micro_labels.astype(np.int64))
            loss = torch.nn.functional.cross_entropy(logits, target, label_smoothing=recipe.label_smoothing)
            (loss / accumulate).backward()
            total += float(loss.detach()) / accumulate
        trace.losses.append(total)
        trace.train_logits.append(logits.detach().numpy().copy())
        unclipped = _gradients(parameters, ours) if update == 0 else {}
        limit = recipe.clip_norm or float("inf")
        trace.norms.append(float(torch.nn.utils.clip_grad_norm_(module.parameters(), limit)))
        optimizer.step()
        if update < LATER:
            trace.later = _renamed(state(module), names)
        if update == 0:
            trace.first = trace.later
            trace.gradients, trace.clipped = unclipped, _gradients(parameters, ours)
            trace.momentum = {
                ours[name]: optimizer.state[parameter]["momentum_buffer"].numpy().copy()
                for name, parameter in parameters.items()
                if optimizer.state[parameter].get("momentum_buffer") is not None
            }
    return trace


def _renamed(values: Arrays, names: dict[str, str]) -> Arrays:
    return {name: values[theirs] for name, theirs in names.items()}


def _gradients(parameters: dict[str, Any], ours: dict[str, str]) -> Arrays:
    return {
        ours[name]: np.zeros(tuple(parameter.shape)) if parameter.grad is None else parameter.grad.numpy().copy()
        for name, parameter in parameters.items()
        if parameter.requires_grad
    }
