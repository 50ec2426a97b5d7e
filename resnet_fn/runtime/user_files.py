"""The user's files: each is loaded once, and what it imports from beside it is kept apart from other files' modules.

Two projects have a `config.py` each, and Python and MindSpore's compiler find a module by its name alone.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from resnet_fn.config.cli import UsageError
from resnet_fn.config.hints import first_line, near_path

_loaded: dict[Path, ModuleType] = {}  # by resolved path
_imported: dict[Path, dict[str, ModuleType]] = {}  # by folder: the modules that files there imported from beside them
_paths: dict[Path, list[str]] = {}  # by folder: what its files added to sys.path, after the folder itself


@contextlib.contextmanager
def imports_beside(*places: str | None) -> Iterator[None]:
    """A context in which imports search the folders of FILE:FUNCTION places first; other texts are passed over.

    `sys.path` is put back afterwards, and the modules of these folders are put aside.
    """
    files = [Path(place.rpartition(":")[0]).resolve() for place in places if place and ":" in place]
    folders = list(dict.fromkeys(file.parent for file in files))
    before, known = list(sys.path), dict(sys.modules)
    for folder in reversed(folders):
        sys.modules.update(_imported.setdefault(folder, {}))
        sys.path[:0] = _paths.setdefault(folder, [str(folder)])
    begun = list(sys.path)
    try:
        yield
    finally:
        added = [path for path in sys.path if path not in begun]
        new = [name for name, module in sys.modules.items() if known.get(name) is not module]
        for folder in folders:
            _paths[folder] += added
            inside = {Path(path).resolve() for path in _paths[folder]}
            tops = {name for name in new if "." not in name and _place(sys.modules.get(name)) in inside}
            here = [name for name in new if name.partition(".")[0] in tops]
            _imported[folder] |= {name: sys.modules.pop(name) for name in here}
            sys.modules.update((name, known[name]) for name in here if name in known)
            new = [name for name in new if name not in here]
        sys.path[:] = before


def _place(module: ModuleType | None) -> Path | None:
    """Return the folder that holds a module or package."""
    place = next(iter(getattr(module, "__path__", None) or ()), None) or getattr(module, "__file__", None)
    return Path(place).resolve().parent if place else None


def load_function(place: str, flag: str) -> Any:
    """Import "path/to/file.py:function"; a UsageError if there is none, a ValueError if the file fails."""
    path, _, name = place.rpartition(":")
    if not path.endswith(".py") or not name:
        raise UsageError(f"{flag}: {place!r} is not FILE.py:FUNCTION; give for example nets/mine.py:build")
    if not Path(path).is_file():
        raise UsageError(f"{flag}: there is no file {path}; {near_path(path, 'give FILE.py:FUNCTION')}")
    resolved = Path(path).resolve()
    if resolved not in _loaded:
        spec = importlib.util.spec_from_file_location(f"resnet_fn_user_{len(_loaded)}_{resolved.stem}", resolved)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # jit looks functions up by their module
        try:
            with imports_beside(place):
                spec.loader.exec_module(module)
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise ValueError(f"{flag}: {path} cannot be imported ({reason})") from error
        _loaded[resolved] = module
    function = getattr(_loaded[resolved], name, None)
    if not callable(function):
        raise UsageError(f"{flag}: {path} has no function {name!r}")
    return function
