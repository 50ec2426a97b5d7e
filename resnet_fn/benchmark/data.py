"""Images/s of the data pipelines (files, records, arrays) against PyTorch's DataLoader, if it is installed."""

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from resnet_fn.benchmark.interleave import Run, Side, interleave, ratios
from resnet_fn.config.cli import UsageError
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import Feed, make_feed
from resnet_fn.data.sources.bundled import write_folder
from resnet_fn.data.sources.load import data_threads, open_dataset
from resnet_fn.data.sources.packing import Packer

DESCRIPTION = """rates: images/s of each data pipeline, and of PyTorch's DataLoader if torch is installed
(workers: the number of its workers that is fastest; ratios: ours over its)."""
FLAGS = {
    "images": (1024, "photographs to make"),
    "rounds": (3, "measurements of each, in turn"),
    "batch-size": (64, "images of a batch"),
    "threads": (0, "of both loaders; 0: all CPUs"),
}
CIFAR = Recipe(dataset="synthetic", synthetic_samples=10240, image_size=32, batch_size=128, crop_padding=4, flip=True)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, in a temporary folder."""
    if options.images < 64:
        raise UsageError(f"--images: {options.images} is too small; give 64 or more")
    threads = data_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="resnet_fn-benchmark-") as temporary, contextlib.ExitStack() as stack:
        images = Path(temporary, "images")
        write_folder(images, options.images)
        feeds = _feeds(Path(temporary), options.batch_size, threads)
        runs: dict[str, Run] = {name: _epochs(feed) for name, feed in feeds.items()}
        interleave(runs, 1)  # warm up: the first use of the library is slower
        workers = 0
        if importlib.util.find_spec("torch") is not None:
            spec = {"folder": str(images), "batch_size": options.batch_size}
            workers = _best_workers(spec, threads)
            runs["torch"] = stack.enter_context(Side("loader", {**spec, "workers": workers})).run
        seconds = interleave(runs, options.rounds)
        rates = {name: 1 / statistics.median(values) for name, values in seconds.items()}
        result: dict[str, Any] = {"threads": threads, "rates": rates}
    if not workers:
        print("no comparison: PyTorch is not installed; pip install torch")
    else:
        result["workers"] = workers
        result["ratios"] = {
            name: ratios({"ours": seconds[name], "torch": seconds["torch"]})["torch"]["median"]
            for name in ("imagefolder", "mindrecord")
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
