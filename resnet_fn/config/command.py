"""How a command runs and ends: its exit code, and the line that it prints for an error."""

import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from resnet_fn.config.cli import UsageError, with_typed_command
from resnet_fn.config.packages import how_to_install
from resnet_fn.config.printing import say
from resnet_fn.config.wording import first_line, words_of


def run_command(
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
