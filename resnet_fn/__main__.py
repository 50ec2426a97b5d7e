"""python -m resnet_fn: list the commands."""

from collections.abc import Sequence

from resnet_fn.config import cli
from resnet_fn.config.hints import closest

COMMANDS = {
    "train": "train a recipe",
    "launch": "train on several workers: msrun, signals, exit codes",
    "evaluate": "score a checkpoint on its validation set",
    "predict": "name the likeliest classes of image files",
    "export": "write a checkpoint's net as MindIR, ONNX or safetensors, and verify the file",
    "plot": "draw the curves of one or several runs, without TensorBoard",
    "recipes": "list the recipes, or show one",
    "doctor": "test what training needs from this MindSpore, this device and this disk",
    "benchmark": "measure one part of the package on this machine",
    "convert": "weights from one project's names and format to another's",
    "inspect": "look into a checkpoint, compare two, see a net's activations and gradients",
    "pack": "an image folder as MindRecord shards",
    "parity": "prove, stage by stage, that a net and its training step compute what PyTorch computes",
}


def main(arguments: Sequence[str]) -> int:
    """Print the list; for any other argument, an error with the nearest command."""
    words = [word for word in arguments if word not in ("-h", "--help", "--debug")]
    if words:
        name = words[0]
        hint = f"type python -m resnet_fn.{name}" if name in COMMANDS else closest(name, COMMANDS)
        raise cli.UsageError(f"unknown argument {name!r}; {hint}")
    print("Train residual networks on MindSpore with a functional loop that you can read.\n")
    print("commands (--help shows the flags):")
    for name, purpose in COMMANDS.items():
        print(f"  python -m resnet_fn.{name:12} {purpose}")
    return 0


if __name__ == "__main__":
    cli.run("resnet_fn", main)
