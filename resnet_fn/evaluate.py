"""The command `evaluate` scores a checkpoint on its validation set."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.options import RunOptions
from resnet_fn.config.output_paths import file_to_write, folder_to_write
from resnet_fn.config.packages import how_to_install
from resnet_fn.config.printing import say
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.setting_names import flag_name
from resnet_fn.recipes import load_recipe
from resnet_fn.runtime.disk import finite_or_null
from resnet_fn.runtime.outputs import check_output, has_keys, write_output

_OF_WEIGHTS = ("eval_size", "eval_resize", "interpolation", "mean", "std")  # settings for --weights
_EXAMPLES = """examples:
  python -m resnet_fn.evaluate runs/first --which best
  python -m resnet_fn.evaluate runs/first --report report
  python -m resnet_fn.evaluate runs/first --data-dir pictures/test
  python -m resnet_fn.evaluate runs/first/checkpoints/step-00000440 --json result.json
  python -m resnet_fn.evaluate --weights net.pth --recipe digits
"""


# Long: flags, and every step of the command in the order of the output.
def main(arguments: Sequence[str]) -> int:
    """Score a checkpoint or a weight file, and print the metrics.

    `--json` and `--report` also write files.
    """
    flags = cli.Parser(
        "evaluate",
        "Compute the metrics of a checkpoint on all validation images, or on other images.",
        _EXAMPLES,
        "RUN",
    )
    shared_flags.add_checkpoint_flags(flags)
    group = flags.add_argument_group("instead of a checkpoint")
    group.add_argument(
        "--weights",
        metavar="FILE",
        help="weights: .pth, .safetensors, .ckpt or a run; needs --recipe",
    )
    group.add_argument(
        "--recipe",
        metavar="NAME",
        help="recipe with the net and the data; a name or a .toml file, whose device and threads "
        "are not used",
    )
    group.add_argument("--model", metavar="NAME", help="net to use instead of the recipe's")
    group.add_argument("--stem", metavar="NAME", help="stem to use instead of the recipe's")
    shared_flags.add_setting_flags(
        flags,
        Recipe(),
        skip={*Recipe.declarations} - {*_OF_WEIGHTS},
        heading="instead of the weights' preparation",
    )
    group = flags.add_argument_group("scoring")
    group.add_argument(
        "--tta",
        choices=("none", "flip"),
        default="none",
        help="flip: average the logits of the image and its mirror image; default none",
    )
    group.add_argument(
        "--image-size",
        type=shared_flags.pixels,
        default=0,
        metavar="N",
        help="image size [pixels]; 0: the recipe's",
    )
    group.add_argument(
        "--batch-size",
        type=int,
        default=256,
        metavar="N",
        help="samples read at a time; at most 64 are computed; default 256",
    )
    group.add_argument(
        "--data-dir",
        default="",
        metavar="PATH",
        help="folder of the data set, or of other images in class folders; default: as in training",
    )
    group.add_argument(
        "--val-list", default="", metavar="FILE", help="list of images; default: as in training"
    )
    shared_flags.add_device_flags(flags)
    group = flags.add_argument_group("output")
    group.add_argument(
        "--json",
        type=file_to_write,
        metavar="FILE",
        help="write the metrics as JSON to this file",
    )
    group.add_argument(
        "--report",
        type=folder_to_write,
        metavar="DIR",
        help="write report.html, report.json and predictions.csv to this folder",
    )
    parsed = flags.parse(arguments)
    weights = parsed.weights
    trained = shared_flags.chosen_checkpoint(parsed) if parsed.run or parsed.checkpoint else ""
    changes = {
        name: value
        for name, value in vars(parsed).items()
        if name in ("model", "stem", *_OF_WEIGHTS) and value is not None
    }
    also = ", ".join(f"--{flag_name(name)}" for name in _OF_WEIGHTS)
    size = parsed.image_size
    of_trained = parsed.report or parsed.tta != "none" or parsed.val_list or parsed.ema is not None
    cli.raise_usage_errors(
        (parsed.batch_size < 1, f"--batch-size: {parsed.batch_size} is too small; give 1 or more"),
        (
            size < 0,
            f"--image-size: {size} is negative; give a number of pixels, or 0 for the recipe's "
            "size",
        ),
        (bool(trained) == bool(weights), "give either RUN, or --weights FILE and --recipe NAME"),
        (
            trained and (parsed.recipe or changes),
            f"--recipe, --model and --stem need --weights, as do {also}; leave them out",
        ),
        (
            weights and not parsed.recipe,
            "--weights needs --recipe NAME, because a weight file does not describe the data and "
            "the net",
        ),
        (weights and of_trained, "--report, --tta, --val-list and --ema need RUN; leave them out"),
        (
            weights and size,
            f"--image-size: {size} needs RUN; with --weights give --eval-size {size}",
        ),
    )
    with cli.as_usage_error():
        if parsed.json:
            check_output("--json", parsed.json, has_keys(("loss", "count")))
        draft = load_recipe(parsed.recipe) if weights else None
        file = draft.complete(changes) if draft else None
    from resnet_fn.evaluation.evaluate import describe_test, evaluate_in_detail, evaluate_weights
    from resnet_fn.evaluation.task import all_metrics, describe_scores
    from resnet_fn.report.plots import available
    from resnet_fn.report.writer import check_report, write_report
    from resnet_fn.runtime.workers import join

    if parsed.report:
        with cli.as_usage_error():
            check_report("--report", Path(parsed.report))
    how = {
        name: getattr(parsed, name)
        for name in ("batch_size", "device", "threads", "data_dir", "allow_non_finite")
    }
    if file:
        scores, dataset = evaluate_weights(
            weights,
            Recipe.from_draft(file),
            parsed.which,
            options=RunOptions.from_draft(file),
            **how,
        )
    else:
        evaluation = evaluate_in_detail(
            trained,
            parsed.which,
            tta=parsed.tta,
            ema=parsed.ema,
            image_size=size,
            val_list=parsed.val_list,
            **how,
        )
        scores = evaluation.scores
        dataset = evaluation.dataset
        if parsed.report:
            write_report(evaluation, Path(parsed.report))
    if join().is_main:
        classes = dataset.classes
        metrics = all_metrics(scores, dataset.test.labels, len(classes))
        if draft and file:  # what the file itself leaves out is for training
            before = draft.resolve().drop_notes
            say(*(note for note in file.drop_notes if note not in before), stream=sys.stderr)
        say(*dataset.notes, stream=sys.stderr)
        say(f"{describe_scores(metrics, classes)} of {describe_test(dataset)}")
        if scores.areas is not None:
            metrics["average_precision"] = dict(zip(classes, scores.areas.tolist(), strict=True))
        if parsed.json:
            write_output(parsed.json, json.dumps(finite_or_null(metrics)) + "\n")
        if parsed.report:
            line = f"report: {Path(parsed.report, 'report.html')}"
            if not available():
                line += f" (tables only; for plots, {how_to_install('matplotlib')})"
            say(line)
    return 0


if __name__ == "__main__":
    cli.run("evaluate", main)
