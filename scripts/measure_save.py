"""Time a checkpoint of ResNet-50 with momentum against a plain write + fsync of as many bytes, in turns.

    python scripts/measure_save.py [FOLDER] [ROUNDS]

Prints medians and their ratio, and how long a training loop stands still for one (the copy).
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
from resnet_fn.checkpoint import save_checkpoint
from resnet_fn.checkpoint_writer import CheckpointWriter


def timed(act, *arguments):
    began = time.perf_counter()
    act(*arguments)
    return time.perf_counter() - began


def write_plainly(path: Path, data: np.ndarray) -> None:
    with open(path, "wb") as file:
        file.write(data.data)
        file.flush()
        os.fsync(file.fileno())


def main(folder: Path, rounds: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    net = create_model("resnet50", num_classes=1000)
    weights = tuple(net.get_parameters())
    momentum = [Parameter(ops.ones_like(p), name=f"momentum.{p.name}") for p in net.trainable_params()]
    state = {"update": 1, "epoch": 0, "best": None, "last": None}
    size = sum(p.asnumpy().nbytes for p in (*weights, *momentum))
    plain_bytes = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    saves, plains, stalls = [], [], []
    with CheckpointWriter(weights, momentum) as writer:
        for number in range(rounds):
            plains.append(timed(write_plainly, folder / "plain", plain_bytes))
            saves.append(timed(save_checkpoint, folder / "step-00000001", weights, momentum, state))
            writer.save(folder / "step-00000002", {**state, "update": number}, lambda: None)
            writer.wait()
            stalls += [event["stall_seconds"] for event in writer.poll()]
            for path in (folder / "step-00000001", folder / "step-00000002"):
                shutil.rmtree(path)
            (folder / "plain").unlink()
    save, plain = statistics.median(saves), statistics.median(plains)
    print(
        f"{size / 1e6:.0f} MB, {rounds} rounds: save {save:.3f} s, write+fsync {plain:.3f} s, ratio {save / plain:.2f}"
    )
    ratios = sorted(a / b for a, b in zip(saves, plains, strict=True))
    print(f"ratio of each round: {ratios[0]:.2f} … {statistics.median(ratios):.2f} … {ratios[-1]:.2f}")
    print(
        f"stall: first {stalls[0]:.3f} s, median of the others {statistics.median(stalls[1:]):.3f} s, "
        f"worst {max(stalls):.3f} s"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "measure_save"), int(sys.argv[2]) if len(sys.argv) > 2 else 9)
