"""Compiled functions that are kept for the next process.

MindSpore can write a compiled function's graph to a file (`MS_COMPILER_CACHE_ENABLE`) and load it again. By itself it
compares neither the function nor its numbers with the file, tells graphs apart by the order of their compilation, and
leaves a loaded graph's Parameters to whatever memory holds, but for those that the caller names. So graphs are kept
here under a key of all that they are made of (`key`), and handed to MindSpore in a folder of this process's own
(`Exchange`), with the names of all Parameters.
"""

import atexit
import contextlib
import functools
import os
import platform
import pwd
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.graphs.key import Ingredients, NotCacheableError, ingredients
from resnet_fn.runtime import versions
from resnet_fn.runtime.disk import replace_file, sha256
from resnet_fn.runtime.workers import join, launched_by_msrun

Compiled = Callable[..., Any]


def cache_folder() -> Path:
    """The folder of graphs in the user's cache folder (XDG_CACHE_HOME, or ~/.cache); a KeyError without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # Path.home() takes / for an empty HOME
        base = os.path.join(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir, ".cache")
    return Path(base, "resnet_fn", "graphs")


def open_cache(wanted: bool) -> "CompileCache":
    """The user's cache; one that keeps nothing if not `wanted`, on a card, or with another MindSpore than measured."""
    measured = versions.compile_cache_is_exact() and mindspore.get_context("device_target") == "CPU"
    if not (wanted and measured):
        return CompileCache(None)
    try:
        return CompileCache(cache_folder())
    except KeyError:
        _warn("not used: there is no home folder; set XDG_CACHE_HOME")
        return CompileCache(None)


class CompileCache:
    """Compiles functions, or takes what an earlier process has compiled of equal ones.

    Attributes:
        folder: where graphs are kept, a file each; it need not exist. None: nothing is kept.
        say: called with a line, once, when a function is compiled and when one is taken from the cache.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.say: Callable[[str], None] = lambda _: None
        self._lines: set[str] = set()

    def jit(self, function: Compiled) -> Compiled:
        """`mindspore.jit`, but the first call takes the compiled function from the cache, or adds it."""
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
        elif exchange.written and versions.sources() == _SOURCES:  # else files have changed meanwhile
            try:
                write_graph(entry, key, exchange.written)
                prune(self.folder)
            except OSError as error:
                fix = "make it writable, or set XDG_CACHE_HOME"
                self._once(_warn, f"{self.folder}: not used ({error.strerror or error}); {fix}")
        return result

    def _once(self, tell: Callable[[str], None], text: str) -> None:
        if text not in self._lines:
            self._lines.add(text)
            tell(text)


_SOURCES = versions.sources()  # of the code that this process has loaded; files may change while it runs


def _surroundings() -> dict[str, Any]:
    """What a graph depends on beside its own parts."""
    prefixes = ("MS_DEV_", "MS_ENABLE_", "MS_JIT", "ONEDNN_", "DNNL_")
    return {
        "sources": _SOURCES,
        "versions": (versions.installed(), platform.python_version(), np.__version__),
        "machine": (platform.machine(), *map(mindspore.get_context, ("device_target", "mode", "jit_config"))),
        "environment": sorted(item for item in os.environ.items() if item[0].startswith(prefixes)),
    }


def _warn(text: str) -> None:
    print(f"warning: compile cache: {text}", file=sys.stderr, flush=True)


LARGEST = 256 * 2**20  # bytes in the folder; beyond that, graphs that were not used for longest go
A_DAY = 86400.0  # seconds; a temporary file so old is of a writer that was killed


def _seal(key: str, graph: bytes) -> bytes:
    return sha256(key.encode() + graph).encode() + b"\n"


def write_graph(path: Path, key: str, graph: bytes) -> None:
    """Write a graph, whole or not at all, that only this user can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        temporary.write_bytes(_seal(key, graph) + graph)
    path.chmod(0o600)


