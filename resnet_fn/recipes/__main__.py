"""python -m resnet_fn.recipes [NAME]: list the recipes, or show one with what each setting means."""

import dataclasses
import inspect
from collections.abc import Sequence

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.config.fields import flag_name, show_value
from resnet_fn.config.recipe import Recipe

_EXAMPLES = """examples:
  python -m resnet_fn.recipes            all recipes
  python -m resnet_fn.recipes digits     one: its settings, and what each means
"""


def about(name: str) -> str:
    """What is written of a recipe: its docstring in recipes.py."""
    return inspect.getdoc(getattr(recipes, name)) or ""


def listing() -> str:
    """All recipes, two lines each."""
    return "\n".join(
        f"{name}: {recipe.model} on {recipe.dataset}, {recipe.epochs} epochs, batch {recipe.batch_size}\n"
        f"    {about(name).partition(chr(10))[0]}"
        for name, recipe in recipes.RECIPES.items()
    )


def details(name: str) -> str:
    """One recipe's settings; those that differ from a setting's default are marked."""
    chosen = recipes.recipe(name)
    lines = [name, about(name), "", "settings (* differs from the setting's default):"]
    for field in dataclasses.fields(Recipe):
        value = getattr(chosen, field.name)
        if field.name == "name":
            continue
        mark = "*" if value != field.default else " "
        unit = f" [{field.metadata['unit']}]" if field.metadata["unit"] else ""
        lines.append(
            f" {mark} --{flag_name(field.name):22} {show_value(value) or '-':12} {field.metadata['meaning']}{unit}"
        )
    lines += ["", f"python -m resnet_fn.train --recipe {name}"]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """List, or show one."""
    flags = cli.Parser("recipes", "List the recipes, or show one with what each setting means.", _EXAMPLES, "[NAME]")
    flags.add_argument("name", nargs="?", metavar="NAME", help="the recipe to show")
    parsed = flags.parse(arguments)
    with cli.usage_errors():
        print(details(parsed.name) if parsed.name else listing())
    return 0


if __name__ == "__main__":
    cli.run("recipes", main)
