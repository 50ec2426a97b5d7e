"""One worker of the all-reduce benchmark: NET ROUNDS RESULT_FILE."""

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, ops

from resnet_fn.benchmark.interleave import interleave, timed
from resnet_fn.benchmark.nets import build, specification
from resnet_fn.benchmark.sides import our_step
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers, join
from resnet_fn.update.gradients import Reduce, make_all_reduce

BUCKETS = (0.0, 1.0, 4.0, 16.0, 64.0)  # MiB; 0: one call per tensor


def fill_buckets(sizes: Sequence[int], limit: float) -> list[list[int]]:
    """Neighbours together while they fit: the places of tensors of these sizes, in bytes, in buckets of `limit` bytes.

    A tensor above the limit is alone in its bucket, and with a limit of 0 every one is.
    """
    buckets: list[list[int]] = []
    filled = float("inf")
    for index, size in enumerate(sizes):
        if filled + size > limit:
            buckets.append([])
            filled = 0.0
        buckets[-1].append(index)
        filled += size
    return buckets


def bucketed(all_reduce: Reduce, shapes: Sequence[tuple[int, ...]], mebibytes: float) -> Callable[[], None]:
    """The all-reduce of float32 tensors of these shapes, joined into buckets, as a function without arguments."""
    tensors = tuple(Tensor(np.ones(shape, np.float32)) for shape in shapes)
    buckets = fill_buckets([tensor.nbytes for tensor in tensors], mebibytes * 2**20)

    @mindspore.jit
    def compiled(tensors: tuple[Tensor, ...]) -> Tensor:
        joined = []
        for bucket in buckets:
            flat = [tensors[index].reshape(-1) for index in bucket]
            joined.append(flat[0] if len(flat) == 1 else ops.concat(flat))
        total = Tensor(0.0, mindspore.float32)
        for reduced in all_reduce(joined):
            total = total + reduced[0]
        return total

    return lambda: compiled(tensors).asnumpy()


def measure(net_name: str, rounds: int, workers: Workers) -> dict[str, Any]:
    """All forms in turns, on all ranks at once.

    Returns:
        JSON types: median seconds of the step alone (nothing exchanged) and of the step with the all-reduce, the
        scaling efficiency (their ratio), the all-reduce's share of the step, and the seconds of the gradients'
        all-reduce alone by bucket size in MiB (0: one call per tensor).
    """
    spec = specification(net_name, threads=1)
    net = build(spec)
    all_reduce = make_all_reduce(workers.size)
    assert all_reduce is not None
    shapes = [parameter.shape for parameter in net.trainable_params()]
    forms = {"alone": our_step(net, spec), "shared": our_step(build(spec), spec, workers.size)}
    forms |= {f"bucket {size:g}": bucketed(all_reduce, shapes, size) for size in BUCKETS}
    runs = {name: timed(form) for name, form in forms.items()}
    interleave(runs, 1, steps=3)  # compile, warm up
    seconds = interleave(runs, rounds, spec["steps"])
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "net": net_name,
        "workers": workers.size,
        "samples": spec["batch_size"],
        "step_seconds": middle["alone"],
        "shared_step_seconds": middle["shared"],
        "efficiency": middle["alone"] / middle["shared"],
        "share": 1 - middle["alone"] / middle["shared"],
        "bucket_seconds": {f"{size:g}": middle[f"bucket {size:g}"] for size in BUCKETS},
    }


if __name__ == "__main__":
    process.start("CPU", threads=1)
    ranks = join()
    found = measure(sys.argv[1], int(sys.argv[2]), ranks)
    if ranks.is_main:
        Path(sys.argv[3]).write_text(json.dumps(found))
