"""The command `predict` prints the likeliest classes of image files."""

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from tqdm import tqdm

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.output_paths import file_to_write
from resnet_fn.config.printing import printable, say, shell_words
from resnet_fn.config.wording import counted
from resnet_fn.data.cells import table_writer
from resnet_fn.evaluation.metrics import SAID_FROM
from resnet_fn.evaluation.task import TOP
from resnet_fn.runtime.outputs import begins_with, check_output, replacing

_EXAMPLES = """examples:
  python -m resnet_fn.predict runs/first seven.png
  python -m resnet_fn.predict runs/first scans/ --which best --json
  python -m resnet_fn.predict runs/first scans/ --csv out.csv --sort doubt
  find scans -name '*.jpg' | python -m resnet_fn.predict runs/first - --json
"""


def main(arguments: Sequence[str]) -> int:
    """Print the likeliest classes of images, or write them as CSV.

    Unreadable files do not stop the command.
    """
    parsed = _parse(arguments)
    sources = [parsed.checkpoint, *parsed.images, parsed.list]
    checkpoint, *images = [path for path in sources if path] or [""]
    if not images:
        after = f" after {checkpoint!r}" if checkpoint else ""
        raise cli.UsageError(f"no image is given{after}; give RUN IMAGE_OR_FOLDER")
    from resnet_fn.evaluation.image_names import find_images, is_list, read_list
    from resnet_fn.evaluation.loaded_net import load_run
    from resnet_fn.evaluation.predict import predictions

    _check_order(checkpoint, images)
    lists = {path for path in images if path == parsed.list or is_list(path)}
    names = [read_list(path) if path in lists else find_images([path]) for path in images]
    trained = load_run(
        checkpoint,
        parsed.which,
        ema=parsed.ema,
        allow_non_finite=parsed.allow_non_finite,
        device=parsed.device,
        threads=parsed.threads,
    )
    several = trained.recipe.multi_label
    doubt = parsed.sort == "doubt"
    cli.raise_usage_errors(
        (
            parsed.threshold and not several,
            "--threshold: this net predicts one class for an image; give --top instead",
        ),
        (
            several and parsed.top,
            "--top: this net predicts any number of classes; give --threshold instead",
        ),
        (several and doubt, "--sort doubt needs a net that predicts one class; leave it out"),
    )
    known = [name for part in names if isinstance(part, list) for name in part]
    total = None if lists else len(known)  # a list is read while its images are predicted
    top = parsed.top or TOP
    classes = min(top, len(trained.classes))
    threshold = parsed.threshold or SAID_FROM
    computed = predictions(trained, itertools.chain.from_iterable(names), top, threshold)
    # The bar is on stderr, if stderr is a terminal.
    bar = tqdm(computed, "predicting", total, unit="image", disable=None, leave=False)
    results: Iterable[dict[str, Any]] = bar
    if doubt:
        results = sorted(bar, key=_certainty)
    elif several and parsed.csv:  # the header names as many classes as an image has at most
        results = list(bar)
        classes = max((len(result.get("top", ())) for result in results), default=0) or 1
    with contextlib.closing(computed):
        width = max(map(len, known), default=0)
        count, bad = _write(results, parsed, classes, width, images[0])
    if parsed.csv:
        order = ", the least certain first" if doubt else ""
        say(f"{counted(count - bad, 'prediction')} in {parsed.csv}{order}")
    if bad:
        raise ValueError(f"{bad} of {count} images cannot be read; the lines above name them")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = cli.Parser(
        "predict",
        "Print the likeliest classes of images, and their probabilities.",
        _EXAMPLES,
        "RUN IMAGE_OR_FOLDER …",
    )
    flags.add_argument(
        "images",
        nargs="*",
        metavar="IMAGE_OR_FOLDER",
        help="RUN (run or checkpoint folder) unless --checkpoint is given, then image files, "
        "folders, lists (.txt, .csv), or - for a list from stdin",
    )
    flags.add_argument(
        "--list",
        metavar="FILE",
        help="file with the path of an image in each line, whatever the ending of its name",
    )
    shared_flags.add_checkpoint_flags(flags, positional=False)
    group = flags.add_argument_group("output")
    group.add_argument(
        "--top", type=int, metavar="N", help="number of classes to print for each image; default 5"
    )
    group.add_argument(
        "--threshold",
        type=float,
        metavar="P",
        help=f"smallest probability to print, for multi-label nets; default {SAID_FROM}",
    )
    group.add_argument("--json", action="store_true", help="print one line of JSON for each image")
    group.add_argument(
        "--csv",
        type=file_to_write,
        metavar="FILE",
        help="write the predictions as CSV to this file",
    )
    group.add_argument(
        "--sort",
        choices=("name", "doubt"),
        default="name",
        help="doubt: least certain predictions first; default name",
    )
    shared_flags.add_device_flags(flags)
    parsed = flags.parse(arguments)
    most = parsed.top
    least = parsed.threshold
    cli.raise_usage_errors(
        (most is not None and most < 1, f"--top: {most} is too small; give 1 or more"),
        (
            least is not None and not 0 < least < 1,
            f"--threshold: {least} is not between 0 and 1; give {SAID_FROM}",
        ),
        (parsed.csv and parsed.json, "--csv cannot be used with --json; give one of them"),
    )
    if parsed.csv:
        with cli.as_usage_error():
            check_output("--csv", parsed.csv, begins_with("file,class,probability"))
    return parsed


def _check_order(checkpoint: str, images: Sequence[str]) -> None:
    """Raise UsageError if a run stands after what is not a run."""
    from resnet_fn.checkpoint.run_folder import holds_checkpoint

    if holds_checkpoint(checkpoint):
        return
    for path in filter(holds_checkpoint, images):
        raise cli.UsageError(
            f"RUN: {checkpoint!r} is not a run, but {path!r} is; "
            f"give RUN first: {shell_words(path, checkpoint)}"
        )


def _certainty(result: dict[str, Any]) -> float:
    """Return the probability of the likeliest class, and more for a file that cannot be read."""
    return float(result["top"][0]["probability"]) if "top" in result else 2.0


def _write(
    results: Iterable[dict[str, Any]],
    parsed: argparse.Namespace,
    classes: int,
    width: int,
    source: str,
) -> tuple[int, int]:
    """Write each result as soon as it is there.

    Return the number of results, and of images that cannot be read. If there are no results, raise
    ValueError, which names the list `source`; an earlier table stays.
    """
    from resnet_fn.evaluation.prediction_table import table_header, table_row

    count = bad = 0
    with replacing(parsed.csv) if parsed.csv else contextlib.nullcontext() as file:
        table = table_writer(file) if file else None
        if table:
            table.writerow(table_header(classes))
        for result in results:
            count += 1
            bad += "error" in result
            if "error" in result:
                _print(f"predict: {result['error']}", sys.stderr)
            if table:
                table.writerow(table_row(result, classes))
            elif parsed.json:
                _print(json.dumps(result), sys.stdout)
            elif "top" in result:
                _print(
                    f"{printable(result['file']):{width}}   {_classes(result['top'])}", sys.stdout
                )
        if not count:
            raise ValueError(f"{source}: names no images; write the path of an image in each line")
    return count, bad


def _classes(rows: Sequence[dict[str, Any]]) -> str:
    return "   ".join(f"{row['class']} {row['probability']:6.2%}" for row in rows) or "(none)"


def _print(line: str, stream: TextIO) -> None:
    """Print a line above the progress bar."""
    with tqdm.external_write_mode(stream):
        say(line, stream=stream)


if __name__ == "__main__":
    cli.run("predict", main)
