"""Compiled functions that are kept for the next process.

MindSpore can write a compiled function's graph to a file (`MS_COMPILER_CACHE_ENABLE`) and load it again. By itself it
compares neither the function nor its numbers with the file's, tells graphs apart by the order in which they are
compiled, and gives a loaded graph those Parameters alone that it was told of (none, for a function); the others are
whatever memory holds. So a graph is kept here under a key of all that it is made of (`graph_key`), MindSpore finds it
in a folder of this process's own, and is told of every Parameter.
"""

import atexit
import functools
import os
import platform
import shutil
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
from resnet_fn.runtime.graph_files import prune, read_graph, write_graph
from resnet_fn.runtime.graph_key import Ingredients, NotCacheableError, ingredients
from resnet_fn.runtime.workers import join, launched_by_msrun

_SWITCH, _PLACE = "MS_COMPILER_CACHE_ENABLE", "MS_COMPILER_CACHE_PATH"

Compiled = Callable[..., Any]


def cache_folder() -> Path:
    """Where graphs are kept: resnet_fn/graphs in the user's cache folder (XDG_CACHE_HOME, or ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else Path.home() / ".cache", "resnet_fn", "graphs")


def open_cache(wanted: bool) -> "CompileCache":
    """The user's; one that keeps nothing where it is not wanted, or was not measured: a card, another MindSpore."""
    measured = versions.compile_cache_is_exact() and mindspore.get_context("device_target") == "CPU"
    return CompileCache(cache_folder() if wanted and measured else None)


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
            self._say("compiling…")
            return compiled(*inputs)
        try:
            parts = ingredients(function, inputs)
        except NotCacheableError as error:
            _warn(f"{function.__name__} is compiled anew each time: {error}")
            return compiled(*inputs)
        key = parts.digest(_surroundings())
        entry = self.folder / f"{key}.graph"
        exchange = _Exchange(key, parts, read_graph(entry, key))
        if not exchange.offers:
            self._say("compiling…")
        try:
            with exchange:
                result = compiled(*inputs)
        except RuntimeError as error:
            if "Cannot export" not in str(error):
                raise
            _warn(f"{function.__name__} is compiled anew each time: {first_line(error)}")
            return compiled(*inputs)
        try:
            if exchange.taken:
                self._say(f"compiled before: taken from {self.folder}")
                os.utime(entry)  # the last use
            elif exchange.written:
                self.folder.mkdir(parents=True, exist_ok=True)
                write_graph(entry, key, exchange.written)
                prune(self.folder)
        except OSError as error:
            _warn(f"{self.folder}: no graph can be kept ({error.strerror or error}); free it, or --no-compile-cache")
        return result

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.say(text)


class _Exchange:
    """As a context: MindSpore compiles with its own cache on, in a folder of this process.

    Args:
        key, parts: the graph's.
        kept: the graph, for MindSpore to take; None: there is none yet.

    Attributes:
        offers: whether MindSpore has a graph to take.
        taken: afterwards, whether MindSpore took it.
        written: afterwards, the graph that MindSpore has compiled; b"": it takes a Parameter that `parts` lacks.
    """

    # MindSpore numbers its files by the graphs that it has compiled with its cache on, reads the folder's name once,
    # and looks for nothing more once it has not found a graph.
    _number = 0
    _looks = True

    def __init__(self, key: str, parts: Ingredients, kept: bytes | None) -> None:
        self._parts, self._text = parts, f"{key!r}\n".encode()
        self._kept = kept if _Exchange._looks else None
        self.offers = self._kept is not None
        self.taken, self.written = False, b""

    def __enter__(self) -> "_Exchange":
        work = _work_folder()
        folder = work / f"rank_{join().rank}" / "graph_cache"
        role = os.environ["MS_ROLE"] if launched_by_msrun() else ""
        self._file = folder / f"{role}compile_cache_{_Exchange._number}.mindir"
        _Exchange._number += 1
        # The one source file that the graph hangs on, for MindSpore; it compares the hash of the files' hashes.
        (work / "key.py").write_bytes(self._text)
        if self._kept is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file.write_bytes(self._kept)
            os.utime(self._file, ns=(0, 0))
            hashes = folder / f"{role}compile_dependency.hash"
            hashes.unlink(missing_ok=True)  # MindSpore leaves it read-only
            hashes.write_text(sha256(sha256(self._text).encode()))
        self._program, _api().entry_script_path = _api().entry_script_path, str(work / "key.py")
        self._environment = {name: os.environ.get(name) for name in (_SWITCH, _PLACE)}
        os.environ |= {_SWITCH: "1", _PLACE: str(work)}
        self._phases = set(_api().ms_compile_cache)
        _executor().set_weights_values(self._parts.parameters)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _executor().set_weights_values({})
        for name, value in self._environment.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        _api().entry_script_path = self._program
        if kind is not None:
            _Exchange._looks = False
        elif self._file.exists():
            self.taken = self._file.stat().st_mtime_ns == 0
            if not self.taken and self._is_whole():
                self.written = self._file.read_bytes()
            _Exchange._looks = self.taken
        self._file.unlink(missing_ok=True)

    def _is_whole(self) -> bool:
        """Whether the graph's Parameters are those that its ingredients name: no other is there when it is loaded."""
        new = set(_api().ms_compile_cache) - self._phases
        graph = [name for phase in new for name in _executor().get_params(phase)]
        return len(new) == 1 and set(graph) <= set(self._parts.parameters)


def _api() -> Any:
    from mindspore.graph import api  # where 2.10 has it

    return api


def _executor() -> Any:
    from mindspore._c_expression import JitExecutor_

    return JitExecutor_.get_instance()


@functools.cache
def _work_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="resnet_fn-graphs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def _sources() -> str:
    """The SHA-256 of this package's code."""
    package = Path(__file__).parent.parent
    return sha256(b"".join(sha256(path.read_bytes()).encode() for path in sorted(package.rglob("*.py"))))


def _surroundings() -> dict[str, Any]:
    """What a graph hangs on beside what it is made of."""
    prefixes = ("MS_DEV_", "MS_ENABLE_", "MS_JIT", "ONEDNN_")
    return {
        "sources": _sources(),
        "versions": (versions.installed(), platform.python_version(), np.__version__),
        "machine": (platform.machine(), mindspore.get_context("device_target"), mindspore.get_context("mode")),
        "environment": sorted(item for item in os.environ.items() if item[0].startswith(prefixes)),
    }


def _warn(text: str) -> None:
    print(f"warning: compile cache: {text}", file=sys.stderr, flush=True)
