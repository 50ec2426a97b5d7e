"""Images/s of the data pipelines (files, records, arrays) against PyTorch's DataLoader, if it is
installed.
"""

import argparse
import contextlib
import importlib.util
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

from interleave import Run, Side, interleave, ratios, timed
from photographs import write_folder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import data_threads, open_dataset
from resnet_fn.data.sources.packing import pack

DESCRIPTION = """rates: images/s of each data pipeline, and of PyTorch's DataLoader if torch is installed
(workers: the number of its workers that is fastest; ratios: ours over its)."""
FLAGS = {
    "images": (1024, "photographs to make"),
    "rounds": (3, "measurements of each, in turn"),
    "batch-size": (64, "images of a batch"),
    "threads": (0, "of both loaders; 0: all CPUs"),
}
CIFAR = Recipe(
    dataset="synthetic",
    synthetic_samples=10240,
    image_size=32,
    batch_size=128,
    crop_padding=4,
    flip=True,
)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, in a temporary folder."""
    if options.images < 64:
        raise ValueError(f"--images: {options.images} is too small; give 64 or more")
    threads = data_threads(options.threads)
    with (
        tempfile.TemporaryDirectory(prefix="resnet_fn-benchmark-") as temporary,
        contextlib.ExitStack() as stack,
    ):
        images = Path(temporary, "images")
        write_folder(images, options.images)
        runs = _runs(Path(temporary), options.batch_size, threads)
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


def _runs(root: Path, batch_size: int, threads: int) -> dict[str, Run]:
    runs = {}
    for name, folder in (("imagefolder", "images"), ("mindrecord", "records")):
        recipe = Recipe(dataset=name, image_size=224, batch_size=batch_size, flip=True)
        dataset = open_dataset(recipe, str(root / folder), options=RunOptions(data_threads=threads))
        if name == "imagefolder":
            pack(dataset, root / "records", shards=2, short_side=256)
        runs[name] = _epochs(dataset, recipe)
    pictures = open_dataset(CIFAR)
    runs["cifar"] = _epochs(pictures, CIFAR)
    runs["cifar, trivialaugment"] = _epochs(pictures, CIFAR.changed(policy="trivialaugment"))
    return runs


def _epochs(dataset: DataSet, recipe: Recipe) -> Run:
    """A function that reads epoch after epoch and returns the seconds per image of each."""
    feed, updates = make_feed(dataset, recipe), itertools.count()
    read = timed(lambda: [len(feed.batch(next(updates))[0]) for _ in range(feed.updates_per_epoch)])
    return lambda epochs: [
        seconds / (feed.updates_per_epoch * recipe.batch_size) for seconds in read(epochs)
    ]


def _best_workers(spec: dict[str, Any], limit: int) -> int:
    """The number of DataLoader workers in 1, 2, 4 … limit that reads an epoch fastest."""

    def seconds(workers: int) -> float:
        with Side("loader", {**spec, "workers": workers}) as side:
            return side.run(1)[0]

    return min(sorted({1 << power for power in range(limit.bit_length())} | {limit}), key=seconds)
