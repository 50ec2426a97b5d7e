"""What is done to a reference before it is recorded: random numbers where fresh ones would hide faults."""

import torch

from resnet_fn.parity.torch_side.call import call, tensors
from resnet_fn.parity.traces.batches import Tree


def prepare_reference(module: torch.nn.Module, inputs: Tree, seed: int) -> None:
    """Give every fresh BatchNorm random statistics, gamma and beta, and every weight of zeros random numbers, in place.

    Statistics as they come (mean 0, variance 1) and gamma 1, beta 0 would hide what a port gets wrong: that they
    are applied, decayed, or moved. They are drawn around the statistics of a batch, so that activations keep their
    size however deep the net is. A last layer or a branch whose weight begins at 0 would hide all that is before it:
    what it gets is small (1/√fan-in; 0.2 for a gate). What is trained already stays as it is, and so do biases.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = []
    for layer in module.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and layer.affine and layer.track_running_stats:
            with torch.no_grad():
                if not layer.bias.any() and layer.weight.unique().numel() == 1:
                    layer.weight.uniform_(0.5, 1.5, generator=generator)
                    layer.bias.normal_(0, 0.2, generator=generator)
            if layer.running_mean is None or layer.running_var is None:
                continue
            if not layer.running_mean.any() and (layer.running_var == 1).all():
                norms.append((layer, layer.momentum))
                layer.momentum = 1.0
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.requires_grad and not weight.any() and not name.endswith("bias"):
                width = weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.2
                weight.normal_(0, width, generator=generator)
    if not norms:
        return
    was_training = module.training
    module.train(True)
    with torch.no_grad():
        call(module, tensors(inputs, torch.float32))
        for layer, momentum in norms:
            layer.momentum = momentum
            mean, variance = layer.running_mean, layer.running_var
            assert mean is not None
            assert variance is not None
            mean += 0.2 * torch.randn(mean.shape, generator=generator) * variance.sqrt()
            variance *= torch.exp(0.5 * torch.randn(variance.shape, generator=generator))
            # A channel that is dead on this batch has variance 0; dividing by √eps would blow up any rounding.
            variance.clamp_(min=0.01 * float(variance.mean()) + 1e-3)
    module.train(was_training)
