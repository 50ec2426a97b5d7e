"""What every layer of a torch module takes and gives, in execution order, and which of its arrays are what."""

import copy
from collections import defaultdict
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.torch_side.call import call, tensors
from resnet_fn.parity.torch_side.settings import settings_of
from resnet_fn.parity.traces.layer import Layer, is_whole, recorded_layers, recording_hook

_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


def record_torch(module: torch.nn.Module, inputs: Any, train: bool) -> list[Layer]:
    """Run a torch module and record every layer; statistics and modes are left as found.

    Args:
        module: what to run.
        inputs: an array, a tuple of arrays (its arguments), or a dict of them (by their names). Floats go in as the
            module's own type, integers and truth values as they are.
        train: whether in training mode.
    """
    layers: list[Layer] = []
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    kept = copy.deepcopy(module.state_dict())  # with the layers' versions, which some ask for
    was_training = module.training
    handles = []
    for name, layer in recorded_layers(module, lambda layer: isinstance(layer, _CONTAINERS)):
        whole = is_whole(layer)
        owned = (*layer.named_parameters(recurse=whole), *layer.named_buffers(recurse=whole))
        shapes = tuple((leaf, tuple(value.shape)) for leaf, value in owned if leaf != "num_batches_tracked")
        is_leaf = whole or not any(True for _ in layer.children())
        hook = recording_hook(layers.append, name, shapes, is_leaf, _array, settings_of)
        handles.append(layer.register_forward_hook(hook, with_kwargs=True))
    try:
        module.train(train)
        with torch.no_grad():
            call(module, tensors(inputs, dtype))
    finally:
        for handle in handles:
            handle.remove()
        module.load_state_dict(kept)
        module.train(was_training)
    return layers


def tied(module: torch.nn.Module) -> list[tuple[str, ...]]:
    """The names of each parameter that has more than one: what is shared between layers."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [tuple(group) for group in names.values() if len(group) > 1]


def trainable(module: torch.nn.Module) -> list[str]:
    """The names of the parameters that an update changes, shared ones under each of their names."""
    return [name for name, value in module.named_parameters(remove_duplicate=False) if value.requires_grad]


def constants(module: torch.nn.Module) -> list[str]:
    """The names of the buffers that are no statistics: position tables, index tables, masks, counters.

    A port may make them where it needs them, so they need no counterpart.
    """
    buffers = (name for name, _ in module.named_buffers(remove_duplicate=False))
    return [name for name in buffers if name.rpartition(".")[2] not in ("running_mean", "running_var")]


def _array(value: torch.Tensor) -> np.ndarray:
    return np.array(value.detach().cpu().double().numpy())
