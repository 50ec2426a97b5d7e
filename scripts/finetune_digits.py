"""Fine-tuning on a few pictures against training from nothing, on real images that the package
carries.

A net learns the digits 0 to 4. Then, from 20 pictures a class of the digits 5 to 9, written as a
folder of PNG files, four nets learn those: its last layer alone, its later stages, all of it at
rates that fall towards the stem, and a fresh net. All see the same pictures in the same number of
updates; accuracy is of the 180 pictures of 5 to 9 by other writers, after the last update. The
table goes to stderr.

    python scripts/finetune_digits.py
    python scripts/finetune_digits.py --write digits    # only the pictures, to try it by hand
"""

import argparse
import os
import statistics
import sys
import tempfile
from importlib import resources
from pathlib import Path

import numpy as np

import resnet_fn

SMALL = {
    "image_size": 16,
    "eval_resize": 16,
    "crop_scale": 0.6,
    "flip": False,
    "head_lr_factor": 1.0,
}
FRESH = {"model": "resnet20", "learning_rate": 0.1}
# What each way changes of the recipe finetune. Its learning rate is the best of RATES with a seed
# of its own.
WAYS = {
    "the last layer alone (`--train-only fc`)": {"train_only": "fc"},
    "stem, layer1 and layer2 frozen (`--freeze`)": {"freeze": "stem,layer1,layer2"},
    "everything, `--layer-decay 0.9`": {"layer_decay": 0.9},
    "from scratch": {"weights": "", "model": "resnet20"},
}
RATES = (0.05, 0.1, 0.2)
WRITERS = 1437  # the first so many pictures are by other writers than the rest


def digits():
    """All 1,797 pictures as 8-bit grey values, uint8 [N, 8, 8], and their labels [N]."""
    with (
        resources.files("resnet_fn.data").joinpath("digits.npz").open("rb") as file,
        np.load(file) as arrays,
    ):
        return (arrays["images"] * 15.9375).astype(np.uint8), arrays["labels"]


def write_folder(root, pictures, labels, parts):
    """Write root/train/CLASS/N.png and root/val/CLASS/N.png of the picture numbers in `parts`."""
    from PIL import Image

    for part, chosen in parts.items():
        for number in chosen:
            place = root / part / str(labels[number])
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pictures[number]).save(place / f"{number:04d}.png")


def train(folder, out, **fields):
    """Train, and return the last evaluation's top-1, percent."""
    recipe = resnet_fn.recipes.recipe("finetune").changed(**{**SMALL, **fields})
    result = resnet_fn.train(
        recipe, resnet_fn.RunOptions(data_dir=str(folder), out_dir=str(out), progress=False)
    )
    return 100 * result.last["top1"]


def few_pictures(labels, seed, count=20):
    """So many training pictures of each of the classes 5 to 9, drawn from the seed."""
    rng = np.random.default_rng(seed)
    by_class = [np.flatnonzero(labels[:WRITERS] == label) for label in range(5, 10)]
    return np.concatenate([rng.permutation(places)[:count] for places in by_class])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--write",
        metavar="FOLDER",
        help="only write the pictures there: known/, new/, and half/, scikit-learn's own split",
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--epochs", type=int, default=8, help="epochs of fine-tuning, each 5 updates of 20 pictures"
    )
    options = parser.parse_args()
    pictures, labels = digits()
    numbers = np.arange(len(labels))
    known = [part[labels[part] < 5] for part in (numbers[:WRITERS], numbers[WRITERS:])]
    known = dict(zip(("train", "val"), known, strict=True))
    if options.write:
        write_folder(Path(options.write, "known"), pictures, labels, known)
        write_folder(Path(options.write), pictures, labels, {"new": few_pictures(labels, 0)})
        half = len(labels) // 2
        write_folder(
            Path(options.write, "half"),
            pictures,
            labels,
            {"train": numbers[:half], "val": numbers[half:]},
        )
        return
    long = {**FRESH, "epochs": 20 if options.epochs > 1 else 1}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        write_folder(Path("known"), pictures, labels, known)
        train("known", "net", **long)

        def learn(name, seed, rate):
            if not Path(f"new-{seed}").exists():
                new = {
                    "train": few_pictures(labels, seed),
                    "val": numbers[WRITERS:][labels[WRITERS:] > 4],
                }
                write_folder(Path(f"new-{seed}"), pictures, labels, new)
            out = f"run-{seed}-{rate}-{list(WAYS).index(name)}"
            fields = {"weights": "net", "batch_size": 20, "epochs": options.epochs, **WAYS[name]}
            return train(f"new-{seed}", out, seed=seed, learning_rate=rate, **fields)

        print(
            "\n| | learning rate | top-1, mean ± sd [%] | of the seeds |\n|---|---|---|---|",
            file=sys.stderr,
        )
        for name in WAYS:
            rate = max(RATES, key=lambda rate: learn(name, options.seeds, rate))
            print_row(name, rate, [learn(name, seed, rate) for seed in range(options.seeds)])


def print_row(name, rate, accuracies):
    """A row of the table, on stderr; the trainings print to stdout."""
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    values = ", ".join(f"{value:.1f}" for value in accuracies)
    print(
        f"| {name} | {rate} | {statistics.mean(accuracies):.1f} ± {spread:.1f} | {values} |",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    main()
