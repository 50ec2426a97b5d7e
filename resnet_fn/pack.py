"""The command `pack` writes an image folder as MindRecord shards."""

from collections.abc import Sequence
from pathlib import Path

from resnet_fn.config import cli
from resnet_fn.config.output_paths import folder_to_write
from resnet_fn.config.printing import say, shell_words
from resnet_fn.config.setting_names import flag_name

_EXAMPLES = """examples:
  python -m resnet_fn.pack /data/imagenet /data/imagenet-records --shards 64
  python -m resnet_fn.pack /data/imagenet /data/256 --shards 64 --short-side 256
  python -m resnet_fn.train --recipe imagenet_resnet50_v1 --dataset mindrecord --data-dir /data/256
  python -m resnet_fn.pack pictures packed --validation-share 0.2

If packing is stopped, the same command continues it.
"""


# Long: flags, and every step of the command in the order of the output.
def main(arguments: Sequence[str]) -> int:
    """Check the images, write the shards, and print the command that trains on them."""
    about = "Write an image folder as MindRecord files, which are faster to read."
    parser = cli.Parser("pack", about, _EXAMPLES, "SOURCE OUT")
    parser.add_argument(
        "source", metavar="SOURCE", help="image folder: train/CLASS/*.JPEG, val/CLASS/*.JPEG"
    )
    parser.add_argument(
        "out", type=folder_to_write, metavar="OUT", help="folder for the MindRecord files"
    )
    share = "fraction of each class to hold out if no folder validates, as in training; default 0"
    parser.add_argument("--validation-share", type=float, default=0.0, metavar="F", help=share)
    parser.add_argument(
        "--shards", type=int, default=8, metavar="N", help="number of files per split; default 8"
    )
    shrunk = (
        "shrink the shorter side of training images to this [pixels]; default 0: keep all "
        "files unchanged"
    )
    parser.add_argument("--short-side", type=int, default=0, metavar="N", help=shrunk)
    parser.add_argument(
        "--quality",
        type=int,
        default=90,
        metavar="N",
        help="JPEG quality if shrunk, 1-95; default 90",
    )
    parser.add_argument(
        "--on-bad-sample",
        choices=("error", "skip"),
        default="error",
        help="bad images; default error",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="threads that decode; default 0: all CPUs",
    )
    parser.add_argument("--no-progress", action="store_true", help="hide the progress bar")
    parsed = parser.parse(arguments)
    bounds = {
        "shards": (1, 100000),
        "short_side": (0, 65535),
        "quality": (1, 95),
        "threads": (0, 4096),
    }
    wrong = []
    for name, (least, most) in bounds.items():
        value = getattr(parsed, name)
        text = (
            f"--{flag_name(name)}: {value} is not in {least}..{most}; give a number in this range"
        )
        wrong.append((not least <= value <= most, text))
    cli.raise_usage_errors(*wrong)
    from tqdm import tqdm

    from resnet_fn.config.options import RunOptions
    from resnet_fn.config.recipe import Recipe
    from resnet_fn.data.sources.load import data_threads, open_dataset
    from resnet_fn.data.sources.packing import pack

    threads = data_threads(parsed.threads)
    out = Path(parsed.out)
    settings = {"validation_share": parsed.validation_share, "on_bad_sample": parsed.on_bad_sample}
    with cli.as_usage_error():
        recipe = Recipe(dataset="imagefolder", **settings)
    options = RunOptions(data_threads=threads, check_files="yes", progress=not parsed.no_progress)
    dataset = open_dataset(recipe, parsed.source, options=options)
    say(*dataset.notes)
    images = len(dataset.train) + len(dataset.test)
    with tqdm(
        total=images, desc="packing", unit="image", disable=parsed.no_progress or None
    ) as bar:
        written = pack(dataset, out, parsed.shards, parsed.short_side, parsed.quality, bar.update)
    command = cli.with_typed_command(
        f"python -m resnet_fn.train --recipe NAME --dataset mindrecord --data-dir {shell_words(out)}"
    )
    say(
        f"{images} images in {out} ({written} shards written and read back, the others existed); "
        f"to train: {command}"
    )
    return 0


if __name__ == "__main__":
    cli.run("pack", main)
