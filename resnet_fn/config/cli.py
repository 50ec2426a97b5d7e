"""All commands share these flags, one-line errors and exit codes.

Exit codes: 0 success; 1 an error, in one line on stderr (`--debug` shows the traceback); 2 wrong usage; 143
(SIGTERM), 130 (SIGINT), 129 (SIGHUP): a signal stopped the run, which saved a checkpoint.
"""

import argparse
import contextlib
import dataclasses
import io
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from resnet_fn.config.fields import YES_NO_AUTO, explain, flag_name
from resnet_fn.config.hints import closest_flag, first_line

_NEEDED = ("mindspore", "numpy", "tqdm", "tensorboardX")  # setup.cfg's install_requires
# Flags of other projects, with the flag here that does the same, and the hint.
_THREADS = "give --data-threads N for N threads, or python -m resnet_fn.launch --workers N -- for N processes"
_ELSEWHERE = {
    "--amp": ("--precision", "give --precision fp16"),
    "--gpu": ("--device", "MindSpore computes on CPUs and Ascend cards: give --device CPU or --device Ascend"),
    "--workers": ("--data-threads", _THREADS),
    "--num-workers": ("--data-threads", _THREADS),
}
FORM = "RESNET_FN_FORM"  # in the environment: what is typed before a command's name, unless "python -m resnet_fn."


def as_typed(text: str) -> str:
    """Return a text with `python -m resnet_fn.train` replaced by `resnet_fn train` if the user typed that form."""
    return re.sub(r"python -m resnet_fn\.(?=\w)", lambda _: os.environ.get(FORM, "python -m resnet_fn."), text)


class UsageError(ValueError):
    """A wrong flag or value: exit code 2."""


# Arguments of `add_argument` for flags of several commands.
WHICH: dict[str, Any] = {"choices": ("last", "best"), "default": "last", "help": "of a run folder; default last"}
ALLOW_NON_FINITE: dict[str, Any] = {"action": "store_true", "help": "take weights with NaN or infinity in them"}


def raise_usage_errors(*faults: tuple[object, str]) -> None:
    """Raise a UsageError with the texts of those pairs (condition, text) whose condition is true."""
    if wrong := [text for is_so, text in faults if is_so]:
        raise UsageError("; ".join(wrong))


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """In this context a ValueError becomes a UsageError: its cause is what the user typed."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None


class Parser(argparse.ArgumentParser):
    """This ArgumentParser raises UsageErrors and accepts no abbreviated flags; `usage` names the required arguments."""

    def __init__(self, command: str, description: str, epilog: str = "", usage: str = "") -> None:
        super().__init__(
            prog=as_typed(f"python -m resnet_fn.{command}"),
            usage=as_typed(" ".join(f"python -m resnet_fn.{command} {usage} [flags]".split())),
            description=as_typed(description),
            epilog=as_typed(epilog),
            allow_abbrev=False,
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=30),  # fits 80 columns
        )
        for kind, wanted in ((int, "a whole number"), (float, "a number")):
            self.register("type", kind, partial(_number, kind, wanted))
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError, where argparse would print the usage and exit."""
        raise UsageError(message.removeprefix("argument "))

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse `arguments` (default: sys.argv); a UsageError lists all unknown flags, each with the nearest name."""
        parsed, unknown = self.parse_known_intermixed_args(arguments)  # flags may stand between RUN and its images
        flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
        words = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        hints = {word: hint for word, (ours, hint) in _ELSEWHERE.items() if ours in flags}
        wrong = [f"unknown argument {word!r}; {hints.get(word) or closest_flag(word, flags)}" for word in words]
        if unknown and not wrong:
            wrong = [f"unknown argument {unknown[0]!r}; flags start with --; yes/no flags take no value"]
        if wrong:
            raise UsageError("; ".join(wrong))
        return parsed


def _number(kind: type, wanted: str, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is invalid; give {wanted}") from None


def add_checkpoint_flags(parser: Parser, positional: bool = True) -> None:
    """Add the flags that choose a trained net; with `positional`, RUN may be given without --checkpoint."""
    if positional:
        parser.add_argument("run", nargs="?", metavar="RUN", help="a run folder or a checkpoint folder")
    group = parser.add_argument_group("which net")
    same = "the same as RUN" if positional else "a run folder or a checkpoint folder"
    group.add_argument("--checkpoint", metavar="PATH", help=same)
    group.add_argument("--which", **WHICH)
    averaged = "averaged weights; default: where there are any"
    group.add_argument("--ema", action=argparse.BooleanOptionalAction, help=averaged)
    group.add_argument("--allow-non-finite", **ALLOW_NON_FINITE)


def chosen_checkpoint(parsed: argparse.Namespace) -> str:
    """Return the path given as RUN or as --checkpoint; a UsageError if both or neither are given."""
    if bool(parsed.run) == bool(parsed.checkpoint):
        raise UsageError("give either RUN or --checkpoint RUN: a run folder or a checkpoint folder")
    return parsed.run or parsed.checkpoint


def add_device_flags(parser: Parser) -> argparse._ArgumentGroup:
    """Add the flags --device and --threads; return their argument group."""
    group = parser.add_argument_group("where it is computed")
    group.add_argument("--device", choices=("CPU", "Ascend"), default="CPU", help="default CPU")
    group.add_argument("--threads", type=int, default=0, metavar="N", help="CPU kernel threads; 0: all CPUs")
    return group


def add_fields(
    parser: argparse.ArgumentParser, *configs: Any, skip: Collection[str] = (), shown: Collection[str] = ()
) -> None:
    """Add one flag for each setting except `skip`; a flag that the user does not give is absent from the namespace.

    `configs` are `Recipe`, `RunOptions` or instances of them; the help shows their values, with a * if they are not the
    defaults. The help lists only the settings `shown`; all if `shown` is empty.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    fields = [(config, field) for config in configs for field in dataclasses.fields(config) if field.name not in skip]
    for config, field in fields:
        name, title = field.name, field.metadata["group"]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "dest": name}
        if isinstance(field.default, bool) or field.metadata["choices"] == YES_NO_AUTO:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = partial(_convert, type(field.default))
            options["metavar"] = {int: "N", float: "X", tuple: "X,X"}.get(type(field.default), "NAME")
        text = explain(field, getattr(config, name)) if not shown or name in shown else argparse.SUPPRESS
        groups[title].add_argument(f"--{flag_name(name)}", **options, help=text)
        for alias in field.metadata["aliases"]:
            parser.add_argument(f"--{alias}", **options, help=argparse.SUPPRESS)


