"""Help, the lists of commands and recipes, and the pictures of `plot`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn import __main__ as listing
from resnet_fn import plot, recipes
from resnet_fn.config import cli
from resnet_fn.config.field_flags import add_fields
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.recipes import __main__ as recipe_list

SCREEN = 24  # lines of 80 columns


def run(*arguments, **more):
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=120, env=environment, **more
    )


@pytest.mark.parametrize("command", sorted(listing.COMMANDS))
def test_every_command_has_help_in_groups_of_a_screen(command):
    done = run(f"resnet_fn.{command}", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: python -m resnet_fn.{command}")
    assert "examples:\n" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())  # an example stays on one line
    for group in done.stdout.split("\n\n"):
        assert len(group.splitlines()) <= SCREEN + 1, group
    assert "mindspore" not in done.stderr.lower()


def test_every_field_is_a_flag_in_a_group(capsys):
    parser = cli.Parser("train", "", "", "")
    add_fields(parser, recipes.recipe("digits"), skip=("name",))
    add_fields(parser, RunOptions)
    text = parser.format_help()
    for field in (*Recipe.__dataclass_fields__, *RunOptions.__dataclass_fields__):
        flag = field.replace("_", "-")
        assert field == "name" or f"--{flag} " in text or f"--[no-]{flag}" in text, field


def test_the_package_lists_its_commands():
    done = run("resnet_fn")
    assert done.returncode == 0
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines() if line.startswith("  python")]
    assert [words[2] for words in lines][:6] == [
        f"resnet_fn.{name}" for name in ("train", "launch", "evaluate", "predict", "export", "plot")
    ]
    assert all(len(words) == 4 for words in lines)  # each says what it does


@pytest.mark.parametrize(
    ("word", "hint"),
    [("trian", "did you mean train"), ("export", "type python -m resnet_fn.export"), ("--bogus", "use|did you mean")],
)
def test_a_wrong_command_names_the_right_one(word, hint):
    with pytest.raises(cli.UsageError, match=hint):
        listing.main([word])


def test_recipes_are_listed_and_explained(capsys):
    assert recipe_list.main([]) == 0
    assert recipe_list.main(["digits"]) == 0
    text = capsys.readouterr().out
    for name, recipe in recipes.RECIPES.items():
        assert f"{name}: {recipe.model} on {recipe.dataset}, {recipe.epochs} epochs" in text
        assert len(recipe_list.about(name)) > 20, f"write a comment above the recipe {name}"
    assert " * --max-rotation           15.0         random rotation of a training image, each way [degrees]" in text
    assert "   --momentum               0.9 " in text
    with pytest.raises(cli.UsageError, match="recipe: 'digit' is unknown; "):
        recipe_list.main(["digit"])


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m resnet_fn.train --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def runs():
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
        rows = [{"event": "train", "update": u, "loss": 2 / u, "accuracy": 0.1 * u, "lr": 0.1} for u in range(1, 9)]
        rows.append({"event": "eval", "update": 8, "loss": None, "top1": 0.9})  # a loss that was not finite
        text = "".join(json.dumps(row) + "\n" for row in rows) + '{"event": "tra'  # a line that is being written
        Path("runs", name, "metrics.jsonl").write_text(text)
    return ["runs/a", "runs/b"]


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot_draws_the_same_file_twice(runs, ending, magic, capsys):
    for name in ("one", "two"):
        assert plot.main([*runs, "--out", f"{name}.{ending}"]) == 0
    assert capsys.readouterr().out.startswith(f"curves of runs/a, runs/b: one.{ending}\n")
    assert Path(f"one.{ending}").read_bytes().startswith(magic)
    assert Path(f"one.{ending}").read_bytes() == Path(f"two.{ending}").read_bytes()


def test_plot_says_what_is_wrong(runs):
    with pytest.raises(ValueError, match=r"^runs/c: holds no metrics\.jsonl; use one of a, b$|did you mean"):
        plot.read_events(Path("runs/c"))
    Path("runs/b/metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"^runs/b/metrics\.jsonl: is still empty; wait for the first update$"):
        plot.read_events(Path("runs/b"))
    with pytest.raises(cli.UsageError, match=r"^--out: 'x\.gif' has no ending that is known; use \.png, \.svg or"):
        plot.main(["runs/a", "--out", "x.gif"])
