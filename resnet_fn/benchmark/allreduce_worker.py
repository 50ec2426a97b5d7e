"""One worker of the all-reduce benchmark; msrun starts it: NET ROUNDS RESULT_FILE."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor, ops

from resnet_fn.benchmark.nets import specification
from resnet_fn.benchmark.sides import CLIP, LEARNING_RATE, MOMENTUM, SMOOTHING, WEIGHT_DECAY, batch
from resnet_fn.models import create_model
from resnet_fn.runtime import process
from resnet_fn.runtime.waiter import ResultWaiter
from resnet_fn.runtime.workers import Workers, join
from resnet_fn.update.gradients import Reduce, make_all_reduce
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import momentum_sgd, weight_decay_groups
from resnet_fn.update.step import make_train_step

BUCKETS = (0.0, 1.0, 4.0, 16.0, 64.0)  # MiB; 0: one call per tensor


def build_step(spec: dict, workers: int) -> Callable[[], None]:
    """A training step as a function without arguments; with `workers` above 1 it all-reduces."""
    net = create_model(spec["model"], num_classes=spec["classes"], stem=spec["stem"])
    optimizer = momentum_sgd(weight_decay_groups(net, WEIGHT_DECAY), MOMENTUM, nesterov=True)
    train_step = make_train_step(
        net,
        make_loss(smoothing=SMOOTHING),
        optimizer,
        clip_norm=CLIP,
        workers=workers,
        all_reduce=make_all_reduce(workers),
    )
    images, labels = batch(spec)
    waiter = ResultWaiter(alone=workers == 1)

    def step() -> None:
        result = train_step(Tensor(images), Tensor(labels), Tensor(LEARNING_RATE, mindspore.float32))
        waiter.fetch(result, time.perf_counter())

    return step


def bucketed(all_reduce: Reduce, shapes: list[tuple[int, ...]], mebibytes: float) -> Callable[[], None]:
    """The all-reduce of float32 tensors of these shapes, joined into buckets, as a function without arguments."""
    groups: list[list[int]] = []
    filled = float("inf")
    for index, shape in enumerate(shapes):
        size = int(np.prod(shape)) * 4 / 2**20
        if mebibytes == 0 or filled + size > mebibytes:
            groups.append([])
            filled = 0.0
        groups[-1].append(index)
        filled += size

    @mindspore.jit
    def compiled(tensors: tuple[Tensor, ...]) -> Tensor:
        joined = []
        for group in groups:
            if len(group) == 1:
                joined.append(tensors[group[0]])
            else:
                joined.append(ops.concat([tensors[index].reshape(-1) for index in group]))
        total = Tensor(0.0, mindspore.float32)
        for reduced in all_reduce(joined):
            total = total + reduced.reshape(-1)[0]
        return total

    tensors = tuple(Tensor(np.ones(shape, np.float32)) for shape in shapes)
    return lambda: compiled(tensors).asnumpy()


def clock(function: Callable[[], None], times: int) -> list[float]:
    """Seconds of each call."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return seconds


def measure(net: str, rounds: int, workers: Workers) -> dict:
    """All forms in turns, on all ranks at once."""
    spec = specification(net, threads=1)
    alone, shared = build_step(spec, 1), build_step(spec, workers.size)
    shapes = [p.shape for p in create_model(spec["model"], stem=spec["stem"]).trainable_params()]
    all_reduce = make_all_reduce(workers.size)
    assert all_reduce is not None
    forms = {"alone": alone, "shared": shared}
    forms |= {f"bucket {size:g}": bucketed(all_reduce, shapes, size) for size in BUCKETS}
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for function in forms.values():
        clock(function, 3)  # compile, warm up
    for _ in range(rounds):
        for name, function in forms.items():
            seconds[name] += clock(function, spec["steps"])
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "net": net,
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
    mindspore.set_seed(1)  # the same net on every rank
    ranks = join()
    figures = measure(sys.argv[1], int(sys.argv[2]), ranks)
    if ranks.is_main:
        Path(sys.argv[3]).write_text(json.dumps(figures))
