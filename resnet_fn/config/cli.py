"""The parser, the one-line errors and the exit codes that all commands share.

    def main(arguments: Sequence[str]) -> int:
        parser = Parser("count", "Count the files of a folder.", usage="FOLDER")
        parser.add_argument("folder")
        parsed = parser.parse(arguments)  # an unknown flag raises a UsageError, with a hint
        raise_usage_errors((not os.path.isdir(parsed.folder), "FOLDER: does not exist; give one"))
        say(len(os.listdir(parsed.folder)))
        return 0

    run("count", main)  # exits with what `main` returns; for errors, see `run`

`shared_flags` has the flags that several commands share.
"""

import argparse
import contextlib
import io
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

from resnet_fn.config.flag_hints import hint_for_flag, hint_for_word
from resnet_fn.config.hints import hint_for_value
from resnet_fn.config.packages import how_to_install, versions_line
from resnet_fn.config.printing import say
from resnet_fn.config.values import expand_home
from resnet_fn.config.wording import first_line, words_of

# The environment variable with what the user types before a command's name.
COMMAND_PREFIX_VARIABLE = "RESNET_FN_FORM"


def with_typed_command(text: str) -> str:
    """Replace `python -m resnet_fn.` in `text` by what the user typed, for example `resnet_fn `."""
    return re.sub(
        r"python -m resnet_fn\.(?=\w)",
        lambda _: os.environ.get(COMMAND_PREFIX_VARIABLE, "python -m resnet_fn."),
        text,
    )


class UsageError(ValueError):
    """Raised if a flag or its value is wrong. The command then ends with exit code 2."""


def raise_usage_errors(*faults: tuple[object, str]) -> None:
    """Raise a UsageError with the texts of all true conditions, of pairs (condition, text)."""
    if wrong := [text for is_so, text in faults if is_so]:
        raise UsageError("; ".join(wrong))


@contextlib.contextmanager
def as_usage_error() -> Iterator[None]:
    """Turn a ValueError into a UsageError inside a `with` block."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None


def run(
    command: str, main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None
) -> NoReturn:
    """Run a command's `main`, print an error as one line on stderr, and exit.

    Exit codes: what `main` returns; 1: an error; 2: a UsageError; 130: Ctrl-C; 141: the reader of
    stdout has ended.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        # file names can have characters that the terminal lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    # warnings about odd metadata, which do not change the pixels
    warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        # train.py and __main__.py block it while modules are loaded; from here on, Ctrl-C works
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        sys.exit(main(arguments))
    except UsageError as error:
        code = 2
        message = str(error)
    except BrokenPipeError:  # as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        code = 130
        message = "interrupted"
    except Exception as error:
        if "--debug" in arguments:
            say(*traceback.format_exc().rstrip().split("\n"), stream=sys.stderr)
        code = 1
        message = one_line(error)
    say(f"{command}: error: {with_typed_command(message)}", stream=sys.stderr)
    # As after an uncaught exception: failed_worker.py reads the exit code of this worker from it.
    sys.last_value = SystemExit(code)
    sys.exit(code)


def one_line(error: Exception) -> str:
    """Return an error's text, in which only a file's name may have line breaks.

    `say` escapes them. Callers that print or store the text in another way must do it themselves.
    """
    if isinstance(error, OSError) and error.strerror:  # str(error) would start with "[Errno 28]"
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, ValueError | OSError) and str(error).strip():
        # An error of this package is one line, except for a file's name in it.
        return str(error) if _is_ours(error) else first_line(error)
    if isinstance(error, ModuleNotFoundError) and (fix := how_to_install(str(error.name))):
        return f"{str(error.name).partition('.')[0]} is not installed; {fix}"
    if "can't start new thread" in str(error):
        return (
            "the system starts no more threads for this process; "
            "raise its limits (ulimit -u, ulimit -v)"
        )
    if isinstance(error, MemoryError):
        return f"out of memory ({first_line(error)}); give smaller images or a smaller batch"
    return f"{words_of(error)} (--debug shows the traceback)"


