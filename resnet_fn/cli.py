"""Commands: flags made from dataclass fields, errors in one line, exit codes.

Exit codes: 0 done; 1 an error, in one line on stderr (`--debug` shows the traceback); 2 wrong usage; 143
(SIGTERM) and 130 (SIGINT): stopped by a signal, with a checkpoint saved.
"""

import argparse
import dataclasses
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from resnet_fn.config import closest


class UsageError(ValueError):
    """A wrong flag or value: exit code 2."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers mistakes in one line and never guesses abbreviations."""

    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"python -m resnet_fn.{command}",
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise UsageError(message.replace("argument ", "", 1))

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse, and name the nearest flag for one that does not exist."""
        parsed, unknown = self.parse_known_args(arguments)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            word = unknown[0].split("=")[0]
            hint = closest(word, flags) if word.startswith("-") else "flags start with --; yes/no flags take no value"
            raise UsageError(f"unknown argument {unknown[0]!r}; {hint}")
        return parsed


def add_fields(parser: argparse.ArgumentParser, title: str, dataclass: type, skip: Iterable[str] = ()) -> None:
    """Add one flag for each field of a dataclass, its help from the field's metadata.

    Flags that are not given do not appear in the parsed namespace, so that a recipe's own values stay.
    """
    group = parser.add_argument_group(title)
    for field in dataclasses.fields(dataclass):
        if field.name in skip:
            continue
        meaning, unit, choices = (field.metadata[key] for key in ("meaning", "unit", "choices"))
        if choices:
            meaning += f" ({', '.join(choice for choice in choices if choice)})"
        unit = f" [{unit}]" if unit else ""
        default = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        options: dict[str, Any] = {
            "help": f"{meaning}{unit}; default {default}" if default != "" else f"{meaning}{unit}",
            "default": argparse.SUPPRESS,
            "dest": field.name,
        }
        if isinstance(field.default, bool):
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = _converter(type(field.default))
            options["metavar"] = {int: "N", float: "X", tuple: "X,X"}.get(type(field.default), "NAME")
        group.add_argument("--" + field.name.replace("_", "-"), **options)


def _converter(wanted: type) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            if wanted is tuple:
                return tuple(float(part) for part in text.split(",") if part)
            return wanted(text)
        except ValueError:
            kind = {int: "a whole number", float: "a number", tuple: "numbers with commas"}[wanted]
            raise argparse.ArgumentTypeError(f"{text!r} is not {kind}") from None

    return convert


def given(parsed: argparse.Namespace, dataclass: type) -> dict[str, Any]:
    """The fields of `dataclass` that were given as flags."""
    names = {field.name for field in dataclasses.fields(dataclass)}
    return {name: value for name, value in vars(parsed).items() if name in names}


def run(command: str, main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave the process with its exit code; an error is one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        sys.exit(main(arguments))
    except UsageError as error:
        code, message = 2, str(error)
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        code, message = 1, _one_line(error)
    print(f"{command}: error: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


def _one_line(error: Exception) -> str:
    lines = [line.strip(" -") for line in str(error).splitlines()]
    text = next((line for line in lines if line), "")
    if isinstance(error, ValueError | OSError) and text:
        return text
    # Not one of our own messages: say what it was, and how to see more.
    return f"{type(error).__name__}: {text} (--debug shows the traceback)"
