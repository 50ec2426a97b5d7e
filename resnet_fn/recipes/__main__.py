"""The command `recipes` lists all recipes, or shows the settings of one recipe."""

import inspect
from collections.abc import Sequence

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.config.draft import SourcedValue
from resnet_fn.config.options import RunOptions
from resnet_fn.config.printing import say, shell_words
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.setting_names import flag_name
from resnet_fn.config.values import show_value
from resnet_fn.runtime.console import wrapped

_EXAMPLES = """examples:
  python -m resnet_fn.recipes            all recipes
  python -m resnet_fn.recipes digits     the settings of one recipe
  python -m resnet_fn.recipes my.toml    the settings of a recipe file
"""

_MEANING = 41  # the column where a setting's meaning begins


def about(name: str) -> str:
    """Return the docstring of a recipe."""
    return inspect.getdoc(getattr(recipes, name)) or ""


def details(name: str) -> str:
    """Format the settings of a recipe or recipe file as text.

    A * marks values that are not defaults.
    """
    file = recipes.load_recipe(name).complete()
    title = [file.values["name"].value] if name not in recipes.RECIPES else [name, about(name)]
    lines = [*title, "", "settings (* differs from the setting's default):"]
    lines += [_line(file.values[name]) for name in Recipe.declarations if name != "name"]
    if options := [file.values[name] for name in RunOptions.declarations if file.values[name].line]:
        lines += ["", "how it is run:", *map(_line, options)]
    lines += ["", *file.drop_notes] if file.drop_notes else []
    lines += ["", cli.with_typed_command(f"python -m resnet_fn.train --recipe {shell_words(name)}")]
    return "\n".join(lines)


def _line(setting: SourcedValue) -> str:
    declared = setting.declared
    mark = "*" if setting.value != declared.default else " "
    unit = f" [{declared.unit}]" if declared.unit else ""
    line = f" ({setting.line})" if setting.line else ""
    start = f" {mark} --{flag_name(setting.name):22} {show_value(setting.value) or '-':12} "
    return f"{start:{_MEANING}}{declared.meaning}{unit}{line}"


def main(arguments: Sequence[str]) -> int:
    """List all recipes, or print the settings of one recipe."""
    flags = cli.Parser(
        "recipes", "List the recipes, or show the settings of one recipe.", _EXAMPLES, "[NAME]"
    )
    flags.add_argument(
        "name", nargs="?", metavar="NAME", help="the recipe to show, or a recipe file"
    )
    parsed = flags.parse(arguments)
    with cli.as_usage_error():
        if parsed.name:
            for line in details(parsed.name).splitlines():
                say(*wrapped(line, indent=_MEANING if line.startswith(" ") else 0))
            return 0
    for name, recipe in recipes.RECIPES.items():
        say(
            f"{name}: {recipe.model} on {recipe.dataset}, {recipe.epochs} epochs, batch "
            f"{recipe.batch_size}",
            f"    {about(name).partition(chr(10))[0]}",
        )
    return 0


if __name__ == "__main__":
    cli.run("recipes", main)
