"""python -m resnet_fn: list the commands."""

import shlex
from collections.abc import Sequence
from itertools import dropwhile

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
    "convert": "weights from one project's names and format to another's",
    "inspect": "look into a checkpoint, compare two, see a net's activations and gradients",
    "pack": "an image folder as MindRecord shards",
    "parity": "prove, stage by stage, that a net and its training step compute what PyTorch computes",
}


def main(arguments: Sequence[str]) -> int:
    """Print the list; for any other argument, an error with the nearest command."""
    words = list(dropwhile(("-h", "--help", "--debug").__contains__, arguments))
    if words and words[0] in COMMANDS:
        typed = shlex.join([f"resnet_fn.{words[0]}", *words[1:]])
        raise cli.UsageError(f"{words[0]!r} is a command by itself: type python -m {typed}")
    if words:
        raise cli.UsageError(f"unknown argument {words[0]!r}; {closest(words[0], COMMANDS)}")
    print("Train residual networks on MindSpore with a functional loop that you can read.\n")
    print("commands (--help shows the flags):")
    for name, purpose in COMMANDS.items():
        print(f"  python -m resnet_fn.{name:12} {purpose}")
    return 0


if __name__ == "__main__":
    cli.run("resnet_fn", main)
