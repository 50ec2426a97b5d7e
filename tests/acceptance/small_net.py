"""The net of the trace beside this file: all that ResNet-50 is made of, small; here and in PyTorch.

    python tests/acceptance/small_net.py

records the trace again, which names this file; it needs PyTorch, 2.13 for the same bits.
"""

import shutil
from pathlib import Path
from typing import Any

from mindspore import nn

from resnet_fn.models.convolution import use_products
from resnet_fn.models.init import initialise
from resnet_fn.models.resnet import Bottleneck, Design, ResNet

_DEPTHS = (1, 1)
_PLANES = (4, 8)
_CLASSES = 10


def build() -> nn.Cell:
    """float32 [N, 3, H, W] to logits [N, 10]: 7x7 stem, max-pool, two bottlenecks, the second of
    stride 2.
    """
    net = ResNet(Design(Bottleneck, _DEPTHS, _PLANES), _CLASSES)
    initialise(net, "torchvision", False)
    use_products(net)
    return net


def reference() -> Any:
    """The same as a torch Module, with weights from torch's seed 0."""
    import torch

    from resnet_fn.parity.reference import nets as torch_nets

    torch.manual_seed(0)
    plan = torch_nets.Plan(torch_nets.BOTTLENECK, _DEPTHS, _PLANES)
    return torch_nets.ResNet(plan, _CLASSES, 3, plan.stem, "batch", 16)


if __name__ == "__main__":
    from resnet_fn.config import cli
    from resnet_fn.parity.__main__ import main

    trace = Path(__file__).with_name("trace")
    shutil.rmtree(trace, ignore_errors=True)
    words = [
        "record",
        "--reference",
        f"{__file__}:reference",
        "--image-size",
        "16",
        "--out",
        str(trace),
    ]
    cli.run("parity", main, words)
