"""python -m resnet_fn: list the commands."""

import ast
import sys
from collections.abc import Sequence
from pathlib import Path

from resnet_fn import cli
from resnet_fn.config import closest

_ORDER = ("train", "evaluate", "predict", "export", "plot", "recipes")


def commands() -> dict[str, str]:
    """Every module that is a command, with what it does: the first line of its docstring says both."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if 'if __name__ == "__main__":' not in text or path.stem == "__main__":
            continue
        first = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        does = first.partition(": ")[2].rstrip(".") if first.startswith("python -m ") else ""
        found[path.stem] = does or "list the recipes, or show one"
    return dict(sorted(found.items(), key=lambda item: (*_ORDER, item[0]).index(item[0])))


def main(arguments: Sequence[str]) -> int:
    """Print the list, or name the command that was meant."""
    known = commands()
    words = [word for word in arguments if word not in ("-h", "--help", "--debug")]
    if words:
        name = words[0]
        hint = f"type python -m resnet_fn.{name}" if name in known else closest(name, known)
        raise cli.UsageError(f"unknown argument {name!r}; {hint}")
    print(
        "Train residual networks on MindSpore with a functional loop in the open.\n\ncommands (--help shows the flags):"
    )
    for name, does in known.items():
        print(f"  python -m resnet_fn.{name:12} {does}")
    return 0


if __name__ == "__main__":
    cli.run("resnet_fn", main, sys.argv[1:])
