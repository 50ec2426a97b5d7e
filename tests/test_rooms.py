"""The house: imports point down the rooms only and to declared packages only, files stay small, each has its tests."""

import ast
import sys
from pathlib import Path

import resnet_fn

PACKAGE = Path(resnet_fn.__file__).parent

# A module imports from its own room and from rooms before it.
ROOMS_TEXT = """
config runtime data models update graphs checkpoint weights recipes evaluation report telemetry run layers reference
inspect benchmark doctor parity
"""
ROOMS = [*ROOMS_TEXT.split(), "commands"]
LONGEST_CHAIN = 9
# The rooms in which each module must have its test file.
TESTED = [
    "config",
    "runtime",
    "data",
    "models",
    "update",
    "checkpoint",
    "weights",
    "recipes",
    "evaluation",
    "report",
    "telemetry",
    "run",
    "doctor",
    "inspect",
    "benchmark",
    "commands",
]
RUNTIME = {"mindspore", "numpy", "tqdm", "tensorboardX"}


def room(module: str) -> int:
    first = module.partition(".")[0]
    if first in ROOMS:
        return ROOMS.index(first)
    assert "." not in module, f"{module}: give the new room a place in this test"
    return ROOMS.index("commands")


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        yield name, path


def is_module(name: str) -> bool:
    path = PACKAGE.parent / Path(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def imports(tree: ast.AST):
    """Every import below a node, as "package.name" once for each name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(names) -> set[str]:
    """Those that are modules of this package, or names in one."""
    found = set()
    for name in names:
        if name.partition(".")[0] == "resnet_fn":
            target = name if is_module(name) else name.rpartition(".")[0]
            found.add(target.removeprefix("resnet_fn").lstrip(".") or "__init__")
    return found


def graph(when_loaded: bool) -> dict[str, set[str]]:
    """What each module imports: anywhere in it, or only what is imported when it is loaded."""
    found = {}
    for name, path in modules():
        body = ast.parse(path.read_text()).body
        nodes = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)] if when_loaded else body
        found[name] = set().union(*(own(imports(node)) for node in nodes)) - {name}
    return found


def test_imports_stay_in_the_room_or_go_to_a_room_before():
    wrong = [
        f"{name} imports {target}"
        for name, targets in graph(when_loaded=False).items()
        for target in sorted(targets)
        if target != "__init__" and room(target) > room(name)
    ]
    assert not wrong


def test_no_command_is_imported_by_a_command():
    commands = {name for name, _ in modules() if name.endswith("__main__") or room(name) == ROOMS.index("commands")}
    for name, targets in graph(when_loaded=False).items():
        assert not (targets & commands - {"__init__", ""}) or name == "__main__", name


def test_no_circle_and_no_long_chain():
    targets = graph(when_loaded=False)

    def visit(name: str, graph_: dict[str, set[str]], above: tuple[str, ...], known: dict[str, list[str]]) -> list[str]:
        assert name not in above, f"circle: {' -> '.join((*above, name))}"
        if name not in known:
            below = [visit(target, graph_, (*above, name), known) for target in sorted(graph_.get(name, ()))]
            known[name] = [name, *max(below, key=len, default=[])]
        return known[name]

    everything: dict[str, list[str]] = {}
    for name in targets:
        visit(name, targets, (), everything)
    loaded = graph(when_loaded=True)
    chains: dict[str, list[str]] = {}
    longest = max((visit(name, loaded, (), chains) for name in loaded), key=len)
    assert len(longest) <= LONGEST_CHAIN, " -> ".join(longest)


def test_only_declared_packages_at_module_level():
    for name, path in modules():
        top = ast.parse(path.read_text()).body
        for node in top:
            roots = []
            if isinstance(node, ast.Import):
                roots = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                roots = [(node.module or "").split(".")[0]]
            for root in roots:
                if root == "torch" and name.startswith(("parity.torch_side", "reference.")):
                    continue
                assert root in RUNTIME | {"resnet_fn"} or root in sys.stdlib_module_names, f"{name} imports {root}"


def test_files_and_functions_stay_small():
    for name, path in modules():
        text = path.read_text()
        assert len(text.splitlines()) <= 250, f"{name} asks for a split"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno - body[0].lineno + 1) if body else 0
                inner = sum(
                    child.end_lineno - child.lineno
                    for child in ast.walk(node)
                    if isinstance(child, ast.FunctionDef) and child is not node
                )
                assert lines - inner <= 60, f"{name}.{node.name}: {lines} lines"


def test_every_module_has_its_test_file():
    """tests/<room>/test_<module>.py, tests/test_<command>.py; a room's __main__ is its command "main"."""
    missing = []
    for name, path in modules():
        defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.parse(path.read_text()).body)
        if defines and path.name != "__init__.py" and ROOMS[room(name)] in TESTED:
            place = Path(__file__).parent / path.relative_to(PACKAGE).parent
            missing += [] if (place / f"test_{path.stem.strip('_')}.py").exists() else [name]
    assert not missing, f"no test file of: {', '.join(missing)}"
