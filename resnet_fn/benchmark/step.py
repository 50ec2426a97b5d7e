"""The training step against PyTorch's, `Model.train`'s and MindCV's, and where its time goes."""

import argparse
import contextlib
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from resnet_fn.benchmark.interleave import Side, interleave, ratios, timed
from resnet_fn.benchmark.nets import NET, THREADS, build, check_name, specification
from resnet_fn.benchmark.sides import batch
from resnet_fn.runtime import process

DESCRIPTION = """The training step against others, side by side in turns. ratio, spread: our images/s over the
others', round by round. peak_mib: the most main memory that each process has held, imports and compiling
included; memory: ours over the others'. operations: where a step's milliseconds go, by oneDNN's log. FLOP/s:
of convolutions and Dense over the whole step, and of MindSpore's own matrix product (gemm_peak)."""
OTHERS = ("torch", "torch_compile", "model_train", "mindcv")
FLAGS = {**NET, "against": ("torch", f"others, with commas: {', '.join(OTHERS)}"), **THREADS}


def sides_of(options: argparse.Namespace) -> tuple[str, ...]:
    """This package, then those that `--against` names."""
    others = options.against.split(",")
    for name in others:
        check_name("against", name, OTHERS)
    return "ours", *others


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one net."""
    spec = specification(options.net, options.threads)
    kinds = sides_of(options)
    with contextlib.ExitStack() as stack:
        sides = {kind: stack.enter_context(Side(kind, spec)) for kind in kinds}
        runs = {kind: side.run for kind, side in sides.items()}
        interleave(runs, 1, spec["steps"])  # the first turn warms caches and the waiting times up
        medians = interleave(runs, options.rounds, spec["steps"])
    facts = {kind: side.facts for kind, side in sides.items()}
    found = ratios(medians)
    peaks = {kind: side.facts["peak_bytes"] / 2**20 for kind, side in sides.items()}
    process.start("CPU", options.threads)
    return {
        "net": options.net,
        "spec": spec,
        "images_per_second": {kind: spec["batch_size"] / statistics.median(s) for kind, s in medians.items()},
        "step_seconds": medians,
        "ratio": {kind: value["median"] for kind, value in found.items()},
        "spread": found,
        "peak_mib": peaks,
        "memory": {kind: peaks["ours"] / peak for kind, peak in peaks.items() if kind != "ours"},
        "facts": facts,
        "operations": operations(spec),
        "flops_per_second": training_flops(spec) / statistics.median(medians["ours"]),
        "gemm_peak_flops_per_second": matrix_product_peak(),
    }


def operations(spec: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of one step by kind of operation, from oneDNN's own log; the rest is what is left of the step."""
    with Side("ours", spec, ONEDNN_VERBOSE="1") as side:
        side.run(4)
        side.log.clear()
        seconds = side.run(3)
        times = {kind: total / len(seconds) for kind, total in logged_milliseconds(side.log).items()}
    return {**times, "all else": statistics.mean(seconds) * 1000 - sum(times.values())}


def logged_milliseconds(log: Sequence[str]) -> dict[str, float]:
    """Wall time by kind and direction of each primitive in oneDNN's log; one runs after the other."""
    times: dict[str, float] = defaultdict(float)
    for line in log:
        fields = line.strip().split(",")
        if "exec" in fields and re.fullmatch(r"[\d.]+", fields[-1]):
            at = fields.index("exec")
            times[f"{fields[at + 2]} {fields[at + 4]}".removesuffix(" undef")] += float(fields[-1])
    return dict(times)


def training_flops(spec: dict[str, Any]) -> float:
    """FLOPs of one training step: 2 per multiply-add of convolutions and Dense layers, times 3 (forward, and the
    gradients of inputs and of weights).
    """
    from mindspore import Tensor, nn

    net = build(spec)
    counted = []

    def count(cell: nn.Cell, inputs: Any, output: Tensor) -> None:
        # Each output element is a dot product as long as one output channel's weights.
        counted.append(output.size * cell.weight[0].size)

    for _, cell in net.cells_and_names():
        if isinstance(cell, nn.Conv2d | nn.Dense):
            cell.register_forward_hook(count)
    net.set_train(False)
    net(Tensor(batch({**spec, "batch_size": 1})[0]))
    return 3.0 * 2.0 * sum(counted) * spec["batch_size"]


def matrix_product_peak() -> float:
    """FLOP/s of MindSpore's own float32 matrix product, 1,536 x 1,536, the best of 12."""
    from mindspore import Tensor, ops

    ones = Tensor(np.ones((1536, 1536), np.float32))
    return 2 * 1536**3 / min(timed(lambda: ops.matmul(ones, ones).asnumpy())(12))
