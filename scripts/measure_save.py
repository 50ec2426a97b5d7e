"""Time a checkpoint of ResNet-50 with momentum against a plain write + fsync of as many bytes, in turns
of changing order.

    python scripts/measure_save.py [FOLDER] [ROUNDS]

FOLDER is made, and removed at the end. Prints medians, also of each round's ratio, and how long a training loop stands
still for one (the copy).
"""

import os
import shutil
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from mindspore import Parameter, ops

from resnet_fn import create_model
from resnet_fn.checkpoint.folder import save_checkpoint
from resnet_fn.checkpoint.writer import CheckpointWriter


def timed(act, *arguments):
    os.sync()  # what was written or removed before is not this one's affair
    began = time.perf_counter()
    act(*arguments)
    return time.perf_counter() - began


def write_plainly(path: Path, data: np.ndarray) -> None:
    with open(path, "xb") as file:
        file.write(data.data)
        file.flush()
        os.fsync(file.fileno())


def main(folder: Path, rounds: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    net = create_model("resnet50", num_classes=1000)
    weights = tuple(net.get_parameters())
    momentum = [Parameter(ops.ones_like(p), name=f"momentum.{p.name}") for p in net.trainable_params()]
    state = {"update": 1, "epoch": 0, "best": None, "last": None}
    step, plain = folder / "step-00000001", folder / "plain"
    save_checkpoint(step, weights, momentum, state)
    size = sum(path.stat().st_size for path in step.iterdir())
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    turns = [("save", save_checkpoint, step, weights, momentum, state), ("plain", write_plainly, plain, data)]
    seconds: dict[str, list[float]] = {"save": [], "plain": []}
    stalls = []
    with CheckpointWriter(weights, momentum) as writer:
        for number in range(rounds):
            for path in folder.glob("step-*"):
                shutil.rmtree(path)
            plain.unlink(missing_ok=True)
            for name, *call in turns if number % 2 else turns[::-1]:  # neither always has the other's leavings
                seconds[name].append(timed(*call))
            writer.save(folder / "step-00000002", {**state, "update": number}, lambda: None)
            writer.wait()
            stalls += [event["stall_seconds"] for event in writer.poll()]
    shutil.rmtree(folder)
    ratios = sorted(a / b for a, b in zip(seconds["save"], seconds["plain"], strict=True))
    print(
        f"{size / 1e6:.0f} MB, {rounds} rounds, medians: save {statistics.median(seconds['save']):.3f} s, write+fsync "
        f"{statistics.median(seconds['plain']):.3f} s, ratio of a round {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} … {ratios[-1]:.2f})"
    )
    print(
        f"stall: first {stalls[0]:.3f} s, median of the others {statistics.median(stalls[1:]):.3f} s, "
        f"worst {max(stalls):.3f} s"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "measure_save"), int(sys.argv[2]) if len(sys.argv) > 2 else 9)
