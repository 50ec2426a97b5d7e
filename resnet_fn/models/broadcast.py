"""Broadcasting of activations that a CPU can afford."""

import mindspore
from mindspore import Tensor, ops


@ops.constexpr
def _on_cpu() -> bool:
    return mindspore.get_context("device_target") == "CPU"


def spread(factor: Tensor, x: Tensor) -> Tensor:
    """What x is multiplied by or added to, in x's shape where MindSpore computes on a CPU, and as it is elsewhere.

    MindSpore's CPU kernels of x · factor, x + factor, x − factor keep two buffers of x's size, each kernel its own and
    for good, where the shapes differ: 1.2 GiB in an SE-ResNet-50 (docs/benchmarks.md).

    Args:
        factor: of a shape that broadcasts to x's.
        x: [N, C, H, W].
    """
    return ops.broadcast_to(factor, x.shape) if _on_cpu() else factor
