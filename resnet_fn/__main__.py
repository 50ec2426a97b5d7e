"""The program `resnet_fn` runs a command of this package, or lists all commands."""

import signal
import sys

if __name__ == "__main__" or sys.argv[0].endswith("/resnet_fn"):  # the installed command, which imports this module
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # train.py gives the reason

import importlib.util
import os
import shlex
from collections.abc import Sequence
from typing import NoReturn

from resnet_fn.config import cli
from resnet_fn.config.hints import closest
from resnet_fn.runtime.console import installed_program

COMMANDS = {
    "train": "train a net",
    "launch": "train on several workers or machines",
    "evaluate": "score a checkpoint on its validation set",
    "predict": "name the likeliest classes of image files",
    "export": "write a checkpoint's net as MindIR, ONNX or safetensors, and verify the file",
    "plot": "draw the curves of runs, or compare runs in a table",
    "recipes": "list the recipes, or show the settings of one",
    "doctor": "test whether this machine can train",
    "convert": "convert weights to other parameter names or another file format",
    "inspect": "show or compare checkpoints, or show a net's activations and gradients",
    "pack": "write an image folder as MindRecord files",
    "parity": "compare a net and its training step, stage by stage, with PyTorch",
}
_GENERAL = ("-h", "--help", "--debug")


def list_commands(arguments: Sequence[str]) -> int:
    """Print all commands with their purposes."""
    for word in arguments:
        if word not in _GENERAL:
            raise cli.UsageError(f"unknown argument {word!r}; {closest(word, COMMANDS)}")
    print("Train residual networks on MindSpore with a functional loop that you can read.\n")
    print("commands (COMMAND --help shows the flags):")
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
