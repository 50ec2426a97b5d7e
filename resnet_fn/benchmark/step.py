"""The training step against PyTorch's, `Model.train`'s and MindCV's, and where its time goes."""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from resnet_fn.benchmark.interleave import Side, interleave, ratios
from resnet_fn.benchmark.nets import add_net_arguments, add_threads, specification

DESCRIPTION = "The training step against others, side by side in turns, and where its time goes."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `benchmark step` and `benchmark startup`."""
    add_net_arguments(parser)
    parser.add_argument(
        "--against",
        type=lambda text: tuple(text.split(",")),
        default=("torch",),
        metavar="A,B",
        help="torch, torch_compile, model_train, mindcv; default torch",
    )
    add_threads(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the flags say."""
    return measure(options.net, options.against, options.rounds, options.threads)


def measure(net: str, against: Sequence[str], rounds: int, threads: int) -> dict[str, Any]:
    """Measure one net.

    Args:
        net: a key of nets.NETS.
        against: kinds of sides.KINDS to compare with.
        rounds: turns of each side.
        threads: CPU threads of each side, 0 for each one's own default.

    Returns:
        JSON types: images per second by side, our ratio to each, peak memory, seconds to the end of the first step,
        share of time by kind of operation, FLOP/s achieved and the GEMM peak.
    """
    spec = specification(net, threads)
    with contextlib.ExitStack() as stack:
        sides = []
        for kind in ("ours", *against):
            side = Side(kind, spec)
            stack.callback(side.close)
            sides.append(side)
        interleave(sides, 1, spec["steps"])  # the first turn warms caches and the waiting times up
        medians = interleave(sides, rounds, spec["steps"])
        facts = {side.kind: side.facts() | {"ready_seconds": side.ready_seconds} for side in sides}
    own = statistics.median(medians["ours"])
    flops = training_flops(spec)
    return {
        "net": net,
        "spec": spec,
        "images_per_second": {kind: spec["batch_size"] / statistics.median(s) for kind, s in medians.items()},
        "step_seconds": medians,
        "ratio": {kind: value["median"] for kind, value in ratios(medians).items()},
        "spread": ratios(medians),
        "facts": facts,
        "operations": operations(spec),
        "flops_per_second": flops / own,
        "gemm_peak_flops_per_second": gemm_peak(threads),
    }


def operations(spec: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of one step by kind of operation, from oneDNN's own log; the rest is what is left of the step.

    The log's figures are wall time of each primitive; operations run one after the other.
    """
    code = (
        "import sys, json; from resnet_fn.benchmark.sides import ours\n"
        "run = ours(json.loads(sys.argv[1])); run(4); print('BEGIN', flush=True); seconds = run(3)\n"
        "print('END', sum(seconds), flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(spec)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
    )
    lines = done.stdout.split("BEGIN", 1)[1].splitlines()
    times: dict[str, float] = defaultdict(float)
    for line in lines:
        fields = line.split(",")
        if "exec" in fields and re.fullmatch(r"[\d.]+", fields[-1]):
            at = fields.index("exec")
            kind, direction = fields[at + 2], fields[at + 4]
            times[f"{kind} {direction}".removesuffix(" undef")] += float(fields[-1]) / 3
    total = float(next(line for line in lines if line.startswith("END")).split()[1]) * 1000 / 3
    times["all else"] = total - sum(times.values())
    return dict(times)


def training_flops(spec: dict[str, Any]) -> float:
    """FLOPs of one training step: 2 per multiply-add of convolutions and Dense layers, times 3 (forward, and the
    gradients of inputs and of weights).
    """
    from mindspore import Tensor, nn

    from resnet_fn.benchmark.sides import batch
    from resnet_fn.models import create_model

    net = create_model(spec["model"], num_classes=spec["classes"], stem=spec["stem"])
    counted = []

    def count(cell: nn.Cell, inputs: Any, output: Tensor) -> None:
        # Each output element is a dot product as long as one output channel's weights.
        counted.append(output.size * cell.weight[0].size)

    for _, cell in net.cells_and_names():
        if isinstance(cell, nn.Conv2d | nn.Dense):
            cell.register_forward_hook(count)
    net.set_train(False)
    images, _ = batch({**spec, "batch_size": 1})
    net(Tensor(images))
    return 3.0 * 2.0 * sum(counted) * spec["batch_size"]


def gemm_peak(threads: int) -> float:
    """FLOP/s of MindSpore's own float32 matrix product, 1,536 x 1,536, the best of 12."""
    code = (
        "import sys, time, numpy as np; from resnet_fn import runtime; runtime.start('CPU', int(sys.argv[1]))\n"
        "from mindspore import Tensor, ops\n"
        "a = Tensor(np.ones((1536, 1536), np.float32)); best = 9e9\n"
        "for _ in range(12):\n"
        "    began = time.perf_counter(); ops.matmul(a, a).asnumpy(); best = min(best, time.perf_counter() - began)\n"
        "print(2 * 1536**3 / best)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(threads)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"{result['net']}: images/s (median), our ratio [min, max], peak memory, start to first step"]
    for kind, speed in result["images_per_second"].items():
        spread, facts = result["spread"].get(kind), result["facts"][kind]
        ratio = f"{spread['median']:.2f} [{spread['min']:.2f}, {spread['max']:.2f}]" if spread else ""
        lines.append(
            f"  {kind:14}{speed:10.1f}  {ratio:22}{facts['peak_bytes'] / 2**20:8.0f} MiB{facts['ready_seconds']:8.1f} s"
        )
    total = sum(result["operations"].values())
    for kind, milliseconds in sorted(result["operations"].items(), key=lambda item: -item[1]):
        lines.append(f"    {kind:36}{milliseconds:10.1f} ms{milliseconds / total:8.1%}")
    lines.append(
        f"  {result['flops_per_second'] / 1e9:.0f} GFLOP/s in convolutions and Dense over the whole step; "
        f"matrix product's peak here {result['gemm_peak_flops_per_second'] / 1e9:.0f} GFLOP/s"
    )
    return "\n".join(lines)
