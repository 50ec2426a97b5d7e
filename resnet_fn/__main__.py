"""The program `resnet_fn` runs a command of this package, or lists all commands."""

import signal
import sys

# the installed command, which imports this module
if __name__ == "__main__" or sys.argv[0].endswith("/resnet_fn"):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # train.py gives the reason

import importlib.util
import os
import shlex
from collections.abc import Sequence
from typing import NoReturn

from resnet_fn.config import cli
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.packages import versions_line
from resnet_fn.runtime.console import installed_program

_TRAINER = {
    "train": "train a net; without flags, on small digits",
    "launch": "train on several workers or machines",
    "evaluate": "score a checkpoint on its validation set",
    "predict": "name the likeliest classes of image files",
    "export": "write MindIR, ONNX or safetensors, and verify",
    "plot": "draw the curves of runs, or compare runs",
    "recipes": "list the recipes, or show one's settings",
    "convert": "convert weights to other names or formats",
    "inspect": "show a checkpoint's weights, or compare two",
    "pack": "write an image folder as MindRecord files",
}
_LADDER = {"parity": "compare a port with its original in PyTorch"}
_BOTH = {"doctor": "test whether this machine can train"}
COMMANDS = _TRAINER | _LADDER | _BOTH
_HALVES = {
    "The trainer trains residual networks on pictures, in a loop that you can read:": _TRAINER,
    "The ladder proves that a net which was ported from PyTorch computes the same\n"
    "training step as the original, or names the first difference:": _LADDER,
    "For both:": _BOTH,
}
_GENERAL = ("-h", "--help", "--version", "--debug")


def list_commands(arguments: Sequence[str]) -> int:
    """Print all commands with their purposes, or the versions."""
    for word in arguments:
        if word not in _GENERAL:
            hint = suggest_name(word, [*COMMANDS, *_GENERAL], COMMANDS)
            raise cli.UsageError(f"unknown argument {word!r}; {hint}")
    if "--version" in arguments:
        print(versions_line())
        return 0
    program = cli.with_typed_command("python -m resnet_fn.COMMAND")
    print(f"usage: {program} [flags]\nA command's flags: {program} --help. Versions: --version.")
    for title, commands in _HALVES.items():
        print(f"\n{title}\n")
        for name, purpose in commands.items():
            print(cli.with_typed_command(f"  python -m resnet_fn.{name:10} {purpose}"))
    return 0


def run() -> NoReturn:
    """Run the command that the user typed after `resnet_fn` or `python -m resnet_fn`."""
    arguments = sys.argv[1:]
    name = next((word for word in arguments if word not in _GENERAL), "")
    program = installed_program()
    # Workers inherit this variable, so that they print commands in the form that the user typed.
    os.environ.setdefault(
        cli.COMMAND_PREFIX_VARIABLE,
        f"{shlex.quote(program) if program else 'python -m resnet_fn'} ",
    )
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
