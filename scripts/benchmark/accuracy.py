"""Time to an accuracy: whole processes on the digits, ours against the same net, data and recipe in
PyTorch.

PyTorch's process is this module: `python accuracy.py SEED LOG`.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.data.dataset import DataSet, eval_batches
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.recipes import recipe as named_recipe
from resnet_fn.runtime.extras import import_extra
from resnet_fn.update.schedule import make_schedule
from sides import as_their_users, torch_step

DESCRIPTION = """Seconds of the whole process to an accuracy on the digits, by seed (None: never in the
recipe's epochs), and of PyTorch's with the same data and recipe. ratio: the others' median over ours."""
FLAGS = {"rounds": (3, "runs of each side"), "target": (0.98, "top-1")}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Train each side to the target, in turns, with another seed each round."""
    import_extra("torch", "time-to-accuracy")
    seconds: dict[str, list[float | None]] = {"ours": [], "torch": []}
    for seed in range(options.rounds):
        for kind in list(seconds)[:: -1 if seed % 2 else 1]:
            seconds[kind].append(_train(kind, seed, options.target))
    middle = {
        kind: statistics.median([math.inf if v is None else v for v in s])
        for kind, s in seconds.items()
    }
    if math.isinf(max(middle.values())):
        raise ValueError(
            f"most of the runs never reach {options.target}: {seconds}; give another --target"
        )
    ratio = {kind: value / middle["ours"] for kind, value in middle.items() if kind != "ours"}
    return {"target": options.target, "seconds": seconds, "ratio": ratio}


def _train(kind: str, seed: int, target: float) -> float | None:
    """Start one side's process, and end it when an evaluation reaches the target; the seconds, or
    None.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        log = Path(folder, "metrics.jsonl")
        words = [__file__, str(seed), str(log)]
        if kind != "torch":
            words = [
                "-m",
                "resnet_fn.train",
                "--seed",
                str(seed),
                "--out-dir",
                folder,
                "--no-progress",
            ]
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            while process.poll() is None:
                if reached(log, target):
                    return time.perf_counter() - began
                time.sleep(0.02)
            if process.returncode:
                errors.seek(0)
                raise ValueError(f"{kind}: failed ({errors.read().strip().splitlines()[-1]})")
            return time.perf_counter() - began if reached(log, target) else None
        finally:
            process.kill()
            process.wait()


def reached(log: Path, target: float) -> bool:
    """Whether a log, which may be in the middle of a line, has an evaluation of at least `target`
    top-1.
    """
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    evaluations = (
        json.loads(line) for line in lines if '"event": "eval"' in line and line.endswith("\n")
    )
    return any(event["top1"] >= target for event in evaluations)


def torch_digits(seed: int, log: str) -> None:
    """The digits recipe in PyTorch, with our data and schedule; appends each epoch's evaluation to
    `log` as JSON.
    """
    as_their_users("torch")
    torch = import_extra("torch", "time-to-accuracy")
    from resnet_fn.parity.reference.nets import reference_net

    recipe = named_recipe("digits").changed(seed=seed)
    digits = open_dataset(recipe)
    feed = make_feed(digits, recipe)
    schedule = make_schedule(recipe, feed.updates_per_epoch)
    torch.manual_seed(seed)
    net = reference_net(recipe.model, num_classes=10, in_channels=1)
    step = torch_step(net, recipe, net)
    for update in range(recipe.epochs * feed.updates_per_epoch):
        images, labels = feed.batch(update)
        net.train()
        step(
            torch.from_numpy(np.ascontiguousarray(images)),
            torch.from_numpy(labels),
            schedule(update),
        )
        if (update + 1) % feed.updates_per_epoch == 0:
            with open(log, "a", encoding="utf-8") as file:
                event = {"event": "eval", "update": update + 1, "top1": torch_top1(net, digits)}
                file.write(json.dumps(event) + "\n")


def torch_top1(net: Any, digits: DataSet) -> float:
    """Top-1 of a torch Module on the validation digits."""
    torch = import_extra("torch", "time-to-accuracy")
    net.eval()
    images, labels, _ = next(eval_batches(digits.test, digits.input, len(digits.test)))
    with torch.no_grad():
        return float((net(torch.from_numpy(images)).argmax(1).numpy() == labels).mean())


if __name__ == "__main__":
    torch_digits(int(sys.argv[1]), sys.argv[2])
