"""python -m resnet_fn.evaluate: score a checkpoint on its test set."""

import json
from collections.abc import Sequence
from pathlib import Path

from resnet_fn import cli

_EXAMPLES = """examples:
  python -m resnet_fn.evaluate --checkpoint runs/digits-20260101-120000 --which best
  python -m resnet_fn.evaluate --checkpoint runs/digits-20260101-120000 --report report
  python -m resnet_fn.evaluate --checkpoint runs/digits-20260101-120000/checkpoints/step-00000440 --json result.json
"""


def parser() -> cli.Parser:
    """The command's flags."""
    flags = cli.Parser(
        "evaluate", "Score a checkpoint on every sample of its test set, once each.", _EXAMPLES, "--checkpoint PATH"
    )
    cli.add_checkpoint_flags(flags)
    group = flags.add_argument_group("how it is scored")
    group.add_argument(
        "--tta", choices=("none", "flip"), default="none", help="flip: mean logits with the mirror image"
    )
    group.add_argument("--image-size", type=int, default=0, metavar="N", help="what the net sees [pixels]; 0: its own")
    group.add_argument("--batch-size", type=int, default=256, metavar="N", help="samples read at a time; default 256")
    group.add_argument("--data-dir", default="", metavar="PATH", help="data set; default where it lay in training")
    cli.add_device_flags(flags)
    group = flags.add_argument_group("what is written")
    group.add_argument("--json", metavar="FILE", help='{"loss", "top1", "top5", "count"}, fractions of 1')
    group.add_argument("--report", metavar="DIR", help="report.html, report.json and predictions.csv")
    return flags


def main(arguments: Sequence[str]) -> int:
    """Evaluate, print the figures, write them as JSON and as a report if asked."""
    parsed = parser().parse(arguments)
    if parsed.batch_size < 1:
        raise cli.UsageError(f"--batch-size: {parsed.batch_size} is too small; give 1 or more")
    if parsed.image_size < 0:
        raise cli.UsageError(f"--image-size: {parsed.image_size} is negative; give pixels, or 0 for the recipe's own")
    from resnet_fn.evaluation import evaluate_in_detail, summarise
    from resnet_fn.report.writer import finite, write_report

    evaluation = evaluate_in_detail(
        parsed.checkpoint,
        parsed.which,
        batch_size=parsed.batch_size,
        device=parsed.device,
        threads=parsed.threads,
        tta=parsed.tta,
        ema=parsed.ema,
        image_size=parsed.image_size,
        data_dir=parsed.data_dir,
    )
    if parsed.report:
        write_report(evaluation, Path(parsed.report))
    if evaluation.workers.leads:
        figures = summarise(evaluation.scores)
        print(
            f"loss {figures['loss']:.4f}, top-1 {figures['top1']:.2%}, top-5 {figures['top5']:.2%} "
            f"of {figures['count']} test images"
        )
        if parsed.json:
            cli.write_text(Path(parsed.json), json.dumps(finite(figures)) + "\n")
        if parsed.report:
            print(f"report: {Path(parsed.report, 'report.html')}" + _without_pictures())
    return 0


def _without_pictures() -> str:
    from resnet_fn.report.pictures import available

    return "" if available() else " (tables only; for pictures: pip install 'resnet_fn[plots]')"


if __name__ == "__main__":
    cli.run("evaluate", main)
