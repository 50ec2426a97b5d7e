"""python -m resnet_fn.evaluate: score a checkpoint on its test set."""

import json
from collections.abc import Sequence
from pathlib import Path

from resnet_fn import cli

_EXAMPLES = """examples:
  python -m resnet_fn.evaluate --checkpoint runs/digits-20260101-120000 --which best
  python -m resnet_fn.evaluate --checkpoint runs/digits-20260101-120000/checkpoints/step-00000440 --json result.json
"""


def main(arguments: Sequence[str]) -> int:
    """Evaluate, print the figures, write them as JSON if asked."""
    parser = cli.Parser("evaluate", "Score a checkpoint on every sample of its test set, once each.", _EXAMPLES)
    parser.add_argument("--checkpoint", required=True, metavar="PATH", help="a run folder or a checkpoint folder")
    parser.add_argument("--which", choices=("last", "best"), default="last", help="of a run folder; default last")
    parser.add_argument("--batch-size", type=int, default=256, metavar="N", help="samples at a time; default 256")
    parser.add_argument("--device", choices=("CPU", "Ascend"), default="CPU", help="default CPU")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="CPU kernel threads; 0: all CPUs")
    parser.add_argument("--data-dir", default="", metavar="PATH", help="data set; default where it lay in training")
    parser.add_argument("--json", metavar="FILE", help='write {"loss", "top1", "top5", "count"}, fractions of 1')
    parsed = parser.parse(arguments)
    if parsed.batch_size < 1:
        raise cli.UsageError(f"--batch-size: {parsed.batch_size} is too small; give 1 or more")
    from resnet_fn.distributed import join
    from resnet_fn.evaluation import evaluate

    figures = evaluate(
        parsed.checkpoint,
        parsed.which,
        batch_size=parsed.batch_size,
        device=parsed.device,
        threads=parsed.threads,
        data_dir=parsed.data_dir,
    )
    if join().leads:
        print(
            f"loss {figures['loss']:.4f}, top-1 {figures['top1']:.2%}, top-5 {figures['top5']:.2%} "
            f"of {figures['count']} test images"
        )
        if parsed.json:
            Path(parsed.json).write_text(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    cli.run("evaluate", main)