def read_graph(path: Path, key: str) -> bytes | None:
    """A graph as it was written under this key; None if there is none, if it is damaged, or if others may write it.

    The checksum shows damage, not intent: whoever writes a graph decides what it computes.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
                return None
            seal, end, graph = file.read().partition(b"\n")
    except OSError:
        return None
    return graph if seal + end == _seal(key, graph) else None


def prune(folder: Path) -> None:
    """Remove the least recently used graphs beyond LARGEST bytes, and files that killed writers have left."""
    files = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process prunes, too
            if path.is_file():
                files.append((path.stat().st_mtime, path.stat().st_size, path))
    total = 0
    for used, size, path in sorted(files, reverse=True):
        total += size
        if total > LARGEST or (path.name.startswith(".tmp-") and used < time.time() - A_DAY):
            path.unlink(missing_ok=True)


_SWITCH, _PLACE = "MS_COMPILER_CACHE_ENABLE", "MS_COMPILER_CACHE_PATH"


class Exchange:
    """As a context: MindSpore compiles with its own cache on, in a folder of this process.

    Args:
        key, parts: of the graph.
        kept: the graph from the cache, for MindSpore to take; None: there is none yet.

    Attributes:
        offers: whether there is a graph for MindSpore to take.
        taken: afterwards, whether MindSpore took it.
        written: afterwards, the graph that MindSpore compiled; b"" if it has a Parameter that `parts` lacks.
    """

    # MindSpore numbers its files by the graphs that it has compiled with its cache on, reads the folder's name once,
    # and stops looking once a graph was missing.
    _number = 0
    _looks = True

    def __init__(self, key: str, parts: Ingredients, kept: bytes | None) -> None:
        self._parts, self._text = parts, f"{key!r}\n".encode()
        self._kept = kept if Exchange._looks else None
        self.offers = self._kept is not None
        self.taken, self.written = False, b""

    def lay_out(self) -> None:
        """Write the files that MindSpore looks for; call it first. An OSError if they cannot be written."""
        work = self._work = _work_folder()
        folder = work / f"rank_{join().rank}" / "graph_cache"
        role = os.environ["MS_ROLE"] if launched_by_msrun() else ""
        self._file = folder / f"{role}compile_cache_{Exchange._number}.mindir"
        # The one source file that the graph depends on, for MindSpore; it compares the hash of the files' hashes.
        (work / "key.py").write_bytes(self._text)
        if self._kept is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file.write_bytes(self._kept)
            os.utime(self._file, ns=(0, 0))
            hashes = folder / f"{role}compile_dependency.hash"
            hashes.unlink(missing_ok=True)  # MindSpore leaves it read-only
            hashes.write_text(sha256(sha256(self._text).encode()))

    def __enter__(self) -> "Exchange":
        Exchange._number += 1
        self._program, _api().entry_script_path = _api().entry_script_path, str(self._work / "key.py")
        self._environment = {name: os.environ[name] for name in (_SWITCH, _PLACE) if name in os.environ}
        os.environ |= {_SWITCH: "1", _PLACE: str(self._work)}
        self._phases = set(_api().ms_compile_cache)
        _executor().set_weights_values(self._parts.parameters)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _executor().set_weights_values({})
        for name in (_SWITCH, _PLACE):
            del os.environ[name]
        os.environ |= self._environment
        _api().entry_script_path = self._program
        if kind is not None:
            Exchange._looks = False
        elif self._file.exists():
            self.taken = self._file.stat().st_mtime_ns == 0
            room = os.statvfs(self._file).f_bavail > 0  # MindSpore cuts a file that does not fit, and only logs it
            if not self.taken and room and self._is_whole():
                self.written = self._file.read_bytes()
            Exchange._looks = self.taken
        self._file.unlink(missing_ok=True)

    def _is_whole(self) -> bool:
        """Whether `parts` names all of the graph's Parameters: a loaded graph has no others."""
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
    prefix = "resnet_fn-graphs-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):  # of processes that were killed
        with contextlib.suppress(OSError):
            about = left.lstat()
            if about.st_uid == os.getuid() and about.st_mtime < time.time() - A_DAY:
                shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
