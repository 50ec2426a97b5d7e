"""How fast images come: files, records and arrays, stage by stage, against PyTorch's loader where it is installed."""

import argparse
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config.cli import UsageError
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.fake_photos import write_folder
from resnet_fn.data.feed import Feed, make_feed
from resnet_fn.data.mix import Mixing, draw_mixing, mix
from resnet_fn.data.sources.load import data_threads, load_dataset
from resnet_fn.data.sources.packing import Packer
from resnet_fn.data.sources.scan import check_files
from resnet_fn.data.sources.synthetic import make_synthetic

DESCRIPTION = "Images per second of each data pipeline, against PyTorch's DataLoader where torch is installed."
GOALS = {"imagefolder": 1.7, "mindrecord": 2.5, "cifar": 5.0}  # times the DataLoader's images/s, on 2 cores
_CIFAR_SAMPLES = 10240


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this part."""
    parser.add_argument("--images", type=int, default=1024, metavar="N", help="photographs to make; default 1024")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="measurements of each, in turn; default 3")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="default 64")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="of both loaders; default 0: all CPUs")
    parser.add_argument("--epochs", type=int, default=20, metavar="N", help="of the memory test; default 20")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, in a temporary folder.

    Returns:
        JSON types: "threads"; "rates", images/s by pipeline (median of the rounds); "stages", ms per image in one
        thread; "memory_mb" after the second and the last epoch; "tasks", threads of this process before and after.
        With torch also "ratios" to the DataLoader's (median of the rounds' own ratios), and "workers", the number
        that serves it best.
    """
    for name, least in (("images", 64), ("rounds", 1), ("batch_size", 1), ("epochs", 3)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name.replace('_', '-')}: {getattr(options, name)} is too small; give {least} or more")
    threads = data_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="resnet_fn-benchmark-") as temporary:
        root = Path(temporary)
        write_folder(root / "images", options.images)
        feeds = _feeds(root, options.batch_size, threads)
        rates: dict[str, list[float]] = {name: [] for name in feeds}
        has_torch = importlib.util.find_spec("torch") is not None
        reference: dict[str, list[float]] = {"photographs": [], "cifar": []} if has_torch else {}
        workers = {kind: _best_workers(kind, root / "images", options.batch_size, threads) for kind in reference}
        for feed in feeds.values():
            _epoch_rate(feed, 0)  # the first use of the library is no pipeline's own cost
        for number in range(options.rounds):
            for name, feed in feeds.items():
                rates[name].append(_epoch_rate(feed, number + 1))
            for kind, found in reference.items():
                found.append(_reference(kind, root / "images", options.batch_size, workers[kind]))
        result: dict[str, Any] = {
            "threads": threads,
            "rates": {name: statistics.median(values) for name, values in {**rates, **_named(reference)}.items()},
            "stages": _stages(root),
            **_leaks(feeds["imagefolder"], options.epochs),
        }
        if reference:
            result["workers"] = workers
            result["ratios"] = {
                name: statistics.median(
                    ours / theirs
                    for ours, theirs in zip(
                        rates[name], reference["cifar" if name == "cifar" else "photographs"], strict=True
                    )
                )
                for name in GOALS
            }
    return result


def table(result: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"data pipelines, {result['threads']} threads, images/s"]
    for name, rate in result["rates"].items():
        ratio = result.get("ratios", {}).get(name)
        against = f"   {ratio:.2f} x PyTorch's loader (goal {GOALS[name]})" if ratio else ""
        lines.append(f"  {name:26s}{rate:10.0f}{against}")
    if "workers" in result:
        lines.append(f"DataLoader workers, the best number: {json.dumps(result['workers'])[1:-1]}")
    lines.append("stages, one thread, ms per image")
    lines += [f"  {name:26s}{value:10.3f}" for name, value in result["stages"].items()]
    memory, tasks = result["memory_mb"], result["tasks"]
    lines.append(f"memory after epoch 2 and the last: {memory[0]:.0f} and {memory[1]:.0f} MB")
    lines.append(f"threads of this process before and after: {tasks[0]} and {tasks[1]}")
    if "ratios" not in result:
        lines.append("no comparison: PyTorch is not installed; pip install 'resnet_fn[torch]'")
    return "\n".join(lines)


def _named(reference: dict[str, list[float]]) -> dict[str, list[float]]:
    return {f"PyTorch, {kind}": values for kind, values in reference.items()}


