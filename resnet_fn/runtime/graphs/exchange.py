"""How MindSpore is given a graph from another process, or gives one: by its own cache, in a folder of this process."""

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from resnet_fn.runtime.disk import sha256
from resnet_fn.runtime.graphs.files import A_DAY
from resnet_fn.runtime.graphs.key import Ingredients
from resnet_fn.runtime.workers import join, launched_by_msrun

_SWITCH, _PLACE = "MS_COMPILER_CACHE_ENABLE", "MS_COMPILER_CACHE_PATH"


class Exchange:
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
        self._kept = kept if Exchange._looks else None
        self.offers = self._kept is not None
        self.taken, self.written = False, b""

    def lay_out(self) -> None:
        """Write the files that MindSpore looks for; to be called first.

        Raises:
            OSError: they cannot be written.
        """
        work = self._work = _work_folder()
        folder = work / f"rank_{join().rank}" / "graph_cache"
        role = os.environ["MS_ROLE"] if launched_by_msrun() else ""
        self._file = folder / f"{role}compile_cache_{Exchange._number}.mindir"
        # The one source file that the graph hangs on, for MindSpore; it compares the hash of the files' hashes.
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
        self._environment = {name: os.environ.get(name) for name in (_SWITCH, _PLACE)}
        os.environ |= {_SWITCH: "1", _PLACE: str(self._work)}
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
            Exchange._looks = False
        elif self._file.exists():
            self.taken = self._file.stat().st_mtime_ns == 0
            room = os.statvfs(self._file).f_bavail > 0  # MindSpore cuts a file that does not fit, and only logs it
            if not self.taken and room and self._is_whole():
                self.written = self._file.read_bytes()
            Exchange._looks = self.taken
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
    prefix = "resnet_fn-graphs-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):  # of processes that were killed
        with contextlib.suppress(OSError):
            about = left.lstat()
            if about.st_uid == os.getuid() and about.st_mtime < time.time() - A_DAY:
                shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
