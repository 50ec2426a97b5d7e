"""What MindSpore announces to rename, to remove or to give another default does not change a call
of this package.
"""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import mindspore
import numpy as np
import pytest

import resnet_fn

PACKAGE = Path(resnet_fn.__file__).parent
KINDS = (mindspore.Tensor, mindspore.nn.Cell)
ANNOUNCED = re.compile(
    r"(after|from) version \d|will be (deprecated|removed)|being deprecated|in a future version",
    re.IGNORECASE,
)
# Names that would change a call of ours: each is in one module, where what replaces it goes.
GUARDED = {
    "mindspore.get_context": "runtime.process",
    "mindspore.nn.Dense": "models.layers",  # to be Linear
    "mindspore.ops.clip_by_global_norm": "update.gradients",  # called where `update.step` finds it
    "Tensor.init_data": "models.init",  # `initializer` has no other way to its values
}
# Changes that leave our calls as they are, with the names that they change. A keyword that an
# announcement names is found by itself.
HARMLESS = {
    "positional arguments only": "Cell.state_dict",
    "AIR only; we write MINDIR and ONNX": "mindspore.export",
    "the backend GE and infer_boost only": "mindspore.jit",
    "prefixes only": "mindspore.load_checkpoint",
    "our calls give by position what stays first; the other arguments are models.layers'": (
        "mindspore.nn.AvgPool2d mindspore.nn.BatchNorm2d mindspore.nn.Conv2d mindspore.nn.MaxPool2d"
    ),
    "what the doctor looks for in a port": "mindspore.nn.Dropout",
    "named for isinstance alone": (
        "mindspore.nn.BatchNorm1d mindspore.nn.BatchNorm3d mindspore.nn.SyncBatchNorm "
        "mindspore.nn.LayerNorm mindspore.nn.GroupNorm mindspore.nn.InstanceNorm1d "
        "mindspore.nn.InstanceNorm2d mindspore.nn.InstanceNorm3d"
    ),
    "axis, the second argument, becomes dim": (
        "mindspore.ops.concat mindspore.ops.stack mindspore.ops.log_softmax"
    ),
    "axis becomes dim; we split the first": "mindspore.ops.split",
    "x, the only argument, becomes input": "mindspore.ops.sqrt",
    "not a tensor's here": "Tensor.from_numpy Tensor.norm Tensor.type",
    "gains a keyword": "Tensor.numpy",
    "gains a form with one argument": "mindspore.ops.where",
    "measures a fault of known versions; an error costs the line": (
        "mindspore.nn.Momentum mindspore.ops.pad mindspore.ops.selu"
    ),
    "by position; measures a fault of known versions": (
        "mindspore.ops.binary_cross_entropy mindspore.ops.softmax Tensor.permute"
    ),
}
KEPT = {name for names in HARMLESS.values() for name in names.split()}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        yield name, ast.parse(path.read_text())


def names_of(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every name of MindSpore's in a module as `mindspore.…`, with its node."""
    full = {}
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            if re.match(r"mindspore\b", module + alias.name):
                full[alias.asname or alias.name.partition(".")[0]] = (
                    module + alias.name if module or alias.asname else "mindspore"
                )
    for node in ast.walk(tree):
        words = []
        inner = node
        while isinstance(inner, ast.Attribute):
            words, inner = [inner.attr, *words], inner.value
        if isinstance(inner, ast.Name) and inner.id in full:
            yield ".".join([full[inner.id], *words]), node


def methods_of(tree: ast.AST) -> Iterator[str]:
    """Attributes that tensors or cells have and no other value here: not `x.sum`, which NumPy's
    arrays have as well.
    """
    others = (np.ndarray, str, dict, set, list, tuple, Path, np.random.Generator)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    apart = {
        alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names
    } | {"ops", "self"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or ast.unparse(node).partition(".")[0] in apart:
            continue
        if not any(hasattr(other, node.attr) for other in others):
            yield from (
                f"{kind.__name__}.{node.attr}" for kind in KINDS if hasattr(kind, node.attr)
            )


def announcement(name: str) -> str:
    """The sentences of a docstring that announce a change; "" if there are none."""
    value = {"mindspore": mindspore, **{kind.__name__: kind for kind in KINDS}}[
        name.partition(".")[0]
    ]
    for count, word in enumerate(name.split(".")[1:], 2):
        if not hasattr(value, word):
            importlib.import_module(".".join(name.split(".")[:count]))
        value = getattr(value, word)
    text = " ".join((getattr(value, "__doc__", None) or "").split())
    return " ".join(
        part for part in re.split(r"(?<=\.) |\.\. |Args:", text) if ANNOUNCED.search(part)
    )


USES: dict[str, set[str]] = defaultdict(set)
for module, module_tree in modules():
    named = [name for name, _ in names_of(module_tree)]
    for use in (*named, *(methods_of(module_tree) if named else ())):
        USES[use].add(module)
CHANGING = {name: text for name in sorted(USES) if (text := announcement(name))}


@pytest.mark.skipif(
    mindspore.__version__ != "2.10.0",
    reason="the docstrings of another version announce other changes",
)
def test_what_is_announced_changes_no_call_of_ours():
    wrong = [
        f"{name}, in {', '.join(sorted(USES[name]))}: {text}"
        for name, text in CHANGING.items()
        if name not in KEPT and USES[name] != {GUARDED.get(name)}
    ]
    assert not wrong, "\n".join(wrong)
    assert not sorted({*KEPT, *GUARDED} - CHANGING.keys()), "rows without an announcement"


def test_no_call_gives_a_keyword_that_is_announced():
    wrong = []
    for name, tree in modules():
        calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for use, node in names_of(tree):
            if (call := calls.get(id(node))) and use in CHANGING:
                quoted = set(
                    re.findall(r"\w+", " ".join(re.findall(r"`+([^`]+)`+", CHANGING[use])))
                )
                given = {keyword.arg for keyword in call.keywords}
                wrong += (
                    [f"{name}: {use}({', '.join(sorted(given & quoted))})"]
                    if given & quoted
                    else []
                )
    assert not wrong
