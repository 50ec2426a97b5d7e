"""Golden bits: do two commits of this package compute the same, bit for bit, on this machine?

    git -C old checkout COMMIT && cd old && python /path/to/golden_bits.py > old.json
    cd new && python scripts/golden_bits.py --against old.json

Short trainings of small nets, one for each way to compute an update, by the command line alone, in
the checkout that it is started in. It prints JSON: for each training the SHA-256 of all weights and
of all training state at its end, the losses and gradient norms of its updates, its evaluation, and
how its convolutions were computed, which is a reason for other bits.
Exit code 1: a training failed, or differs. It takes some three minutes on two CPUs; both commits
need the same machine and the same MindSpore.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

TRAIN = ("-m", "resnet_fn.train")
TWO_WORKERS = ("-m", "resnet_fn.launch", "--workers", "2", "--")
SMALL = (
    "--model",
    "resnet8",
    "--image-size",
    "16",
    "--batch-size",
    "64",
    "--epochs",
    "1",
    "--threads",
    "1",
    "--no-progress",
    "--log-every",
    "1",
)
FILES = (
    "--dataset",
    "imagefolder",
    "--data-dir",
    "images",
    "--max-shift",
    "0",
    "--max-rotation",
    "0",
    "--max-zoom",
    "0",
)
FILES = (
    *FILES,
    "--batch-size",
    "16",
    "--epochs",
    "2",
    "--data-threads",
    "1",
    "--crop-scale",
    "0.3",
)
RECORDS = (*FILES, "--dataset", "mindrecord", "--data-dir", "records")
RESNET18 = (
    "--model",
    "resnet18",
    "--dataset",
    "synthetic",
    "--synthetic-samples",
    "64",
    "--image-size",
    "32",
)
OVERFLOWS = ("--precision", "fp16", "--loss-scale", "16777216", "--loss-scale-interval", "8")
ADAPTIVE = ("--no-nesterov", "--learning-rate", "0.005", "--optimizer")

# What is trained: its flags beside SMALL. Of two equal flags the last counts.
TRAININGS: dict[str, tuple[str, ...]] = {
    "two workers": (*TWO_WORKERS,),
    "two workers, sync-batchnorm": (*TWO_WORKERS, "--sync-batchnorm", "--ema", "0.9"),
    "two workers, micro-batches, overflows": (*TWO_WORKERS, "--accumulate", "2", *OVERFLOWS),
    "resnet18": (*TRAIN, *RESNET18, "--batch-size", "16"),
    "resume": (*TRAIN, "--epochs", "2", "--checkpoint-every", "11", "--keep-last", "9"),
    "digits": (*TRAIN, "--model", "resnet20"),
    "fp16, overflows": (*TRAIN, *OVERFLOWS),
    "micro-batches": (*TRAIN, "--accumulate", "4"),
    "micro-batches, overflows, ema": (*TRAIN, "--accumulate", "2", *OVERFLOWS, "--ema", "0.9"),
    "moving average": (*TRAIN, "--ema", "0.9", "--ema-every", "2", "--ema-start", "0.2"),
    "pynative": (*TRAIN, "--mode", "pynative", "--batch-size", "480"),
    "lars": (*TRAIN, "--optimizer", "lars", "--no-nesterov", "--learning-rate", "2"),
    "lamb": (*TRAIN, *ADAPTIVE, "lamb"),
    "adamw": (*TRAIN, *ADAPTIVE, "adamw", "--layer-decay", "0.9"),
    "adam, frozen stem": (*TRAIN, *ADAPTIVE, "adam", "--freeze", "stem"),
    "image files, policy": (
        *TRAIN,
        *FILES,
        "--policy",
        "trivialaugment",
        "--flip",
        "--color-jitter",
        "0.2",
    ),
    "image files, erasing, mixing": (
        *TRAIN,
        *FILES,
        "--erasing",
        "0.5",
        "--mixup",
        "0.2",
        "--cutmix",
        "1",
    ),
    "image files, repeats, bytes": (*TRAIN, *FILES, "--repeats", "2", "--flip", "--feed", "uint8"),
    "records, policy": (
        *TRAIN,
        *RECORDS,
        "--policy",
        "randaugment",
        "--policy-noise",
        "1",
        "--flip",
    ),
    "records, two workers": (*TWO_WORKERS, *RECORDS, "--policy", "autoaugment", "--flip"),
    "mixing": (
        *TRAIN,
        "--mixup",
        "0.4",
        "--cutmix",
        "1",
        "--label-threshold",
        "0.2",
        "--loss",
        "bce",
    ),
    "erasing": (*TRAIN, "--erasing", "0.5", "--flip", "--crop-padding", "2"),
    "repeats": (*TRAIN, "--repeats", "2", "--sampling", "balanced"),
    "drop path": (*TRAIN, "--drop-path", "0.3"),
    "dropout": (*TRAIN, "--dropout", "0.3", "--accumulate", "2"),
}


class Checkout:
    """Runs commands of the checkout in the current folder, in a temporary folder."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._environment = {**os.environ, "PYTHONPATH": os.getcwd()}

    def run(self, *words: str) -> None:
        """Run a command of Python's.

        Raises:
            RuntimeError: it failed, with the end of what it said.
        """
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=self.work, env=self._environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(
                f"exit code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
            )

    def make_images(self) -> None:
        """An image folder of four classes, and the same as records."""
        from PIL import Image

        numbers = np.random.default_rng(0)
        rows, columns = np.mgrid[0:40, 0:52] / 8
        for split, count in (("train", 16), ("val", 4)):
            for label in range(4):
                folder = self.work / "images" / split / f"class{label}"
                folder.mkdir(parents=True)
                for index in range(count):
                    waves = np.sin(rows * (1 + label) + index) + np.cos(
                        columns * (label - 2) - index
                    )
                    pixels = waves[..., None] * 60 + 128 + numbers.normal(0, 20, (40, 52, 3))
                    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                    image.save(folder / f"{index:02}.jpg", quality=90)
        self.run("-m", "resnet_fn.pack", "images", "records", "--shards", "1", "--no-progress")

    def train(self, name: str) -> dict[str, object]:
        """Train, and return the bits that came out; a failure is what it says."""
        run = self.work / name.replace(" ", "-").replace(",", "")
        words = list(TRAININGS[name])
        begin = words.index("--") + 1 if "--" in words else 2
        flags = [*SMALL, *words[begin:], "--out-dir", run.name]
        try:
            self.run(*words[:begin], *flags)
            result = bits_of(run)
            if name == "resume":
                for later in sorted((run / "checkpoints").iterdir())[1:]:
                    shutil.rmtree(later)
                self.run(*words[:begin], *flags)
                result["resumed is unbroken"] = bits_of(run)["state"] == result["state"]
            return result
        except (RuntimeError, OSError) as error:
            return {"failed": str(error)}


