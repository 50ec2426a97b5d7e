"""How fast images come: files, records and arrays, stage by stage, against PyTorch's loader where it is installed."""

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.benchmark.interleave import Run, Side, interleave, ratios, timed
from resnet_fn.config.cli import UsageError
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import Feed, make_feed
from resnet_fn.data.mix import Mixing, draw_mixing, mix
from resnet_fn.data.preprocess import eval_pixels
from resnet_fn.data.sources.bundled import write_folder
from resnet_fn.data.sources.load import data_threads, open_dataset
from resnet_fn.data.sources.packing import Packer
from resnet_fn.telemetry.telemetry import memory_mb

DESCRIPTION = """rates: images/s of each data pipeline, and of PyTorch's DataLoader where torch is installed
(workers: with the number that serves it best; ratios: ours over its). stages: ms per image
in one thread. memory_mb: after epoch 2 and the last; tasks: threads of this process before and after."""
FLAGS = {
    "images": (1024, "photographs to make"),
    "rounds": (3, "measurements of each, in turn"),
    "batch-size": (64, "images of a batch"),
    "threads": (0, "of both loaders; 0: all CPUs"),
    "epochs": (20, "of the memory test"),
}
# Ours: the DataLoader's.
PHOTOGRAPHS = ("imagefolder", "mindrecord")
COMPARED = {**dict.fromkeys(PHOTOGRAPHS, "photographs"), "cifar": "cifar"}
CIFAR = Recipe(dataset="synthetic", synthetic_samples=10240, image_size=32, batch_size=128, crop_padding=4, flip=True)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, in a temporary folder."""
    for name, at_least in (("images", 64), ("rounds", 1), ("batch_size", 1), ("epochs", 3)):
        if (value := getattr(options, name)) < at_least:
            raise UsageError(f"--{name.replace('_', '-')}: {value} is too small; give {at_least} or more")
    threads = data_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="resnet_fn-benchmark-") as temporary, contextlib.ExitStack() as stack:
        images = Path(temporary, "images")
        write_folder(images, options.images)
        feeds = _feeds(Path(temporary), options.batch_size, threads)
        runs: dict[str, Run] = {name: _epochs(feed) for name, feed in feeds.items()}
        interleave(runs, 1)  # the first use of the library is no pipeline's own cost
        workers = {}
        if importlib.util.find_spec("torch") is not None:
            photographs = {"source": str(images), "batch_size": options.batch_size}
            cifar = {"source": CIFAR.synthetic_samples, "batch_size": CIFAR.batch_size}
            for kind, spec in (("photographs", photographs), ("cifar", cifar)):
                workers[kind] = _best_workers(spec, threads)
                runs[f"PyTorch, {kind}"] = stack.enter_context(Side("loader", {**spec, "workers": workers[kind]})).run
        seconds = interleave(runs, options.rounds)
        result: dict[str, Any] = {
            "threads": threads,
            "rates": {name: 1 / statistics.median(values) for name, values in seconds.items()},
            "stages": _stages(images),
            **_leaks(feeds["imagefolder"], runs["imagefolder"], options.epochs),
        }
    if not workers:
        print("no comparison: PyTorch is not installed; pip install 'resnet_fn[torch]'")
    else:
        result["workers"] = workers
        result["ratios"] = {
            name: ratios({"ours": seconds[name], "torch": seconds[f"PyTorch, {kind}"]})["torch"]["median"]
            for name, kind in COMPARED.items()
        }
    return result


def _feeds(root: Path, batch_size: int, threads: int) -> dict[str, Feed]:
    feeds: dict[str, Feed] = {}
    for name, folder in (("imagefolder", "images"), ("mindrecord", "records")):
        recipe = Recipe(dataset=name, image_size=224, batch_size=batch_size, flip=True)
        dataset = open_dataset(recipe, str(root / folder), threads=threads)
        if name == "imagefolder":
            Packer(dataset, root / "records", shards=2, short_side=256, threads=threads).write()
        feeds[name] = make_feed(dataset, recipe)
    pictures = open_dataset(CIFAR)
    feeds["cifar"] = make_feed(pictures, CIFAR)
    feeds["cifar, trivialaugment"] = make_feed(pictures, dataclasses.replace(CIFAR, policy="trivialaugment"))
    return feeds


def _epochs(feed: Feed) -> Run:
    """Read epoch after epoch; the seconds per image of each."""
    starts = itertools.count(0, feed.updates_per_epoch)

    def run(epochs: int) -> list[float]:
        seconds = []
        for first in itertools.islice(starts, epochs):
            began = time.perf_counter()
            images = sum(len(feed.batch(update)[0]) for update in range(first, first + feed.updates_per_epoch))
            seconds.append((time.perf_counter() - began) / images)
        return seconds

    return run


def _best_workers(spec: dict[str, Any], limit: int) -> int:
    """The number of DataLoader workers in 1, 2, 4 … limit that reads an epoch fastest."""

    def seconds(workers: int) -> float:
        with Side("loader", {**spec, "workers": workers}) as side:
            return side.run(1)[0]

    return min(sorted({1 << power for power in range(limit.bit_length())} | {limit}), key=seconds)


def _stages(folder: Path) -> dict[str, float]:
    """Milliseconds per image of each stage, in this thread."""
    from mindspore.dataset import vision

    files = sorted(folder.rglob("*.JPEG"))[:48]
    data = [np.fromfile(file, np.uint8) for file in files]
    decode, crop = vision.Decode(), vision.RandomCropDecodeResize(224)
    flip, layout = vision.RandomHorizontalFlip(), vision.HWC2CHW()
    normalise = vision.Normalize([123.7, 116.3, 103.5], [58.4, 57.1, 57.4])
    crops = [crop(item) for item in data]
    batch = np.stack([layout(normalise(item)) for item in crops])
    labels = np.arange(len(batch), dtype=np.int32)
    box = draw_mixing(np.random.default_rng(0), 0.0, 1.0, 1.0, 224, 224)
    stages: dict[str, Run] = {
        "read": timed(lambda: [np.fromfile(file, np.uint8) for file in files]),
        "decode": timed(lambda: [decode(item) for item in data]),
        "decode and crop to 224": timed(lambda: [crop(item) for item in data]),
        "flip": timed(lambda: [flip(item) for item in crops]),
        "normalise, to CHW": timed(lambda: [layout(normalise(item)) for item in crops]),
        "mixup": timed(lambda: mix(batch, labels, 1000, Mixing(0.7))),
        "CutMix": timed(lambda: mix(batch, labels, 1000, box)),
        "evaluation (PIL's pixels)": timed(lambda: [eval_pixels(item.tobytes(), 256, 224) for item in data]),
    }
    return {name: stage(2)[1] / len(data) * 1000 for name, stage in stages.items()}


def _leaks(feed: Feed, read: Run, epochs: int) -> dict[str, list[float]]:
    tasks = len(os.listdir("/proc/self/task"))
    memory = []
    for count in (2, epochs - 2):
        read(count)
        memory.append(memory_mb())
    feed.close()
    time.sleep(0.2)  # a thread that has been joined may still be listed for a moment
    return {"memory_mb": memory, "tasks": [tasks, len(os.listdir("/proc/self/task"))]}
