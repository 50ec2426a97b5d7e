"""Print the ten modules of the package with the most syntax nodes in a code line.

A code line is neither empty, nor a comment, nor part of a docstring. A line that is read once is
cheaper than half a line that is read twice, so tests/test_density.py limits the nodes in a line,
not the lines.
"""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "resnet_fn"
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef)


def code_lines(text: str, tree: ast.AST) -> int:
    """Return the number of code lines of `tree`, which was parsed from `text`."""
    docstrings = {
        line
        for node in ast.walk(tree)
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    first, last = getattr(tree, "lineno", 1), getattr(tree, "end_lineno", len(text.splitlines()))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in docstrings
        for number, line in enumerate(text.splitlines(), 1)
        if first <= number <= last
    )


def density(path: Path) -> float:
    """Return the number of syntax nodes in a code line of a module, or 0 without code."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return sum(1 for _ in ast.walk(tree)) / max(1, code_lines(text, tree))


def long_functions(path: Path, most: int) -> list[tuple[str, int]]:
    """Return (name, code lines) of each function with more than `most` code lines.

    Functions that a comment right above explains are left out.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            explained = lines[first - 2].lstrip().startswith("#") if first > 1 else False
            count = code_lines(text, node)
            if count > most and not explained:
                found.append((node.name, count))
    return found


if __name__ == "__main__":
    modules = sorted(PACKAGE.rglob("*.py"), key=density, reverse=True)
    for path in modules[:10]:
        print(f"{density(path):.1f} nodes a line: {path.relative_to(PACKAGE.parent)}")
