"""The command `recipes` lists recipes and shows settings."""

import sys

from resnet_fn import recipes
from resnet_fn.recipes import __main__ as recipe_list


def test_recipes_are_listed_and_explained(capsys):
    assert recipe_list.main([]) == 0
    assert recipe_list.main(["digits"]) == 0
    text = capsys.readouterr().out
    for name, recipe in recipes.RECIPES.items():
        assert f"{name}: {recipe.model} on {recipe.dataset}, {recipe.epochs} epochs" in text
        assert len(recipe_list.about(name)) > 20, f"write a comment above the recipe {name}"
    assert (
        " * --max-rotation           15.0         largest random rotation of a training image "
        "[degrees]" in text
    )
    assert "   --momentum               0.9 " in text


def test_a_recipe_file_is_shown_with_its_lines(capsys, write_recipe):
    assert recipe_list.main([write_recipe({"extends": "digits", "lr": 0.1, "log_every": 5})]) == 0
    text = capsys.readouterr().out
    assert text.startswith("mine\n")
    for line in (
        " * --learning-rate          0.1          peak learning rate, not scaled by workers "
        "(mine.toml line 2)\n",
        " * --max-rotation           15.0         largest random rotation of a training image "
        "[degrees]\n",
        "how it is run:\n * --log-every              5            interval between log entries "
        "[updates] "
        "(mine.toml line 3)\n",
    ):
        assert line in text
    assert text.endswith("python -m resnet_fn.train --recipe mine.toml\n")


def test_a_narrow_terminal_breaks_lines_between_words(capsys, monkeypatch):
    assert recipe_list.main(["finetune"]) == 0
    words = capsys.readouterr().out.split()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert recipe_list.main(["finetune"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [word for line in lines for word in line.split()] == words
    assert sum(line.startswith(" " * 41) for line in lines) > 10  # meanings go on where they begin
