"""A flag for each setting: its type, its name in the help, what was given."""

import pytest

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.config.cli import add_fields, settings_in
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe


def test_every_field_is_a_flag_in_a_group(capsys):
    parser = cli.Parser("train", "", "", "")
    add_fields(parser, recipes.recipe("digits"), skip=("name",))
    add_fields(parser, RunOptions)
    text = parser.format_help()
    for field in (*Recipe.__dataclass_fields__, *RunOptions.__dataclass_fields__):
        flag = field.replace("_", "-")
        assert field == "name" or f"--{flag} " in text or f"--[no-]{flag}" in text, field


def parsed(*words):
    parser = cli.Parser("train", "", "", "")
    add_fields(parser, Recipe, skip=("name",))
    return parser.parse(words)


def test_only_what_was_given_is_a_setting():
    words = ("--milestones", "30,60.5", "--no-nesterov", "--lr", "0.5", "--epochs", "3", "--policy", "")
    given = {"milestones": (30.0, 60.5), "nesterov": False, "learning_rate": 0.5, "epochs": 3, "policy": ""}
    assert settings_in(parsed(*words), Recipe) == given
    assert settings_in(parsed(), Recipe) == {}


@pytest.mark.parametrize(
    ("words", "text"),
    [(("--epochs", "2.5"), "2.5"), (("--learning-rate", "fast"), "fast"), (("--milestones", "30;60"), "30;60")],
)
def test_a_value_of_another_type_stays_text_to_be_refused_with_the_others(words, text):
    assert list(settings_in(parsed(*words), Recipe).values()) == [text]
