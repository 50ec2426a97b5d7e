"""Evaluation against the bare forward pass: what reading, scoring and collecting cost beside the net."""

import argparse
import statistics
import time
from typing import Any

import numpy as np

from resnet_fn.benchmark.interleave import interleave, timed
from resnet_fn.benchmark.nets import NET, THREADS, build, input_spec, specification
from resnet_fn.data.dataset import DataSet, Split, eval_batches
from resnet_fn.runtime import process
from resnet_fn.runtime.waiter import ResultWaiter

DESCRIPTION = """Seconds of an evaluation of a test set in memory and of the compiled forward pass alone, in
turns. ratio: evaluation's images/s over the forward pass's."""
FLAGS = {**NET, "samples": (1000, "test images"), **THREADS}  # 1000 is no multiple of a block: the tail counts


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Evaluate and merely compute the same images in turns, in this process."""
    spec, samples = specification(options.net, options.threads), options.samples
    process.start("CPU", options.threads)
    import mindspore
    from mindspore import Tensor

    from resnet_fn.evaluation.scoring import BLOCK, score
    from resnet_fn.update.eval_step import make_eval_step

    rng, size = np.random.default_rng(0), spec["image_size"]
    pixels = rng.integers(0, 256, (samples, size, size, 3), dtype=np.uint8)
    split = Split(pixels, rng.integers(0, spec["classes"], samples).astype(np.int32))
    dataset = DataSet(split, split, input_spec(spec))
    blocks = [images for images, _, _ in eval_batches(split, dataset.input, BLOCK)]
    net = build(spec)
    eval_step, waiter = make_eval_step(net), ResultWaiter()

    @mindspore.jit
    def compiled(images: Tensor) -> Tensor:
        return net(images)

    def forward() -> None:
        net.set_train(False)
        for block in blocks:
            waiter.fetch([compiled(Tensor(block))], time.perf_counter())

    runs = {"evaluation": timed(lambda: score(eval_step, dataset, 256)), "forward": timed(forward)}
    interleave(runs, 1)  # compile, warm up
    seconds = interleave(runs, options.rounds)
    ratio = statistics.median(seconds["forward"]) / statistics.median(seconds["evaluation"])
    return {"net": options.net, "samples": samples, "seconds": seconds, "ratio": {"forward": ratio}}
