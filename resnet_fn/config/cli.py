"""The parser, the flags, the one-line errors and the exit codes that all commands share.

    def main(arguments: Sequence[str]) -> int:
        parser = Parser("count", "Count the files of a folder.", usage="FOLDER")
        parser.add_argument("folder")
        parsed = parser.parse(arguments)  # an unknown flag raises a UsageError, with a hint
        raise_usage_errors((not os.path.isdir(parsed.folder), "FOLDER: does not exist; give one"))
        say(len(os.listdir(parsed.folder)))
        return 0

    run("count", main)  # exits with 0 for done, 1 for an error, 2 for a UsageError

`add_setting_flags` makes flags of settings, and `settings_in` returns their values.
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
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

from resnet_fn.config.declaration import (
    YES_NO_AUTO,
    Declaration,
    expand_home,
    explain,
    flag_name,
)
from resnet_fn.config.foreign_flags import advice_on_flag, advice_on_value
from resnet_fn.config.hints import closest_flag, hint_for_square_size, suggest_name
from resnet_fn.config.packages import how_to_install, versions_line
from resnet_fn.config.printing import say
from resnet_fn.config.wording import first_line, words_of

_YES_NO = ("true", "false", "yes", "no", "on", "off")
# The environment variable with what the user types before a command's name.
COMMAND_PREFIX_VARIABLE = "RESNET_FN_FORM"
# Arguments of `add_argument` for flags of several commands.
WHICH: dict[str, Any] = {
    "choices": ("last", "best"),
    "default": "last",
    "help": "checkpoint of a run; default last",
}
ALLOW_NON_FINITE: dict[str, Any] = {
    "action": "store_true",
    "help": "accept weights with NaN or infinity",
}


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


class Parser(argparse.ArgumentParser):
    """Parses flags as ArgumentParser does, but `parse` raises a UsageError for a wrong or
    abbreviated flag.
    """

    def __init__(self, command: str, description: str, epilog: str = "", usage: str = "") -> None:
        super().__init__(
            prog=with_typed_command(f"python -m resnet_fn.{command}"),
            usage=with_typed_command(
                " ".join(f"python -m resnet_fn.{command} {usage} [flags]".split())
            ).replace("%", "%%"),
            description=with_typed_command(description),
            epilog=with_typed_command(epilog),
            allow_abbrev=False,
            # fits 80 columns
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=30),
        )
        for kind, expected in ((int, "a whole number"), (float, "a number")):
            self.register("type", kind, partial(_number, kind, expected))
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")
        self.add_argument("--version", action=_Versions, help="show the versions, and exit")

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError instead of printing the usage and exiting."""
        message = message.removeprefix("argument ")
        if valued := re.fullmatch("(.+): ignored explicit argument (.+)", message):
            flags = valued[1].replace("/", " or ")
            message = f"{valued[2]} stands after a flag without a value; give {flags} alone"
        raise UsageError(message)

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse `arguments`, or `sys.argv` if `arguments` is None."""
        # flags may stand between RUN and its images
        parsed, unknown = self.parse_known_intermixed_args(arguments)
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        words = [word.partition("=")[0] for word in unknown if re.match("-[^0-9.]", word)]
        wrong = [f"unknown argument {word!r}; {hint_for_flag(word, flags)}" for word in words]
        if unknown and not wrong:
            wrong = [f"unknown argument {unknown[0]!r}; {_hint_for_word(unknown[0], flags)}"]
        if wrong:
            raise UsageError("; ".join(wrong))
        return parsed

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Replace ~, which a shell leaves in `--flag=~/…` and in quotes, and parse the flags."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args([_expand_home_in(word) for word in words], namespace)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help, which can contain values of a recipe file. ArgumentParser calls this."""
        say(*message.removesuffix("\n").split("\n"), stream=file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reject a value that is none of the flag's choices. ArgumentParser calls this method."""
        if action.choices is not None and value not in action.choices:
            hint = advice_on_value(action.dest, str(value)) or suggest_name(
                str(value), action.choices
            )
            raise argparse.ArgumentError(action, f"{value!r} is unknown; {hint}")


def _expand_home_in(word: str) -> str:
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return f"{flag}{equals}{expand_home(value)}" if value.startswith("~") else word


def hint_for_flag(word: str, flags: Collection[str]) -> str:
    """Return a hint about an unknown flag: advice on other projects' flags, or the nearest."""
    return advice_on_flag(word, flags) or closest_flag(word, flags)


def _hint_for_word(word: str, flags: Collection[str]) -> str:
    """Return a hint about an unknown argument that is no flag."""
    name, equals, value = word.partition("=")
    flag = f"--{name.replace('_', '-')}"
    if equals:  # as Hydra and ultralytics write settings
        return f"write {flag} {value}" if flag in flags else hint_for_flag(flag, flags)
    if "--data-dir" in flags and os.path.isdir(word):
        return f"if it is the folder of the data set, give --data-dir {word}"
    if "--milestones" in flags and re.fullmatch(r"[\d.]+", word):
        return "write several numbers with commas, as in --milestones 30,60"
    is_name = re.fullmatch(r"\w+(\.toml)?", word) and word.lower() not in _YES_NO
    if "--recipe" in flags and is_name:
        return f"if it is a recipe, give --recipe {word}; start a flag with --"
    return "start a flag with --, and give no value to a yes/no flag"


class _Versions(argparse.Action):
    """Prints the versions and exits. `action="version"` would look them up for every command."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        absent = argparse.SUPPRESS  # from the parsed namespace
        super().__init__(option_strings, absent, nargs=0, default=absent, **options)

    def __call__(self, *_: Any) -> NoReturn:
        """Print a line with the versions, as ArgumentParser asks for."""
        say(versions_line())
        raise SystemExit(0)


def pixels(text: str) -> int:
    """Return the size of an image. `add_argument` takes this function as `type`."""
    try:
        return int(text)
    except ValueError:
        fix = hint_for_square_size(text) or "give a whole number"
        raise argparse.ArgumentTypeError(f"{text!r} is invalid; {fix}") from None


def _number(kind: type, expected: str, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is invalid; give {expected}") from None


def add_checkpoint_flags(parser: Parser, positional: bool = True) -> None:
    """Add the flags that choose a trained net, and the argument RUN if `positional` is true."""
    what = "a run folder or a checkpoint folder"
    if positional:
        parser.add_argument("run", nargs="?", metavar="RUN", help=what)
        what = "run folder or checkpoint folder, in place of RUN"
    group = parser.add_argument_group("trained net")
    group.add_argument("--checkpoint", metavar="PATH", help=what)
    group.add_argument("--which", **WHICH)
    averaged = "use averaged weights; default: yes if the run has them"
    group.add_argument("--ema", action=argparse.BooleanOptionalAction, help=averaged)
    group.add_argument("--allow-non-finite", **ALLOW_NON_FINITE)


def chosen_checkpoint(parsed: argparse.Namespace) -> str:
    """Return the path that the user gave as RUN or as --checkpoint."""
    if bool(parsed.run) == bool(parsed.checkpoint):
        raise UsageError(
            "give either RUN or --checkpoint RUN, where RUN is a run folder or a checkpoint folder"
        )
    return parsed.run or parsed.checkpoint


def add_device_flags(parser: Parser) -> argparse._ArgumentGroup:
    """Add the flags --device and --threads, and return their argument group."""
    group = parser.add_argument_group("device")
    group.add_argument(
        "--device",
        choices=("CPU", "Ascend"),
        default="CPU",
        help="device that computes; default CPU",
    )
    group.add_argument(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="CPU kernel threads; default 0: all CPUs",
    )
    return group


def add_setting_flags(
    parser: Parser,
    *configs: Any,
    skip: Collection[str],
    first: Sequence[str] = (),
    shown: Collection[str] = (),
    heading: str = "",
) -> None:
    """Add a flag for each setting of `configs` (a recipe, options or both), except the settings in
    `skip`.

    The help shows the values in `configs`. The settings in `first` are listed first. If `shown` is
    not empty, the help lists only the settings in `shown`. If `heading` is not empty, it replaces
    the titles of the settings' groups. A flag that the user does not give is absent from the parsed
    namespace.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    settings = [
        (declared, getattr(config, name))
        for config in configs
        for name, declared in config.declarations.items()
        if name not in skip
    ]
    order = {name: index for index, name in enumerate(first)}
    settings.sort(key=lambda pair: order.get(pair[0].name, len(order)))
    for declared, value in settings:
        name = declared.name
        title = heading or ("most used" if name in first else declared.group)
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        text = argparse.SUPPRESS
        if not shown or name in shown:
            # ArgumentParser replaces %(default)s and the like
            text = explain(declared, value).replace("%", "%%")
        options = _options_of(declared)
        groups[title].add_argument(f"--{flag_name(name)}", **options, help=text)
        for alias in declared.aliases:
            parser.add_argument(f"--{alias}", **options, help=argparse.SUPPRESS)


def _options_of(declared: Declaration) -> dict[str, Any]:
    """Return the arguments of `add_argument` that follow from a setting's type."""
    options = {"default": argparse.SUPPRESS, "dest": declared.name}
    if isinstance(declared.default, bool) or declared.choices == YES_NO_AUTO:
        return {**options, "action": argparse.BooleanOptionalAction}
    kind = type(declared.default)
    metavar = {int: "N", float: "X", tuple: "X,X"}.get(kind, "NAME")
    return {**options, "type": partial(_convert, kind), "metavar": metavar}


def _convert(wanted: type, text: str) -> Any:
    try:
        if wanted is tuple:
            return tuple(float(part) for part in text.split(",") if part)
        return wanted(text)
    except ValueError:
        # `declaration.fault` rejects this text later, so that one error lists all wrong settings
        return text


def settings_in(parsed: argparse.Namespace, *settings_classes: Any) -> dict[str, Any]:
    """Return the parsed values of the settings of `settings_classes`."""
    names = {name for settings_class in settings_classes for name in settings_class.declarations}
    return {name: value for name, value in vars(parsed).items() if name in names}


def run(
    command: str, main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None
) -> NoReturn:
    """Run a command's `main`, print an error as one line on stderr, and exit with the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        # file names can have characters that the terminal lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    # warnings about odd metadata, which do not change the pixels
    warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        # train.py and __main__.py block it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        sys.exit(main(arguments))
    except UsageError as error:
        code = 2
        message = str(error)
    except BrokenPipeError:  # the reader of stdout has ended (`| head`)
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
    sys.last_value = SystemExit(code)  # for exit handlers, as after an uncaught exception
    sys.exit(code)


def _is_ours(error: Exception) -> bool:
    """Return whether a module of this package raised an error."""
    modules = [
        str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    return bool(modules) and modules[-1].startswith(("resnet_fn.", "__main__"))


def one_line(error: Exception) -> str:
    """Return the text of an error that a command prints, without line breaks."""
    if isinstance(error, OSError) and error.strerror:  # str(error) would start with "[Errno 28]"
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, ValueError | OSError) and str(error).strip():
        # An error of this package is one line, although a file's name in it may have several.
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
