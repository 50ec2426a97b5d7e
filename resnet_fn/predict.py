"""The command `predict` prints the likeliest classes of image files."""

import json
import sys
from collections.abc import Sequence

from resnet_fn.config import cli
from resnet_fn.evaluation.metrics import SAID_FROM
from resnet_fn.evaluation.task import TOP

_EXAMPLES = """examples:
  python -m resnet_fn.predict runs/first seven.png
  python -m resnet_fn.predict runs/first scans/ --which best --json
  python -m resnet_fn.predict runs/first scans/ --csv out.csv --sort doubt
"""


def main(arguments: Sequence[str]) -> int:
    """Print the likeliest classes of images, or write them as CSV. Unreadable files do not stop the command."""
    about = "Print the likeliest classes of images, and their probabilities."
    flags = cli.Parser("predict", about, _EXAMPLES, "RUN IMAGE_OR_FOLDER …")
    paths = "RUN (run or checkpoint folder) unless --checkpoint is given, then image files or folders"
    flags.add_argument("images", nargs="+", metavar="IMAGE_OR_FOLDER", help=paths)
    cli.add_checkpoint_flags(flags, positional=False)
    group = flags.add_argument_group("output")
    group.add_argument("--top", type=int, metavar="N", help="number of classes to print for each image; default 5")
    threshold = f"smallest probability to print, for multi-label nets; default {SAID_FROM}"
    group.add_argument("--threshold", type=float, metavar="P", help=threshold)
    group.add_argument("--json", action="store_true", help="print one line of JSON for each image")
    table = "write the predictions as CSV to this file"
    group.add_argument("--csv", type=cli.file_to_write, metavar="FILE", help=table)
    sort = "doubt: least certain predictions first; default name"
    group.add_argument("--sort", choices=("name", "doubt"), default="name", help=sort)
    cli.add_device_flags(flags)
    parsed = flags.parse(arguments)
    least = parsed.threshold
    cli.raise_usage_errors(
        (parsed.top is not None and parsed.top < 1, f"--top: {parsed.top} is too small; give 1 or more"),
        (least is not None and not 0 < least < 1, f"--threshold: {least} is not between 0 and 1; give {SAID_FROM}"),
        (parsed.csv and parsed.json, "--csv cannot be used with --json; give one of them"),
    )
    checkpoint, *images = [parsed.checkpoint, *parsed.images] if parsed.checkpoint else parsed.images
    if not images:
        raise cli.UsageError(f"no image is given after {checkpoint!r}; give RUN IMAGE_OR_FOLDER")
    from resnet_fn.evaluation.loaded_net import load_run
    from resnet_fn.evaluation.predict import find_images, predict, results_csv

    files, where = find_images(images), {"device": parsed.device, "threads": parsed.threads}
    trained = load_run(checkpoint, parsed.which, ema=parsed.ema, allow_non_finite=parsed.allow_non_finite, **where)
    several, doubt = trained.recipe.multi_label, parsed.sort == "doubt"
    cli.raise_usage_errors(
        (least and not several, "--threshold: this net predicts one class for an image; give --top instead"),
        (several and parsed.top, "--top: this net predicts any number of classes; give --threshold instead"),
        (several and doubt, "--sort doubt needs a net that predicts one class; leave it out"),
    )
    width = max(len(str(path)) for path in files)
    results = predict(trained, files, parsed.top or TOP, least or SAID_FROM)
    bad = sum("error" in result for result in results)
    if doubt:  # files that cannot be read are last
        results.sort(key=lambda result: result["top"][0]["probability"] if "top" in result else 2.0)
    if parsed.csv:
        cli.write_text(parsed.csv, results_csv(results))
        order = ", the least certain first" if doubt else ""
        print(f"{len(files) - bad} predictions in {parsed.csv}{order}")
    for result in results:
        if "error" in result:
            print(f"predict: {result['error']}", file=sys.stderr, flush=True)
        elif parsed.json:
            print(json.dumps(result))
        elif not parsed.csv:
            likely = "   ".join(f"{row['class']} {row['probability']:6.2%}" for row in result["top"])
            print(f"{result['file']:{width}}   {likely or '(none)'}")
    if bad:
        raise ValueError(f"{bad} of {len(files)} images cannot be read; the lines above name them")
    return 0


if __name__ == "__main__":
    cli.run("predict", main)