def _is_ours(error: Exception) -> bool:
    """Return whether a module of this package raised an error."""
    modules = [
        str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    return bool(modules) and modules[-1].startswith(("resnet_fn.", "__main__"))


class Parser(argparse.ArgumentParser):
    """Parses flags as ArgumentParser does, but `parse` raises a UsageError for a wrong or
    abbreviated flag.
    """

    def __init__(self, command: str, description: str, epilog: str = "", usage: str = "") -> None:
        program = with_typed_command(f"python -m resnet_fn.{command}")
        command_line = f"{program} {usage} [flags]" if usage else f"{program} [flags]"
        super().__init__(
            prog=program,
            usage=command_line.replace("%", "%%"),  # ArgumentParser replaces %(prog)s
            description=with_typed_command(description),
            epilog=with_typed_command(epilog),
            allow_abbrev=False,
            # fits 80 columns
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=30),
        )
        # so that an error of a flag with `type=int` or `type=float` is in our words
        for kind, expected in ((int, "a whole number"), (float, "a number")):
            self.register("type", kind, partial(_number, kind, expected))
        self.add_argument(
            "--debug",
            action="store_true",
            help="show the traceback of an error, but not of a wrong flag",
        )
        self.add_argument("--version", action=_Versions, help="show the versions, and exit")

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError instead of printing the usage and exiting."""
        message = message.removeprefix("argument ")
        # argparse's text for --flag=value, if the flag takes no value
        if valued := re.fullmatch("(.+): ignored explicit argument (.+)", message):
            flags = valued[1].replace("/", " or ")
            message = f"{valued[2]} stands after a flag without a value; give {flags} alone"
        raise UsageError(message)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse `arguments`, in which ~ stands for the home folder."""
        expanded = list(map(_expand_home_in, arguments))
        parsed, unknown = self.parse_known_intermixed_args(expanded)  # flags between RUN and images
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        # not -1 or -.5, which are numbers
        unknown_flags = [word.partition("=")[0] for word in unknown if re.match("-[^0-9.]", word)]
        wrong = [
            f"unknown argument {flag!r}; {hint_for_flag(flag, flags)}" for flag in unknown_flags
        ]
        # Words without a dash are named only without unknown flags, whose values they can be, and only
        # the first, because the next one can be its value, as in `epochs 30`.
        if unknown and not wrong:
            wrong = [f"unknown argument {unknown[0]!r}; {hint_for_word(unknown[0], flags)}"]
        if wrong:
            raise UsageError("; ".join(wrong))
        return parsed

    def parse_known(self, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Parse the flags that the parser has, and return all other arguments, too. ~ stands for
        the home folder.
        """
        return self.parse_known_args(list(map(_expand_home_in, arguments)))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help, which can contain values of a recipe file. ArgumentParser calls this."""
        say(*message.removesuffix("\n").split("\n"), stream=file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reject a value that is none of the flag's choices. ArgumentParser calls this method."""
        if action.choices is not None and value not in action.choices:
            hint = hint_for_value(action.dest, str(value), action.choices)
            raise argparse.ArgumentError(action, f"{value!r} is unknown; {hint}")


def _expand_home_in(word: str) -> str:
    """Replace ~, which a shell leaves in `--flag=~/…` and in quotes."""
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return f"{flag}{equals}{expand_home(value)}" if value.startswith("~") else word


class _Versions(argparse.Action):
    """Prints the versions and exits. `action="version"` would look them up for every command."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        absent = argparse.SUPPRESS  # from the parsed namespace
        super().__init__(option_strings, absent, nargs=0, default=absent, **options)

    def __call__(self, *_: Any) -> NoReturn:
        """Print a line with the versions, as ArgumentParser asks for."""
        say(versions_line())
        raise SystemExit(0)


def _number(kind: type, expected: str, text: str) -> Any:
    """Return a flag's value as an int or a float. ArgumentParser calls this function."""
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is invalid; give {expected}") from None
