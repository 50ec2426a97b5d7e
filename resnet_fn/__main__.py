"""The program `resnet_fn` runs a command of this package, or lists all commands."""

import signal
import sys

if __name__ == "__main__" or sys.argv[0].endswith("/resnet_fn"):  # the installed command, which imports this module
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # train.py gives the reason

import importlib
import importlib.util
import os
import shlex
from collections.abc import Sequence
from typing import NoReturn

from resnet_fn.config import cli
from resnet_fn.config.hints import closest
from resnet_fn.runtime.console import installed_program

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
_GENERAL = ("-h", "--help", "--debug")


def list_commands(arguments: Sequence[str]) -> int:
    """Print all commands with their purposes."""
    for word in arguments:
        if word not in _GENERAL:
            raise cli.UsageError(f"unknown argument {word!r}; {closest(word, COMMANDS)}")
    print("Train residual networks on MindSpore with a functional loop that you can read.\n")
    print("commands (--help shows the flags):")
    for name, purpose in COMMANDS.items():
        print(cli.as_typed(f"  python -m resnet_fn.{name:12} {purpose}"))
    return 0


def run() -> NoReturn:
    """Run the command that the user typed after `resnet_fn` or `python -m resnet_fn`."""
    arguments = sys.argv[1:]
    name = next((word for word in arguments if word not in _GENERAL), "")
    program = installed_program()
    # Workers inherit this variable, so that they print commands in the form that the user typed.
    os.environ.setdefault(cli.FORM, f"{shlex.quote(program) if program else 'python -m resnet_fn'} ")
    if name not in COMMANDS:
        cli.run("resnet_fn", list_commands, arguments)
    arguments.remove(name)
    module = f"resnet_fn.{name}"
    spec = importlib.util.find_spec(module)
    if spec and spec.submodule_search_locations:  # a package: its module __main__ is the command
        module += ".__main__"
    cli.run(name, importlib.import_module(module).main, arguments)


if __name__ == "__main__":
    run()