def bits_of(run: Path) -> dict[str, object]:
    """What a run's last checkpoint holds, and what its metrics say."""
    from safetensors.numpy import load_file

    last = max((run / "checkpoints").glob("step-*"))
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    result: dict[str, object] = {"update": int(last.name.removeprefix("step-"))}
    layout = json.loads((last / "state.json").read_text())["parallel_layout"]
    result["convolutions"] = layout.get("convolutions", "standard")  # older ones do not have it
    result["state"] = {
        path.stem: digest(load_file(path)) for path in sorted(last.glob("*.safetensors"))
    }
    result["losses"] = [
        [event["loss"], event["grad_norm"]] for event in events if event["event"] == "train"
    ]
    result["evaluations"] = [
        [event["loss"], event["top1"]]
        for event in events
        if event["event"] != "train" and "top1" in event
    ]
    return result


def digest(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes and bytes, in the order of the names."""
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def differences(new: dict, old: dict) -> list[str]:
    """A line for each training of which anything differs, or that one of the two does not have."""
    lines = []
    for name in sorted(new.keys() | old.keys()):
        if name not in new or name not in old:
            lines.append(f"{name}: only in the {'new' if name in new else 'old'} one")
            continue
        # older commits have one way to compute convolutions
        mine, theirs = ({"convolutions": "standard", **one[name]} for one in (new, old))
        parts = [part for part in {**mine, **theirs} if mine.get(part) != theirs.get(part)]
        reason = ""
        if "convolutions" in parts:
            reason = f" (convolutions: {mine['convolutions']}, before {theirs['convolutions']})"
        if parts:
            lines.append(f"{name}: {', '.join(parts)} differ{reason}")
    return lines


def main() -> int:
    """Compute the bits, print them or what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against", type=Path, metavar="OLD.JSON", help="compare with it; print what differs"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=TRAININGS, help="one of the trainings"
    )
    parsed = parser.parse_args()
    names = parsed.only or list(TRAININGS)
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, ThreadPoolExecutor(2) as pool:
        checkout = Checkout(Path(folder))
        checkout.make_images()
        results = dict(zip(names, pool.map(checkout.train, names), strict=True))
    failed = [
        f"{name}: {result['failed']}" for name, result in results.items() if "failed" in result
    ]
    failed += [
        f"{name}: not what it was unbroken"
        for name, one in results.items()
        if one.get("resumed is unbroken") is False
    ]
    if parsed.against:
        old = json.loads(parsed.against.read_text())
        failed += differences(results, {name: old[name] for name in names if name in old})
        print("\n".join(failed) or f"all {len(names)} trainings: the same bits")
    else:
        print(
            "{\n"
            + ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in results.items())
            + "\n}"
        )
        print("\n".join(failed), file=sys.stderr, end="\n" * bool(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
