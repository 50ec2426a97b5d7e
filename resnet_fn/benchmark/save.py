"""What a checkpoint costs: a save of ResNet-50 with momentum against a plain write of as many bytes, in turns."""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resnet_fn.benchmark.interleave import Run, interleave, ratios, timed
from resnet_fn.benchmark.nets import build, recipe, specification

DESCRIPTION = """Seconds of a save of ResNet-50 with momentum, of a plain write and sync of as many bytes, and
for which training stands still while a save is written beside it (stall), in turns. ratio: a save's over a
plain write's."""
FLAGS = {"rounds": (9, "turns of each"), "folder": (".", "where to write")}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, each turn in a temporary folder of its own below `options.folder`."""
    from resnet_fn.checkpoint.folder import save_checkpoint
    from resnet_fn.checkpoint.writer import CheckpointWriter
    from resnet_fn.runtime.disk import write_synced
    from resnet_fn.update.optimizer import make_optimizer

    spec = specification("resnet50-224", threads=0)
    net = build(spec)
    weights, training = tuple(net.get_parameters()), make_optimizer(recipe(spec), net).state
    state = {"update": 1, "epoch": 0, "best": None, "last": None}
    data = os.urandom(sum(parameter.nbytes for parameter in (*weights, *training)))
    with CheckpointWriter(weights, training) as writer:

        def in_new_folder(write: Callable[[Path], object]) -> Run:
            def run(_: int) -> list[float]:
                with tempfile.TemporaryDirectory(prefix="resnet_fn-benchmark-", dir=options.folder) as folder:
                    os.sync()  # what was written or removed before is not this one's affair
                    seconds = timed(lambda: write(Path(folder, "step-00000001")))(1)
                    writer.wait()
                return seconds

            return run

        runs = {
            "save": in_new_folder(lambda path: save_checkpoint(path, weights, training, state)),
            "plain": in_new_folder(lambda path: write_synced(path, data)),
            "stall": in_new_folder(lambda path: writer.save(path, state, lambda: None)),
        }
        interleave(runs, 1)  # the first stall is longer: nothing has been copied there yet
        seconds = interleave(runs, options.rounds)
    ratio = ratios({"plain": seconds["plain"], "save": seconds["save"]}, ours="plain")["save"]
    return {"bytes": len(data), "seconds": seconds, "ratio": ratio}
