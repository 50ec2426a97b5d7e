"""Evaluation against the bare forward pass: what reading, scoring and collecting cost beside the net."""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from resnet_fn.benchmark.nets import add_net_arguments, add_threads, specification
from resnet_fn.runtime.waiter import ResultWaiter

DESCRIPTION = "Evaluation of a test set in memory against the compiled forward pass alone."
SAMPLES = 1000  # no multiple of a block: the tail counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `benchmark evaluation`."""
    add_net_arguments(parser)
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help=f"default {SAMPLES}")
    add_threads(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the flags say."""
    return measure(options.net, options.samples, options.rounds, options.threads)


def measure(net: str, samples: int, rounds: int, threads: int) -> dict[str, Any]:
    """Evaluate and merely compute the same images in turns, in this process.

    Args:
        net: a key of nets.NETS.
        samples: test images.
        rounds: turns of each.
        threads: CPU threads, 0 for all.

    Returns:
        JSON types: "seconds" of the whole test set by round ("evaluation", "forward"), and "ratio": evaluation's
        images/s over those of the forward pass.
    """
    spec = specification(net, threads)
    evaluate, forward = _sides(spec, samples)
    seconds: dict[str, list[float]] = {"evaluation": [], "forward": []}
    for function in (evaluate, forward):
        function()  # compile, warm up
    for _ in range(rounds):
        for name, function in (("evaluation", evaluate), ("forward", forward)):
            began = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - began)
    ratio = statistics.median(seconds["forward"]) / statistics.median(seconds["evaluation"])
    return {"net": net, "samples": samples, "seconds": seconds, "ratio": {"forward": ratio}}


def _sides(spec: dict[str, Any], samples: int) -> tuple[Callable[[], Any], Callable[[], None]]:
    from resnet_fn.runtime import process

    process.start("CPU", spec["threads"])
    import mindspore
    from mindspore import Tensor

    from resnet_fn.data.dataset import DataSet, Split
    from resnet_fn.data.input_spec import InputSpec
    from resnet_fn.data.normalise import prepare
    from resnet_fn.evaluation.scoring import BLOCK, score
    from resnet_fn.models import create_model
    from resnet_fn.update.eval_step import make_eval_step

    rng, size, classes = np.random.default_rng(0), spec["image_size"], spec["classes"]
    pixels = rng.integers(0, 256, (samples, size, size, 3), dtype=np.uint8)
    split = Split(pixels, rng.integers(0, classes, samples).astype(np.int32))
    names = tuple(str(number) for number in range(classes))
    dataset = DataSet(
        split,
        split,
        InputSpec(
            name="random",
            classes=names,
            channels=3,
            image_size=size,
            full_scale=255.0,
            mean=(0.5, 0.5, 0.5),
            std=(0.25, 0.25, 0.25),
        ),
    )
    net = create_model(spec["model"], num_classes=classes, stem=spec["stem"])
    eval_step = make_eval_step(net)

    @mindspore.jit
    def compiled(images: Tensor) -> Tensor:
        return net(images)

    waiter = ResultWaiter()
    images = prepare(pixels, size, dataset.input)
    blocks = [images[start : start + BLOCK] for start in range(0, samples, BLOCK)]
    blocks[-1] = np.concatenate([blocks[-1], images[: BLOCK - len(blocks[-1])]])

    def forward() -> None:
        net.set_train(False)
        for block in blocks:
            waiter.fetch([compiled(Tensor(block))], time.perf_counter())

    return lambda: score(eval_step, dataset, 256), forward


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"{result['net']}: {result['samples']} test images, seconds [min, max]"]
    for name, seconds in result["seconds"].items():
        lines.append(f"  {name:12}{statistics.median(seconds):8.2f} [{min(seconds):.2f}, {max(seconds):.2f}]")
    lines.append(f"  evaluation's images/s over the forward pass's: {result['ratio']['forward']:.2f}")
    return "\n".join(lines)
