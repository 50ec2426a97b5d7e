"""Functions of the user's own, named as FILE:FUNCTION, and what they return."""

import argparse
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from resnet_fn.config.cli import UsageError
from resnet_fn.config.fields import flag_name
from resnet_fn.config.hints import first_line, near_path

_ALSO_CHOICES = ("loss", "optimizer")  # whose flags take one of the recipe's names too


def is_place(text: str) -> bool:
    """Whether a value names a function in a file, and not a choice."""
    return ":" in text or text.endswith(".py")


def load_function(place: str, flag: str) -> Any:
    """Import FILE and return its FUNCTION, from "path/to/file.py:function".

    Raises:
        UsageError: the file or the function is not there.
        ValueError: the file cannot be imported.
    """
    path, _, name = place.rpartition(":")
    if not path or not name:
        raise UsageError(f"{flag}: {place!r} is not FILE:FUNCTION; give for example nets/mine.py:build")
    if not Path(path).is_file():
        raise UsageError(f"{flag}: there is no file {path}; {near_path(path, 'give FILE.py:FUNCTION')}")
    spec = importlib.util.spec_from_file_location(f"resnet_fn_user_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{flag}: {path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # jit looks functions up by their module
    sys.path.append(str(Path(path).resolve().parent))  # for what the file imports from beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{flag}: {path} cannot be imported ({type(error).__name__}: {first_line(error)})") from error
    if not callable(getattr(module, name, None)):
        raise UsageError(f"{flag}: {path} has no function {name!r}")
    return getattr(module, name)


def load_functions(parsed: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The functions that the flags of these names give; a loss or an optimizer that is a name is none of them.

    Raises:
        UsageError, ValueError: see `load_function`.
    """
    return {
        name: load_function(place, f"--{flag_name(name)}")
        for name in names
        if (place := getattr(parsed, name)) and (is_place(place) or name not in _ALSO_CHOICES)
    }


def returned(flag: str, place: str, value: Any, wanted: type, words: str) -> Any:
    """What the user's function returned, if it is what it must be.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, type) or not isinstance(value, wanted):
        what = f"the class {value.__name__}" if isinstance(value, type) else f"{type(value).__name__}"
        raise ValueError(f"{flag}: {place} returned {what}; return {words}")
    return value
