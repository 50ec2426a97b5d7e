"""Make mutants of a source file: each has one small change, found in the syntax tree."""

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

_OPERATORS = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.MatMult: "-",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
}

# what takes an axis as its last positional argument
_WITH_AXIS = {"softmax", "mean", "sum", "cat", "stack", "concat", "argmin", "argmax", "norm"}
_WITH_AXIS |= {"chunk", "split", "expand_dims", "unsqueeze", "squeeze", "cumsum", "max", "min"}
_AXES = ("axis", "dim", "axes", "batch_dim", "seq_dim")

_MOVES_STATE = ("assign", "assign_add", "assign_sub", "set_data")


class Mutant(NamedTuple):
    """One change of a source file. Lines keep their numbers."""

    name: str  # unique for a source file, such as "12.4 constant: 3 → 4"
    kind: str
    line: int
    source: str
    owner: str  # the class in which the change is, or an empty string
    attributes: tuple[str, ...]  # of self, in the changed statement


class _Edit(NamedTuple):
    kind: str
    node: ast.AST
    text: str


def mutants_of(source: str) -> list[Mutant]:
    """Return all mutants of a source file that can be parsed, each different from all others."""
    tree, seen, names = ast.parse(source), {source}, set[str]()
    found = []
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for owner, statement, building in _statements(tree):
        attributes = tuple(sorted(set(_attributes(statement))))
        for edit in _edits(statement, source):
            if building and edit.node is statement and isinstance(statement, ast.Assign):
                continue  # an attribute that is missing is an error
            first = starts[edit.node.lineno - 1] + edit.node.col_offset
            last = starts[edit.node.end_lineno - 1] + edit.node.end_col_offset
            old = source[first:last]
            # the lines below keep their numbers
            text = edit.text + "\n" * (old.count("\n") - edit.text.count("\n"))
            changed = source[:first] + text + source[last:]
            if changed in seen or not _parses(changed):
                continue
            seen.add(changed)
            line, column = edit.node.lineno, edit.node.col_offset
            name = f"{line}.{column} {edit.kind}: {_short(old)} → {_short(edit.text)}"
            while name in names:
                name += "'"
            names.add(name)
            found.append(Mutant(name, edit.kind, line, changed, owner, attributes))
    return found


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 70 else f"{text[:33]} … {text[-33:]}"


def _parses(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _statements(tree: ast.Module) -> Iterator[tuple[str, ast.AST, bool]]:
    """Yield the statements of functions, and the defaults of their arguments. Each comes with the
    name of its class, and whether it builds the object. Nested statements come by themselves.
    """
    for top in tree.body:
        functions = [top] if isinstance(top, ast.FunctionDef) else []
        owner = ""
        if isinstance(top, ast.ClassDef):
            functions = [one for one in top.body if isinstance(one, ast.FunctionDef)]
            owner = top.name
        for function in functions:
            building = function.name == "__init__"
            for default in function.args.defaults:
                yield owner, default, building
            for node in ast.walk(function):
                if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef):
                    yield owner, node, building


