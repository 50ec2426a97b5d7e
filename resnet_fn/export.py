"""The command `export` writes a checkpoint's net as MindIR, ONNX or safetensors, and verifies the
file.
"""

from collections.abc import Sequence
from pathlib import Path

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.printing import say

_EXAMPLES = """examples:
  python -m resnet_fn.export runs/first --format mindir --out digits.mindir
  python -m resnet_fn.export runs/first --format onnx --batch 1 --out digits.onnx
"""


# Long: flags, and every step of the command in the order of the output.
def main(arguments: Sequence[str]) -> int:
    """Export a net, verify the file, and print the largest difference between logits."""
    about = "Write a net to a file, load it back and compare its logits on validation images."
    flags = cli.Parser("export", about, _EXAMPLES, "RUN --format NAME --out FILE")
    shared_flags.add_checkpoint_flags(flags)
    group = flags.add_argument_group("the file")
    group.add_argument(
        "--format",
        required=True,
        choices=("mindir", "onnx", "safetensors"),
        help="format of the file",
    )
    group.add_argument(
        "--out", required=True, metavar="FILE", help="file to write; FILE.json describes it"
    )
    group.add_argument(
        "--image-size",
        type=shared_flags.pixels,
        default=0,
        metavar="N",
        help="image size [pixels]; 0: the recipe's",
    )
    group.add_argument(
        "--batch",
        default="dynamic",
        metavar="N",
        help="batch size of the net; default dynamic: any",
    )
    group.add_argument(
        "--data-dir",
        default="",
        metavar="PATH",
        help="folder of the data set; default: as in training",
    )
    shared_flags.add_device_flags(flags)
    parsed = flags.parse(arguments)
    checkpoint = shared_flags.chosen_checkpoint(parsed)
    fixed = parsed.batch != "dynamic"
    size = parsed.image_size
    number = parsed.batch.isdigit() and int(parsed.batch) > 0
    weights = parsed.format == "safetensors"
    better = Path(parsed.out).with_suffix(f".{parsed.format}")
    cli.raise_usage_errors(
        (
            Path(parsed.out).suffix != better.suffix,
            f"--out: {parsed.out} does not end in .{parsed.format}; give --out {better}",
        ),
        (
            fixed and not number,
            f"--batch: {parsed.batch!r} is not a whole number above 0; give one, or dynamic",
        ),
        (
            fixed and weights,
            "--batch: a safetensors file holds weights only and takes any batch; leave it out",
        ),
        (
            size < 0,
            f"--image-size: {size} is negative; give a number of pixels, or 0 for the recipe's "
            "size",
        ),
    )
    from resnet_fn.evaluation.export import export
    from resnet_fn.evaluation.loaded_net import load_run

    how = {
        name: getattr(parsed, name)
        for name in ("ema", "image_size", "allow_non_finite", "device", "threads")
    }
    trained = load_run(checkpoint, parsed.which, **how)
    card = export(trained, parsed.out, int(parsed.batch) if fixed else 0, data_dir=parsed.data_dir)
    verified = card["verified"]
    say(
        f"{parsed.out}: {parsed.format}, input {card['input']['shape']}; verified on "
        f"{verified['images']} "
        f"{verified['compared_on']}, largest difference of a logit "
        f"{verified['largest_difference']:.2g}; "
        f"described in {parsed.out}.json"
    )
    return 0


if __name__ == "__main__":
    cli.run("export", main)