def _recipe(dataset: str, batch_size: int) -> Recipe:
    return Recipe(dataset=dataset, image_size=224, batch_size=batch_size, flip=True)


def _feeds(root: Path, batch_size: int, threads: int) -> dict[str, Feed]:
    feeds: dict[str, Feed] = {}
    for name, folder in (("imagefolder", "images"), ("mindrecord", "records")):
        recipe = _recipe(name, batch_size)
        dataset = load_dataset(recipe, str(root / folder), threads)
        dataset = check_files(dataset, "error")
        if name == "imagefolder":
            Packer(dataset, root / "records", shards=2, short_side=256, threads=threads).write()
        feeds[name] = make_feed(dataset, recipe)
    small = Recipe(dataset="synthetic", image_size=32, batch_size=128, crop_padding=4, flip=True)
    pictures = make_synthetic(_CIFAR_SAMPLES, 10, 32)
    feeds["cifar"] = make_feed(pictures, small)
    feeds["cifar, trivialaugment"] = make_feed(pictures, dataclasses.replace(small, policy="trivialaugment"))
    return feeds


def _epoch_rate(feed: Feed, epoch: int) -> float:
    first = epoch * feed.updates_per_epoch
    began, images = time.perf_counter(), 0
    for update in range(first, first + feed.updates_per_epoch):
        images += len(feed.batch(update)[0])
    return images / (time.perf_counter() - began)


def _reference(kind: str, folder: Path, batch_size: int, workers: int) -> float:
    source, batch = (str(folder), batch_size) if kind == "photographs" else (str(_CIFAR_SAMPLES), 128)
    command = [sys.executable, "-m", "resnet_fn.benchmark.reference_loader", kind, source, str(batch), str(workers)]
    output = subprocess.run([*command, "1"], capture_output=True, text=True, check=True, timeout=1800).stdout
    return float(json.loads(output)[0])


def _best_workers(kind: str, folder: Path, batch_size: int, most: int) -> int:
    """The number of DataLoader workers in 1, 2, 4 … most that gives the most images/s."""
    counts = sorted({*(1 << power for power in range(most.bit_length()) if 1 << power <= most), most})
    return max(counts, key=lambda count: _reference(kind, folder, batch_size, count))


def _milliseconds(work: Callable[[], object], images: int) -> float:
    work()
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) / images * 1000


def _stages(root: Path) -> dict[str, float]:
    from mindspore.dataset import vision

    from resnet_fn.data.preprocess import eval_pixels

    files = sorted((root / "images").rglob("*.JPEG"))[:48]
    data = [np.fromfile(file, np.uint8) for file in files]
    decode, crop = vision.Decode(), vision.RandomCropDecodeResize(224)
    flip, layout = vision.RandomHorizontalFlip(), vision.HWC2CHW()
    normalise = vision.Normalize([123.7, 116.3, 103.5], [58.4, 57.1, 57.4])
    crops = [crop(item) for item in data]
    batch = np.stack([layout(normalise(item)) for item in crops])
    labels = np.arange(len(batch), dtype=np.int32)
    box = draw_mixing(np.random.default_rng(0), 0.0, 1.0, 1.0, 224, 224)
    works: dict[str, Callable[[], object]] = {
        "read": lambda: [np.fromfile(file, np.uint8) for file in files],
        "decode": lambda: [decode(item) for item in data],
        "decode and crop to 224": lambda: [crop(item) for item in data],
        "flip": lambda: [flip(item) for item in crops],
        "normalise, to CHW": lambda: [layout(normalise(item)) for item in crops],
        "mixup": lambda: mix(batch, labels, 1000, Mixing(0.7)),
        "CutMix": lambda: mix(batch, labels, 1000, box),
        "evaluation (PIL's pixels)": lambda: [eval_pixels(item.tobytes(), 256, 224) for item in data],
    }
    return {name: _milliseconds(work, len(data)) for name, work in works.items()}


def _leaks(feed: Feed, epochs: int) -> dict[str, list[float]]:
    tasks = len(os.listdir("/proc/self/task"))
    memory = []
    for epoch in range(epochs):
        _epoch_rate(feed, 100 + epoch)
        if epoch in (1, epochs - 1):
            memory.append(_resident_mb())
    feed.close()
    time.sleep(0.2)  # a thread that has been joined may still be listed for a moment
    return {"memory_mb": memory, "tasks": [tasks, len(os.listdir("/proc/self/task"))]}


def _resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