def _parts(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement without those of the statements inside it."""
    waiting = [statement]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting += [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt)]


def _attributes(statement: ast.AST) -> Iterator[str]:
    for node in _parts(statement):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
            yield node.attr


def _edits(statement: ast.AST, source: str) -> Iterator[_Edit]:
    yield from _of_statement(statement, source)
    for node in _parts(statement):
        if isinstance(node, ast.Constant):
            yield from _of_constant(node)
        elif isinstance(node, ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield from _of_operator(node, source)
        elif isinstance(node, ast.Call):
            yield from _of_call(node, source)
        elif isinstance(node, ast.IfExp):
            yield _Edit("condition", node.test, f"(not ({_text(node.test, source)}))")
        elif isinstance(node, ast.Attribute) and node.attr == "training":
            words = _text(node, source)
            yield _Edit("training", node, f"(not {words})")
            yield _Edit("evaluation branch", node, "True")
            yield _Edit("evaluation branch", node, "False")


def _of_statement(statement: ast.AST, source: str) -> Iterator[_Edit]:
    """Leave a statement out, exchange it with the next one, or turn its condition."""
    if isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
        called = getattr(getattr(statement.value, "func", None), "attr", "")
        if called != "__init__":
            kind = "state update" if called in _MOVES_STATE else "statement"
            yield _Edit(kind, statement, "pass")
    elif isinstance(statement, ast.AugAssign):
        yield _Edit("statement", statement, "pass")
    elif isinstance(statement, ast.Assign):
        targets = {one.id for one in ast.walk(statement.targets[0]) if isinstance(one, ast.Name)}
        used = {one.id for one in ast.walk(statement.value) if isinstance(one, ast.Name)}
        target = statement.targets[0]
        of_self = isinstance(target, ast.Attribute)
        if of_self or (isinstance(target, ast.Name) and targets <= used):
            yield _Edit("statement", statement, "pass")
    elif isinstance(statement, ast.If | ast.While):
        yield _Edit("condition", statement.test, f"not ({_text(statement.test, source)})")
    for body in (getattr(statement, name, []) for name in ("body", "orelse")):
        yield from _exchanged(body, source)


def _exchanged(body: list[ast.stmt], source: str) -> Iterator[_Edit]:
    """Exchange neighbours x = f(x) and x = g(x)."""
    for first, second in itertools.pairwise(body):
        both = isinstance(first, ast.Assign) and isinstance(second, ast.Assign)
        if both and ast.dump(first.targets[0]) == ast.dump(second.targets[0]):
            span = ast.Pass(
                lineno=first.lineno,
                col_offset=first.col_offset,
                end_lineno=second.end_lineno,
                end_col_offset=second.end_col_offset,
            )
            indent = "\n" + " " * first.col_offset
            yield _Edit("order", span, _text(second, source) + indent + _text(first, source))


def _of_constant(node: ast.Constant) -> Iterator[_Edit]:
    value = node.value
    if isinstance(value, bool):
        yield _Edit("constant", node, str(not value))
    elif isinstance(value, int):
        yield _Edit("constant", node, str(value + 1))
    elif isinstance(value, float):
        yield _Edit("constant", node, repr(value * 1.5 if value else 1.0))


def _of_operator(
    node: ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp, source: str
) -> Iterator[_Edit]:
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            yield _Edit("operator", node, f"({_text(node.operand, source)})")
        return
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield _Edit("operator", node, word.join(f"({_text(one, source)})" for one in node.values))
        return
    if isinstance(node, ast.Compare):
        left, operator, right = node.left, node.ops[0], node.comparators[0]
    else:
        left, operator, right = node.left, node.op, node.right
    words = f"({_text(left, source)})", f"({_text(right, source)})"
    if new := _OPERATORS.get(type(operator)):
        yield _Edit("operator", node, f"({words[0]} {new} {words[1]})")
    if isinstance(node, ast.BinOp):
        yield _Edit("term left out", node, words[0])
        yield _Edit("term left out", node, words[1])


def _of_call(call: ast.Call, source: str) -> Iterator[_Edit]:
    """Change a call's arguments, or leave the call out."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in ("super", "__init__", "range", "len", "zip"):
        return
    yield from _of_axis(call, name)
    yield from _of_parameter(call, name, source)
    given = [(None, one) for one in call.args] + [(one.arg, one.value) for one in call.keywords]
    texts = [f"{key}={_text(one, source)}" if key else _text(one, source) for key, one in given]
    function = _text(call.func, source)

    def called(arguments: list[str]) -> str:
        return f"{function}({', '.join(arguments)})"

    for index in range(len(given)):
        # of positional arguments, only the last one can be left out
        if given[index][0] or index == len(call.args) - 1:
            yield _Edit("argument left out", call, called(texts[:index] + texts[index + 1 :]))
    for index in range(len(call.args) - 1):
        order = [*texts]
        order[index], order[index + 1] = order[index + 1], order[index]
        yield _Edit("arguments exchanged", call, called(order))
    if (
        call.args
        and not isinstance(call.args[0], ast.Constant | ast.Starred)
        and name[:1].islower()
    ):
        yield _Edit("call left out", call, f"({texts[0]})")
        inner = call.args[0]
        if isinstance(inner, ast.Call) and len(call.args) == len(inner.args) == 1:
            swapped = f"{_text(inner.func, source)}({function}({_text(inner.args[0], source)}))"
            yield _Edit("order", call, swapped)


def _of_axis(call: ast.Call, name: str) -> Iterator[_Edit]:
    """Take another axis."""
    axes = [one.value for one in call.keywords if one.arg in _AXES]
    if name in _WITH_AXIS and call.args:
        axes.append(call.args[-1])
    for node in axes:
        with_sign = node.operand if isinstance(node, ast.UnaryOp) else node
        if isinstance(with_sign, ast.Constant) and type(with_sign.value) is int:
            axis = ast.literal_eval(node)
            yield _Edit("axis", node, str(axis - 1 if axis < 0 or axis > 1 else 1 - axis))


def _of_parameter(call: ast.Call, name: str, source: str) -> Iterator[_Edit]:
    """Train a buffer, do not train a parameter, or make it a plain tensor."""
    if name != "Parameter":
        return
    value = _text(call.args[0], source)
    if any(one.arg == "requires_grad" for one in call.keywords):
        yield _Edit("buffer made a Parameter", call, f"Parameter({value})")
        yield _Edit("buffer made a Tensor", call, value)
    else:
        frozen = f"Parameter({value}, requires_grad=False)"
        yield _Edit("Parameter made a buffer", call, frozen)
        yield _Edit("Parameter made a Tensor", call, value)


def _text(node: ast.AST, source: str) -> str:
    return ast.get_source_segment(source, node) or ast.unparse(node)
