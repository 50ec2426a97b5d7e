"""A recipe as a file: the same names, checks and messages as flags, and the line in which a fault stands."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from resnet_fn.config.cli import UsageError
from resnet_fn.config.fields import to_dict
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import read_recipe_file, recipe_text
from resnet_fn.recipes import RECIPES, load_recipe, read_recipe
from resnet_fn.train import parse

toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML needs Python 3.11")

MINE = """\
# photographs of flowers
extends = "cifar10_resnet18"
epochs = 40
milestones = [
    20, 30.5,
]
lr = 1           # the name that PyTorch's scripts use
weight-decay = 1e-4
nesterov = true
data_dir = "set/ü"
log-every = 5
"""


@toml
def test_a_file_is_its_settings_over_those_of_what_it_extends():
    Path("mine.toml").write_text(MINE, encoding="utf-8")
    changes = {"epochs": 40, "milestones": (20.0, 30.5), "learning_rate": 1.0, "weight_decay": 1e-4, "nesterov": True}
    expected = dataclasses.replace(RECIPES["cifar10_resnet18"], name="mine", **changes)
    recipe, options, _ = parse(["--recipe", "mine.toml"])
    assert recipe == expected == load_recipe("mine.toml").checked()
    assert type(recipe.learning_rate) is type(recipe.milestones[0]) is float
    assert options == RunOptions(data_dir="set/ü", log_every=5)


@toml
def test_flags_win_over_the_file_and_the_file_over_what_it_extends():
    Path("mine.toml").write_text(MINE, encoding="utf-8")
    Path("further").mkdir()
    Path("further/yours.toml").write_text('extends = "../mine.toml"\nepochs = 35\nname = "ours"\n')
    recipe, options, _ = parse(["--recipe", "further/yours.toml", "--lr", "0.5", "--data-dir", "elsewhere"])
    assert (recipe.name, recipe.epochs, recipe.learning_rate, recipe.weight_decay) == ("ours", 35, 0.5, 1e-4)
    assert (options.data_dir, options.log_every) == ("elsewhere", 5)


def test_json_says_the_same():
    Path("mine.json").write_text('{\n "extends": "digits",\n "lr": 1,\n "milestones": [3],\n "schedule": "step"}')
    recipe, *_ = parse(["--recipe", "mine.json"])
    changes = {"learning_rate": 1.0, "milestones": (3.0,), "schedule": "step"}
    assert recipe == dataclasses.replace(RECIPES["digits"], name="mine", **changes)


@toml
def test_without_extends_the_rest_is_the_settings_own_defaults():
    Path("mine.toml").write_text("seed = 3")
    assert load_recipe("mine.toml").checked() == Recipe(name="mine", seed=3)


@toml
def test_what_a_file_leaves_without_effect_of_what_it_extends_is_left_out():
    Path("mine.toml").write_text('extends = "digits"\ndataset = "imagefolder"\n')
    recipe, _, left_out = parse(["--recipe", "mine.toml"])
    assert (recipe.max_shift, recipe.max_zoom) == (0, 0.0)
    assert left_out[0] == "max_shift 1 is left out: it is for sets in memory"


@toml
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 3\nbatch_sise = 8", "mine.toml line 2: unknown setting 'batch_sise'; did you mean batch_size"),
        ("\n\nbatch_size = 0", "mine.toml line 3: batch_size: 0 is too small; give 1 or more"),
        ('batch_size = "many"', "mine.toml line 1: batch_size: 'many' is not a whole number"),
        ("batch_size = 6.5", "mine.toml line 1: batch_size: 6.5 is not a whole number"),
        ('nesterov = "no"', "mine.toml line 1: nesterov: 'no' is not true or false"),
        ("model = 18", "mine.toml line 1: model: 18 is not a text"),
        ('milestones = [3, "x"]', "mine.toml line 1: milestones: [3, 'x'] is not a list of numbers"),
        ("milestones = 3", "mine.toml line 1: milestones: 3 is not a list of numbers"),
        ('seed = 1\noptimizer = "adm"', "mine.toml line 2: optimizer: 'adm' is unknown; did you mean adam"),
        (
            '"policy_ops" = 3\nfast-math = true',
            "mine.toml line 1: policy_ops: 3 needs --policy randaugment; "
            "mine.toml line 2: fast_math: True needs --device Ascend",
        ),
        ('extends = "digit"', "mine.toml line 1: extends: 'digit' is unknown; did you mean digits"),
        ("extends = 3", "mine.toml line 1: extends: 3 is not a text"),
        ('extends = "none.toml"', "mine.toml line 1: extends: none.toml: does not exist; did you mean mine.toml"),
        ('extends = "mine.toml"', "mine.toml line 1: extends: mine.toml extends itself; name another recipe"),
        ("lr = 1\n\nlearning-rate = 2", "mine.toml line 3: learning-rate: is given on line 1 already, as lr; keep one"),
    ],
)
def test_mistakes_are_told_with_their_line(text, message):
    Path("mine.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        parse(["--recipe", "mine.toml"])
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@toml
def test_a_flag_may_give_what_the_file_lacks_and_may_take_away_what_it_needs():
    Path("mine.toml").write_text('reset_head = true\npolicy = "randaugment"\npolicy_ops = 3\ndataset = "cifar10"\n')
    with pytest.raises(UsageError, match=r"^mine.toml line 1: reset_head: True needs weights; give --weights FILE$"):
        parse(["--recipe", "mine.toml"])
    recipe, _, left_out = parse(["--recipe", "mine.toml", "--weights", "net.pth", "--policy", ""])
    assert (recipe.reset_head, recipe.policy, recipe.policy_ops) == (True, "", 2)
    assert left_out == ("policy_ops 3 is left out: it needs --policy randaugment",)


def test_a_files_line_that_gives_the_default_needs_nothing():
    """The file of a run gives nearly all settings."""
    Path("mine.json").write_text('{"dataset": "digits", "crop_scale": 0.08, "policy_ops": 2}')
    assert load_recipe("mine.json").checked() == Recipe(name="mine")
    Path("mine.json").write_text('{"optimizer": "adam", "nesterov": true}')
    with pytest.raises(ValueError, match=r"^mine.json line 1: nesterov: True is SGD's, not adam's; give"):
        load_recipe("mine.json").checked()


def test_where_python_has_no_toml_a_run_writes_json(monkeypatch):
    monkeypatch.setitem(sys.modules, "tomllib", None)
    Path("again.json").write_text(recipe_text(Recipe(seed=4), RunOptions()))
    assert read_recipe_file(Path("again.json"), RECIPES).recipe == Recipe(seed=4)


@toml
def test_what_is_extended_must_be_whole():
    Path("base.toml").write_text("epochs = 3\nreset_head = true")
    Path("mine.toml").write_text('extends = "base.toml"\nweights = "net.pth"')
    with pytest.raises(UsageError, match=r"^mine.toml line 1: extends: base.toml line 2: reset_head: True needs"):
        parse(["--recipe", "mine.toml"])


@toml
@pytest.mark.parametrize("name", RECIPES)
def test_what_a_run_writes_is_the_same_recipe(name):
    odd = 'C:\\pictures "ü" \x7f\n#'  # a path may hold any text
    recipe, options = RECIPES[name], RunOptions(data_dir=odd, accumulate=2, out_dir="runs/one", resume="never")
    text = recipe_text(recipe, options)
    Path("recipe.toml").write_text(text)
    again = read_recipe_file(Path("recipe.toml"), RECIPES)
    assert again.recipe == recipe
    assert again.options == RunOptions(data_dir=odd, accumulate=2)


@toml
@pytest.mark.parametrize(
    "words", ["imagenet_resnet50_v2 --ema 0", "cifar100_resnet18 --schedule cosine", "imagenet_resnet50_v2 --epochs 5"]
)
def test_what_a_run_writes_is_the_same_recipe_where_something_was_left_out(words):
    recipe, options, left_out = parse(["--recipe", *words.split()])
    Path("recipe.toml").write_text(recipe_text(recipe, options))
    assert parse(["--recipe", "recipe.toml"]) == (recipe, options, ())
    assert left_out


def test_a_file_may_not_contradict_itself_and_gives_way_to_flags():
    Path("mine.json").write_text('{"extends": "finetune", "multi_label": true, "loss": "cross_entropy"}')
    with pytest.raises(UsageError, match=r"^mine.json line 1: multi_label: True needs --loss bce or focal$"):
        parse(["--recipe", "mine.json"])
    Path("mine.json").write_text('{"extends": "finetune", "loss": "cross_entropy", "sampling": "balanced"}')
    recipe, _, left_out = parse(["--recipe", "mine.json", "--multi-label"])
    assert (recipe.loss, recipe.sampling) == ("bce", "shuffle")
    assert "sampling balanced is left out: multi_label needs --sampling shuffle" in left_out


def test_an_option_that_was_typed_wins_over_the_file_though_it_be_the_default():
    Path("mine.json").write_text('{"log_every": 5, "keep_last": 7}')
    options = read_recipe("mine.json", RunOptions(log_every=RunOptions().log_every)).options
    assert (options.log_every, options.keep_last) == (1, 7)
    assert read_recipe("mine.json", RunOptions()).options.log_every == 5


def test_a_run_resumes_without_the_options_that_have_no_effect_by_todays_rules():
    """Nobody typed them: they are the run's. What they need may have been added since."""
    options = {**to_dict(RunOptions()), "max_skips": 50, "data_threads": 2, "log_every": 3}
    Path("run").mkdir()
    Path("run/config.json").write_text(json.dumps({"recipe": to_dict(Recipe()), "options": options}))
    _, resumed, left_out = parse(["--resume", "run"])
    assert resumed == RunOptions(resume="run", log_every=3)
    assert [line.partition(" is left out: it ")[0] for line in left_out] == ["data_threads 2", "max_skips 50"]
    with pytest.raises(UsageError, match=r"^data_threads: 2 is for sets of image files"):
        parse(["--resume", "run", "--data-threads", "2"])


def test_a_flag_that_takes_away_what_several_classes_need_is_refused_not_the_classes():
    settings = '"multi_label": true, "loss": "bce", "label_smoothing": 0, "monitor": "map"'
    Path("mine.json").write_text(f'{{"extends": "finetune", {settings}}}')
    assert parse(["--recipe", "mine.json"])[0].multi_label
    with pytest.raises(UsageError) as caught:
        parse(["--recipe", "mine.json", "--loss", "cross_entropy", "--sampling", "balanced"])
    assert str(caught.value) == (
        "loss: 'cross_entropy' does not go with multi_label True, which needs --loss bce or focal; "
        "give --no-multi-label too; sampling: 'balanced' does not go with multi_label True, "
        "which needs --sampling shuffle; give --no-multi-label too"
    )
