"""The house: modules import from their own room and from rooms before it, and only packages that
are declared.
"""

import ast
import pkgutil
import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import resnet_fn

PACKAGE = Path(resnet_fn.__file__).parent
TESTS = Path(__file__).parent
# A module imports from its own room and from rooms before it; last come the commands, the top
# level's modules.
ROOMS_TEXT = """
config runtime data models update checkpoint weights recipes evaluation telemetry report run parity.trace
parity.record parity.pair parity.compare parity.explain parity.show parity.reference parity.inputs parity.ways parity
inspect
doctor commands
"""
ROOMS = ROOMS_TEXT.split()
RUNTIME = {"mindspore", "numpy", "tqdm", "tensorboardX"}  # what setup.cfg requires
# The rooms of the ladder → the rooms of the ladder from which their modules import.
LADDER = {
    "parity.trace": set[str](),
    "parity.record": {"parity.trace"},
    "parity.pair": {"parity.trace"},
    "parity.compare": {"parity.trace", "parity.pair"},
    "parity.explain": {"parity.trace", "parity.record", "parity.pair", "parity.compare"},
    "parity.show": {"parity.trace", "parity.pair", "parity.compare", "parity.explain"},
}
PURE = ("parity.trace", "parity.pair", "parity.compare")  # need neither PyTorch nor MindSpore
WITH_TORCH = (  # modules, or beginnings of their names, that need PyTorch to be imported
    "parity.reference.",
    "parity.record.torch_",
    "parity.explain.axis_changes",
    "parity.explain.call_changes",
    "parity.explain.calls",
    "parity.explain.constants",
    "parity.explain.gradient_changes",
    "parity.explain.layer_changes",
    "parity.explain.loss_changes",
    "parity.explain.search",
    "parity.explain.sequences",
    "parity.explain.torch_search",
    "parity.ways.torch_",
)


def read(folder: Path) -> dict[str, ast.Module]:
    """The modules below a folder by name: "run.loop", "run" for its __init__.py."""
    names = {
        path: ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in sorted(folder.rglob("*.py"))
    }
    return {
        name.removesuffix(".__init__"): ast.parse(path.read_text()) for path, name in names.items()
    }


MODULES = read(PACKAGE)


PROGRAMS = {name for name, tree in MODULES.items() if "__name__ == '__main__'" in ast.unparse(tree)}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every import anywhere in it, under `if TYPE_CHECKING` too, as "package.name" once for each
    name.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def strings(tree: ast.AST) -> Iterator[str]:
    """Every string that names a module of this package; one that names a program starts a process
    of its own.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and re.fullmatch(r"resnet_fn(\.\w+)+", str(node.value)):
            name = node.value.removeprefix("resnet_fn.")
            if name not in PROGRAMS and f"{name}.__main__" not in PROGRAMS:
                yield node.value


def targets(name: str) -> set[str]:
    """The modules of this package that a module names."""
    tree = MODULES[name]
    words = {
        word.removeprefix("resnet_fn.")
        for word in (*imports(tree), *strings(tree))
        if word.startswith("resnet_fn.")
    }
    return {word if word in MODULES else word.rpartition(".")[0] for word in words} - {name, ""}


def room(module: str) -> str:
    inner = ".".join(module.split(".")[:2])
    first = inner if inner in ROOMS else module.partition(".")[0]
    assert first in ROOMS or "." not in module, f"{module}: give the new room a place in ROOMS"
    return first if first in ROOMS else "commands"


def is_command(module: str) -> bool:
    return module.endswith("__main__") or room(module) == "commands"


# (module, module of this package that it names), except those that the package itself names
PAIRS = [
    (name, target) for name in MODULES if name != "__init__" for target in sorted(targets(name))
]


def test_imports_go_to_rooms_before():
    assert not [
        (name, target)
        for name, target in PAIRS
        if ROOMS.index(room(target)) > ROOMS.index(room(name))
    ]


def test_no_imports_form_a_circle():
    TopologicalSorter({name: targets(name) for name in MODULES if name != "__init__"}).prepare()


def test_no_command_is_imported():
    of_package = [("__init__", target) for target in targets("__init__")]
    assert not [pair for pair in (*PAIRS, *of_package) if is_command(pair[1])]


def test_rooms_of_the_ladder_read_rooms_before_them():
    assert not [
        (name, target)
        for name, target in PAIRS
        if target.startswith("parity.")
        and room(name) in LADDER
        and room(target) not in {room(name), *LADDER[room(name)]}
    ]


def with_all_it_needs(name: str) -> set[str]:
    """The module, and the modules of this package that it names, those that these name, …"""
    needed = set[str]()
    new = {name}
    while new:
        needed |= new
        new = set().union(*(targets(one) for one in new)) - needed
    return needed


def test_traces_pairs_and_comparisons_need_no_framework():
    """Neither at their top nor inside a function, and none of the modules that they import."""
    pure = [name for name in MODULES if room(name) in PURE]
    needed = set().union(*map(with_all_it_needs, pure))
    wrong = [
        f"{name} imports {word}"
        for name in sorted(needed)
        for word in imports(MODULES[name])
        if word.partition(".")[0] in ("torch", "mindspore")
    ]
    assert pure
    assert not wrong


def test_only_the_public_names_import_the_ladder():
    assert not [pair for pair in PAIRS if room(pair[1]) == "parity" != room(pair[0])]


def test_only_declared_packages_are_imported_with_a_module():
    for name, tree in MODULES.items():
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        roots = {word.partition(".")[0] for node in top for word in imports(node)} - {"resnet_fn"}
        allowed = RUNTIME | ({"torch"} if name.startswith(WITH_TORCH) else set())
        allowed |= {"pytest"} if name == "parity.pytest_fixture" else set()  # tests import it
        assert roots <= allowed | sys.stdlib_module_names, name


def test_tests_import_public_names():
    """What a test needs of a module has no underscore: another way to write the module keeps its
    tests.
    """
    words = [(name, word) for name, tree in read(TESTS).items() for word in imports(tree)]
    assert not [pair for pair in words if re.match(r"resnet_fn\.(.*\.)?_[^_]", pair[1])]


def test_scripts_import_names_that_exist():
    """Type checks leave most scripts out."""
    pytest.importorskip("torch", reason="modules that need torch are among them")
    root = TESTS.parent
    paths = [
        path
        for place in (root / "scripts", root / "docs", TESTS / "acceptance")
        for path in place.rglob("*.py")
    ]
    words = {
        word
        for path in paths
        for word in imports(ast.parse(path.read_text()))
        if word.startswith("resnet_fn.")
    }
    assert len(words) > 50
    for word in words:
        pkgutil.resolve_name(word)
