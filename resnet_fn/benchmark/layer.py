"""One 3x3 convolution of stride 1, forward and both gradients: MindSpore's own against Winograd's filtering."""

import argparse
import re
import time
from typing import Any

import numpy as np

from resnet_fn.benchmark.interleave import Run, interleave, ratios, timed
from resnet_fn.benchmark.nets import THREADS
from resnet_fn.config.cli import UsageError
from resnet_fn.runtime import process
from resnet_fn.runtime.waiter import ResultWaiter

DESCRIPTION = """One 3x3 convolution of stride 1, forward and both gradients, in turns: MindSpore's own, and by
Winograd's filtering as the nets here compute it. ratio: MindSpore's seconds over Winograd's, round by round;
above 1 Winograd is faster."""
# Those of ResNet-18 on CIFAR, of ResNet-20 on the digits, of ResNet-50 at 224.
SHAPES = "32x64x32,32x128x16,32x256x8,32x512x4,64x16x16,8x64x56,8x128x28,8x256x14,8x512x7"
FLAGS = {
    "shapes": (SHAPES, "samples x channels (in and out) x height and width, with commas"),
    "rounds": (9, "turns of each"),
    **THREADS,
}
STEPS = 3  # of one turn


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure each shape, both ways in turns, in this process."""
    shapes = {text: _sizes(text) for text in options.shapes.replace(" ", "").split(",")}
    process.start("CPU", options.threads)
    seconds, ratio = {}, {}
    for name, sizes in shapes.items():
        runs = {kind: layer(*sizes, winograd=kind == "ours") for kind in ("ours", "mindspore")}
        interleave(runs, 1, STEPS)  # compiles, warms caches and the waiting times up
        seconds[name] = interleave(runs, options.rounds, STEPS)
        ratio[name] = ratios(seconds[name])["mindspore"]
    return {"threads": options.threads, "seconds": seconds, "ratio": ratio}


def _sizes(text: str) -> tuple[int, int, int]:
    """Samples, channels, height and width of "32x64x32"."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2}", text):
        raise UsageError(f"--shapes: {text!r} is no shape; give SAMPLESxCHANNELSxSIZE, as 32x64x32")
    samples, channels, size = map(int, text.split("x"))
    if channels < 16:
        raise UsageError(
            f"--shapes: {text!r} has {channels} channels, too few for Winograd's filtering; give 16 or more"
        )
    return samples, channels, size


def layer(samples: int, channels: int, size: int, winograd: bool) -> Run:
    """A compiled layer, float32 [N, C, S, S] to the same, with the gradients of its input and of its weight."""
    import mindspore
    from mindspore import Tensor, ops

    from resnet_fn.models.winograd import Conv2d, use_winograd

    net = Conv2d(channels, channels, 3, pad_mode="pad", padding=1, has_bias=False)
    use_winograd(net, winograd)
    rng = np.random.default_rng(0)
    x, given = (Tensor(rng.normal(size=(samples, channels, size, size)).astype(np.float32)) for _ in range(2))

    def forward(x: Tensor) -> Tensor:
        return (net(x) * given).sum()

    both_gradients = ops.value_and_grad(forward, 0, net.trainable_params())

    @mindspore.jit
    def compiled(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, (of_x, (of_weight,)) = both_gradients(x)
        return value, of_x[0, 0, 0, 0], of_weight[0, 0, 0, 0]  # fetching all would take as long as some layers

    waiter = ResultWaiter()
    return timed(lambda: waiter.fetch(compiled(x), time.perf_counter()))
