"""This module loads the user's Python files.

Modules of the same name in different folders stay separate.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from resnet_fn.config.cli import UsageError
from resnet_fn.config.packages import how_to_install, is_importable
from resnet_fn.config.path_hints import near_path
from resnet_fn.config.wording import words_of

_loaded: dict[Path, ModuleType] = {}  # by resolved path
# by folder: modules that the folder's files imported from it
_imported: dict[Path, dict[str, ModuleType]] = {}
_paths: dict[Path, list[str]] = {}  # by folder: the folder, and what its files added to sys.path


@contextlib.contextmanager
def imports_beside(*locations: str | None) -> Iterator[None]:
    """Let imports inside a `with` block search the folders of the files in `locations` first.

    A place is "FILE.py:FUNCTION". At the end of the block, modules from these folders are taken out
    of `sys.modules`.
    """
    files = [
        Path(location.rpartition(":")[0]).resolve()
        for location in locations
        if location and ":" in location
    ]
    folders = list(dict.fromkeys(file.parent for file in files))
    before = list(sys.path)
    known = dict(sys.modules)
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
            tops = {
                name for name in new if "." not in name and _place(sys.modules.get(name)) in inside
            }
            of_folder = [name for name in new if name.partition(".")[0] in tops]
            # a later block puts them back
            _imported[folder] |= {name: sys.modules.pop(name) for name in of_folder}
            sys.modules.update((name, known[name]) for name in of_folder if name in known)
            new = [name for name in new if name not in of_folder]
        sys.path[:] = before


def _place(module: ModuleType | None) -> Path | None:
    path = next(iter(getattr(module, "__path__", None) or ()), None) or getattr(
        module, "__file__", None
    )
    return Path(path).resolve().parent if path else None


def _import_fault(error: Exception) -> str:
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    if package and not is_importable(package):
        fix = how_to_install(package) or "install it, or correct the import"
        return f"imports {package}, which is not installed; {fix}"
    return f"cannot be imported ({words_of(error)}); correct the file"


def load_function(location: str, flag: str) -> Any:
    """Return the function at `location`, such as "nets/mine.py:build".

    Error messages begin with `flag`.
    """
    function = load_value(location, flag)
    if not callable(function):
        path, _, name = location.rpartition(":")
        raise UsageError(
            f"{flag}: {path} has no function {name!r}; give a function of this file",
        )
    return function


def load_value(location: str, flag: str) -> Any:
    """Return what the name at `location` is, a function or another value; None: it is absent.

    Error messages begin with `flag`.
    """
    path, _, name = location.rpartition(":")
    if not path.endswith(".py") or not name:
        raise UsageError(
            f"{flag}: {location!r} is not FILE.py:FUNCTION; give for example nets/mine.py:build"
        )
    if not Path(path).is_file():
        fix = near_path(path, "give FILE.py:FUNCTION")
        raise UsageError(
            f"{flag}: there is no file {path}; {fix}",
        )
    resolved = Path(path).resolve()
    if resolved not in _loaded:
        unique = f"resnet_fn_user_{len(_loaded)}_{resolved.stem}"
        loader = SourceFileLoader(unique, str(resolved))
        spec = importlib.util.spec_from_loader(unique, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module  # jit finds functions by their module's name
        try:
            with imports_beside(location):
                loader.exec_module(module)
        except Exception as error:
            raise ValueError(f"{flag}: {path} {_import_fault(error)}") from error
        _loaded[resolved] = module
    return getattr(_loaded[resolved], name, None)
