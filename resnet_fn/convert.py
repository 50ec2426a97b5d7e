"""The command `convert` changes the parameter names and the file format of weights."""

from collections.abc import Sequence

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.printing import say, warn
from resnet_fn.weights.names import STYLES

_EXAMPLES = """examples:
  python -m resnet_fn.convert resnet50.pth resnet50.safetensors     from torchvision or timm names
  python -m resnet_fn.convert runs/first net.pth --to torchvision
file endings: .safetensors, .ckpt (MindSpore), .pth and .pt (PyTorch; to write: extra [torch])
"""


def main(arguments: Sequence[str]) -> int:
    """Convert weights, and print which project's parameter names they had."""
    about = (
        "Convert weights to other parameter names or another file format. The values keep "
        "every bit."
    )
    parser = cli.Parser("convert", about, _EXAMPLES, "SOURCE TARGET")
    parser.add_argument(
        "source", metavar="SOURCE", help="a weight file, a checkpoint folder or a run folder"
    )
    parser.add_argument(
        "target", metavar="TARGET", help="the file to write; its ending gives the format"
    )
    parser.add_argument(
        "--to", choices=STYLES, default="ours", help="project whose names are written; default ours"
    )
    parser.add_argument(
        "--model", default="", metavar="NAME", help="name of the net, if the weights do not show it"
    )
    parser.add_argument("--which", **shared_flags.WHICH)
    parser.add_argument("--allow-non-finite", **shared_flags.ALLOW_NON_FINITE)
    parsed = parser.parse(arguments)
    from resnet_fn.weights.load import convert_weights

    result = convert_weights(
        **{name: value for name, value in vars(parsed).items() if name != "debug"}
    )
    for warning in result["warnings"]:
        warn(warning)
    say(
        f"{result['model']}: {result['tensors']} tensors from {result['from']} names to "
        f"{result['to']} names "
        f"in {parsed.target}, read from {result['path']}",
        *result["notes"],
    )
    return 0


if __name__ == "__main__":
    cli.run("convert", main)
