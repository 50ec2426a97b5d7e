"""Compiled functions that are kept for the next process.

MindSpore can write a compiled function's graph to a file (`MS_COMPILER_CACHE_ENABLE`) and load it again. By itself it
compares neither the function nor its numbers with the file's, tells graphs apart by the order in which they are
compiled, and gives a loaded graph those Parameters alone that it was told of (none, for a function); the others are
whatever memory holds. So a graph is kept here under a key of all that it is made of (`key`), MindSpore finds it in a
folder of this process's own (`exchange`), and is told of every Parameter.
"""

import contextlib
import functools
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.runtime import versions
from resnet_fn.runtime.disk import sha256
from resnet_fn.runtime.graphs.exchange import Exchange
from resnet_fn.runtime.graphs.files import prune, read_graph, write_graph
from resnet_fn.runtime.graphs.key import NotCacheableError, ingredients

Compiled = Callable[..., Any]


def cache_folder() -> Path:
    """Where graphs are kept: resnet_fn/graphs in the user's cache folder (XDG_CACHE_HOME, or ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else Path.home() / ".cache", "resnet_fn", "graphs")


def open_cache(wanted: bool) -> "CompileCache":
    """The user's; one that keeps nothing where it is not wanted, or was not measured: a card, another MindSpore."""
    measured = versions.compile_cache_is_exact() and mindspore.get_context("device_target") == "CPU"
    if not (wanted and measured):
        return CompileCache(None)
    try:
        return CompileCache(cache_folder())
    except RuntimeError:  # a user without a home
        _warn("nothing is kept: there is no home folder; set XDG_CACHE_HOME, or --no-compile-cache")
        return CompileCache(None)


class CompileCache:
    """Compiles functions, or takes what an earlier process has compiled of equal ones.

    Args:
        folder: where graphs are kept, a file each; it need not exist. None: nothing is kept.

    Attributes:
        say: is told that compiling takes a while, or what spares it, once each.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.say: Callable[[str], None] = lambda _: None
        self._said: set[str] = set()

    def jit(self, function: Compiled) -> Compiled:
        """`mindspore.jit`, but that what the first call compiles is found or kept."""
        compiled = mindspore.jit(function)
        call: Compiled | None = functools.partial(self._first_call, function, compiled)

        def call_compiled(*inputs: Any) -> Any:
            nonlocal call
            if call is None:
                return compiled(*inputs)
            first, call = call, None
            return first(*inputs)

        return call_compiled

    def _first_call(self, function: Compiled, compiled: Compiled, *inputs: Any) -> Any:
        if self.folder is None:
            self._once(self.say, "compiling…")
            return compiled(*inputs)
        try:
            parts = ingredients(function, inputs)
        except NotCacheableError as error:
            _warn(f"{function.__name__} is compiled anew each time: {error}")
            return compiled(*inputs)
        key = parts.digest(_surroundings())
        entry = self.folder / f"{key}.graph"
        exchange = Exchange(key, parts, read_graph(entry, key))
        try:
            exchange.lay_out()
        except OSError as error:
            self._once(_warn, f"{tempfile.gettempdir()}: not used ({error.strerror or error}); make room there")
            self._once(self.say, "compiling…")
            return compiled(*inputs)
        if not exchange.offers:
            self._once(self.say, "compiling…")
        try:
            with exchange:
                result = compiled(*inputs)
        except RuntimeError as error:
            if "Cannot export" not in str(error):
                raise
            _warn(f"{function.__name__} is compiled anew each time: {first_line(error)}")
            return compiled(*inputs)
        if exchange.taken:
            self._once(self.say, f"compiled before: taken from {self.folder}")
            with contextlib.suppress(OSError):  # a folder that is only read
                os.utime(entry)  # the last use
        elif exchange.written and _sources() == _SOURCES:  # else of code that is no longer there
            try:
                write_graph(entry, key, exchange.written)
                prune(self.folder)
            except OSError as error:
                reason = error.strerror or error
                self._once(_warn, f"{self.folder}: nothing is kept ({reason}); mend it, or --no-compile-cache")
        return result

    def _once(self, tell: Callable[[str], None], text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            tell(text)


def _sources() -> str:
    """The SHA-256 of this package's code."""
    package = Path(__file__).parent.parent.parent
    return sha256(b"".join(sha256(path.read_bytes()).encode() for path in sorted(package.rglob("*.py"))))


_SOURCES = _sources()  # of the code that this process has loaded; files may change while it runs


def _surroundings() -> dict[str, Any]:
    """What a graph hangs on beside what it is made of."""
    prefixes = ("MS_DEV_", "MS_ENABLE_", "MS_JIT", "ONEDNN_", "DNNL_")
    return {
        "sources": _SOURCES,
        "versions": (versions.installed(), platform.python_version(), np.__version__),
        "machine": (platform.machine(), *map(mindspore.get_context, ("device_target", "mode", "jit_config"))),
        "environment": sorted(item for item in os.environ.items() if item[0].startswith(prefixes)),
    }


def _warn(text: str) -> None:
    print(f"warning: compile cache: {text}", file=sys.stderr, flush=True)
