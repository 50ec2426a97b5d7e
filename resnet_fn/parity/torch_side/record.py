"""What every layer of a torch module takes and gives, in execution order."""

from typing import Any

import numpy as np

from resnet_fn.parity.layer import Layer, recording_hook
from resnet_fn.parity.torch_side.call import call, tensors
from resnet_fn.parity.torch_side.settings import settings_of


def record_torch(module: Any, images: np.ndarray, train: bool) -> list[Layer]:
    """Run a torch module on images [N, C, H, W] and record every layer; statistics and modes are left as found."""
    import torch

    layers: list[Layer] = []
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    was_training = module.training
    handles = []
    for name, layer in module.named_modules():
        if not name or isinstance(layer, torch.nn.Sequential | torch.nn.ModuleList | torch.nn.ModuleDict):
            continue
        owned = (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False))
        shapes = tuple((leaf, tuple(value.shape)) for leaf, value in owned if leaf != "num_batches_tracked")
        is_leaf = not any(True for _ in layer.children())
        hook = recording_hook(layers.append, name, shapes, is_leaf, _array, settings_of)
        handles.append(layer.register_forward_hook(hook))
    try:
        module.train(train)
        with torch.no_grad():
            call(module, tensors(images, dtype))
    finally:
        for handle in handles:
            handle.remove()
        module.load_state_dict(kept)
        module.train(was_training)
    return layers


def _array(value: Any) -> np.ndarray:
    return np.array(value.detach().cpu().double().numpy())
