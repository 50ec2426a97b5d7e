"""Where the answers of a checkout are taken. Only `HOOKS` names modules and functions of
resnet_fn: a checkout that moves or renames them adds its places.

A function is replaced as soon as its module is imported, and nothing is imported for it: the
commands import what they would, and `from … import` gives the replaced function.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

# What is taken → where ("module:function"). Of each, the checkout must have a module; all places
# that it has are used. What one function returns and another passes on counts once.
HOOKS: dict[str, tuple[str, ...]] = {
    # takes the command's arguments and returns its exit code
    "command": ("resnet_fn.parity.__main__:main",),
    # prints the error of a command, and exits; takes its name and its `main`
    "process": ("resnet_fn.config.cli:run",),
    # return the result of a comparison, which "json" writes
    "comparison": (
        "resnet_fn.parity.ladder:compare_recordings",
        "resnet_fn.parity.replay:replay",
        "resnet_fn.parity.replay:compare_step",
    ),
    # takes a result and a path, and writes the JSON of --json
    "json": (
        "resnet_fn.parity.report:write_json",
        "resnet_fn.parity.show.json_file:write_json",
    ),
    # a class whose __init__ has the longest time of a search as its only default
    "search": (
        "resnet_fn.parity.search:Searcher",
        "resnet_fn.parity.explain.search:Searcher",
    ),
    # return what was recorded of one side: its data, of any structure
    "recording": (
        "resnet_fn.parity.torch_side:record_reference",
        "resnet_fn.parity.mindspore_side:record_net",
        "resnet_fn.parity.record.record:record",
    ),
}
Replace = Callable[[Any], Any]  # the function of a place → what replaces it


def install(replacements: Mapping[str, Replace]) -> None:
    """Replace the functions of these entries of `HOOKS`, in modules that are imported later.

    Raises:
        LookupError: the checkout has no module of an entry, or a module lacks the function.
    """
    wanted: dict[str, list[tuple[str, Replace]]] = {}
    for kind, replace in replacements.items():
        places = [place for place in HOOKS[kind] if _exists(place.partition(":")[0])]
        if not places:
            raise LookupError(f"HOOKS: {kind!r} has no place in this checkout; add where it is now")
        for place in places:
            module, _, name = place.partition(":")
            wanted.setdefault(module, []).append((name, replace))
    for module in [one for one in wanted if one in sys.modules]:
        _replace(sys.modules[module], wanted.pop(module))
    sys.meta_path.insert(0, _Finder(wanted))


def function_of(kind: str) -> Callable[..., Any]:
    """Import and return the function of an entry with one place."""
    module, _, name = next(
        place for place in HOOKS[kind] if _exists(place.partition(":")[0])
    ).partition(":")
    return getattr(importlib.import_module(module), name)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package
        return False


def _replace(module: ModuleType, wanted: Sequence[tuple[str, Replace]]) -> None:
    for name, replace in wanted:
        if not hasattr(module, name):
            raise LookupError(f"HOOKS: {module.__name__} has no {name}; adapt the table")
        setattr(module, name, replace(getattr(module, name)))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as Python does, and has functions replaced once a module was executed."""

    def __init__(self, wanted: dict[str, list[tuple[str, Replace]]]) -> None:
        self.wanted = wanted

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return the spec of a module with replaced functions, or None for other modules."""
        if name not in self.wanted:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute, wanted = spec.loader.exec_module, self.wanted[name]

            @functools.wraps(execute)
            def execute_and_replace(module: ModuleType) -> None:
                execute(module)
                _replace(module, wanted)

            spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec
