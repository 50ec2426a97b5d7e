"""python -m resnet_fn.evaluate: score a checkpoint on its test set."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from resnet_fn import cli, recipes
from resnet_fn.config import Recipe, vars_of

_EXAMPLES = """examples:
  python -m resnet_fn.evaluate --checkpoint runs/digits-20260101-120000 --which best
  python -m resnet_fn.evaluate --checkpoint runs/digits-20260101-120000/checkpoints/step-00000440 --json result.json
  python -m resnet_fn.evaluate --weights net.pth --recipe digits
"""


def main(arguments: Sequence[str]) -> int:
    """Evaluate, print the figures, write them as JSON if asked."""
    parser = cli.Parser("evaluate", "Score a checkpoint on every sample of its test set, once each.", _EXAMPLES)
    parser.add_argument("--checkpoint", metavar="PATH", help="a run folder or a checkpoint folder")
    parser.add_argument("--weights", metavar="FILE", help="instead: .pth, .safetensors or .ckpt, with --recipe")
    parser.add_argument("--recipe", metavar="NAME", help="net and data of --weights")
    parser.add_argument("--model", metavar="NAME", help="another net than the recipe's, for --weights")
    parser.add_argument("--stem", metavar="NAME", help="another stem than the recipe's, for --weights")
    parser.add_argument("--which", choices=("last", "best"), default="last", help="of a run folder; default last")
    parser.add_argument("--batch-size", type=int, default=256, metavar="N", help="samples at a time; default 256")
    parser.add_argument("--device", choices=("CPU", "Ascend"), default="CPU", help="default CPU")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="CPU kernel threads; 0: all CPUs")
    parser.add_argument("--data-dir", default="", metavar="PATH", help="data set; default where it lay in training")
    parser.add_argument("--json", metavar="FILE", help='write {"loss", "top1", "top5", "count"}, fractions of 1')
    parsed = parser.parse(arguments)
    if parsed.batch_size < 1:
        raise cli.UsageError(f"--batch-size: {parsed.batch_size} is too small; give 1 or more")
    recipe = _weights_recipe(parsed)
    from resnet_fn.distributed import join
    from resnet_fn.evaluation import evaluate, evaluate_weights

    how = {name: getattr(parsed, name) for name in ("batch_size", "device", "threads", "data_dir")}
    if recipe is not None:
        figures = evaluate_weights(parsed.weights, recipe, **how)
    else:
        figures = evaluate(parsed.checkpoint, parsed.which, **how)
    if join().leads:
        print(
            f"loss {figures['loss']:.4f}, top-1 {figures['top1']:.2%}, top-5 {figures['top5']:.2%} "
            f"of {figures['count']} test images"
        )
        if parsed.json:
            Path(parsed.json).write_text(json.dumps(figures) + "\n")
    return 0


def _weights_recipe(parsed: argparse.Namespace) -> Recipe | None:
    """The recipe that says what --weights are of; None for a checkpoint, which knows."""
    if bool(parsed.checkpoint) == bool(parsed.weights):
        raise cli.UsageError("give either --checkpoint PATH or --weights FILE --recipe NAME")
    changes = {name: getattr(parsed, name) for name in ("model", "stem") if getattr(parsed, name) is not None}
    if not parsed.weights:
        if parsed.recipe or changes:
            raise cli.UsageError("--recipe, --model and --stem go with --weights; a checkpoint knows its own")
        return None
    if not parsed.recipe:
        raise cli.UsageError("--weights needs --recipe NAME: a weight file knows neither its data nor its net")
    try:
        return Recipe(**{**vars_of(recipes.recipe(parsed.recipe)), **changes})
    except ValueError as error:
        raise cli.UsageError(str(error)) from None


if __name__ == "__main__":
    cli.run("evaluate", main)