def _convert(wanted: type, text: str) -> Any:
    try:
        return tuple(float(part) for part in text.split(",") if part) if wanted is tuple else wanted(text)
    except ValueError:
        return text  # `fields.fault` rejects this text later, so that one error lists all wrong settings


def settings_in(parsed: argparse.Namespace, *settings_classes: type) -> dict[str, Any]:
    """Return, by name, the values in `parsed` that are fields of these dataclasses."""
    names = {field.name for settings_class in settings_classes for field in dataclasses.fields(settings_class)}
    return {name: value for name, value in vars(parsed).items() if name in names}


def file_to_write(text: str) -> str:
    """Return the path of a file to write after checking that it can be written; for argparse's `type`."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; give a file in a folder that is there")
    return text


def folder_to_write(text: str) -> str:
    """Return the path of a folder to write, which may be missing, after checking that it can be; argparse's `type`."""
    there = next(place for place in (Path(text), *Path(text).absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; give another folder")
    return text


def write_text(file: str, text: str) -> None:
    """Write a result file; a ValueError names it if it cannot be written (a full disk's own error does not)."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{file}: cannot be written ({error.strerror}); make room, or give another file") from None


def run(command: str, main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command's `main` and exit with its code; an error is printed as one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for file names with characters that the terminal lacks
    warnings.filterwarnings("ignore", module=r"PIL\.")  # about odd metadata, which leave the pixels correct
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked in train.py, __main__.py
        sys.exit(main(arguments))
    except UsageError as error:
        code, message = 2, str(error)
    except BrokenPipeError:  # the reader of stdout has ended (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        code, message = 1, _one_line(error)
    print(f"{command}: error: {as_typed(message)}", file=sys.stderr, flush=True)
    sys.exit(code)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:  # str(error) would start with "[Errno 28]"
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, ValueError | OSError) and str(error).strip():
        return first_line(error)
    if isinstance(error, ModuleNotFoundError) and (name := str(error.name).partition(".")[0]) in _NEEDED:
        return f"{name} is not installed; in the folder of the clone: pip install ."
    if "can't start new thread" in str(error):
        return "the system starts no more threads for this process; raise its limits (ulimit -u, ulimit -v)"
    if isinstance(error, MemoryError):
        return f"out of memory ({first_line(error)}); give smaller images or a smaller batch"
    return f"{type(error).__name__}: {first_line(error)} (--debug shows the traceback)"
