"""Imports point down the layers only, and nothing beyond the declared packages is imported at run time."""

import ast
import sys
from pathlib import Path

import resnet_fn

PACKAGE = Path(resnet_fn.__file__).parent

# A module takes the layer of its own row or of the nearest folder above it. Parts of `migrate` and `data` stand
# higher than their folder: they climb through the step or the checkpoint.
LAYERS_TEXT = """
0 __init__ config config_data config_depends fields recipes recipe_list cli runtime distributed
1 schedule loss loss_scale gradients optimizer optimizer_layerwise ema batchnorm tensor_file stop models data migrate
1 report.figures drawing norms
2 step gradient_pass eval_step checkpoint checkpoint_writer not_finite run_folder summary_writer board telemetry
2 data.pipeline data.stream data.ahead data.resume
2 migrate.weights migrate.our_run migrate.ladder migrate.report
3 job session scoring evaluation inspection loop benchmarks trained report prediction exporting
4 train evaluate convert parity inspect pack benchmark predict export plot __main__
"""
LAYERS = {name: int(row.split()[0]) for row in LAYERS_TEXT.strip().splitlines() for name in row.split()[1:]}
RUNTIME = {"mindspore", "numpy", "tqdm", "tensorboardX"}


def layer(module: str) -> int:
    while module:
        if module in LAYERS:
            return LAYERS[module]
        module = module.rpartition(".")[0]
    raise AssertionError("give the new module a layer in this test")


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name, node) for name in names)


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        yield name, path


def is_module(name: str) -> bool:
    path = PACKAGE.parent / Path(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def test_imports_point_down():
    for name, path in modules():
        for imported, _ in imports(path):
            if imported.startswith("resnet_fn"):
                target = imported if is_module(imported) else imported.rpartition(".")[0]
                target = target.removeprefix("resnet_fn").lstrip(".") or "__init__"
                assert layer(target) <= layer(name), f"{name} imports {target}"
                assert layer(target) < 4 or target == name, f"{name} imports the entry point {target}"


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
