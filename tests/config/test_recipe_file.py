"""Recipe files over what they extend, flags over both, and the line of each mistake."""

import json
from pathlib import Path

import pytest

from resnet_fn.config.cli import UsageError
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import read_recipe_file, recipe_text
from resnet_fn.config.stored import draft_of_run
from resnet_fn.config.toml_file import read_toml
from resnet_fn.config.values import to_dict
from resnet_fn.recipes import RECIPES, load_recipe
from resnet_fn.train import parse

MINE = """\
# photographs of flowers
format = 1
extends = "cifar10_resnet18"
epochs = 40
milestones = [
    20, 30.5,
]
schedule = "step"
lr = 1           # the name that PyTorch's scripts use
weight-decay = 1e-4
nesterov = true
data_dir = "set/ü"
log-every = 5
"""


def write(text, name="mine.toml"):
    """Write a file; "; " ends a line."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text.replace("; ", "\n"), encoding="utf-8")


def test_a_file_overrides_what_it_extends():
    write(MINE)
    changes = {
        "epochs": 40,
        "milestones": (20.0, 30.5),
        "learning_rate": 1.0,
        "weight_decay": 1e-4,
        "nesterov": True,
    }
    expected = RECIPES["cifar10_resnet18"].changed(name="mine", schedule="step", **changes)
    recipe, options, _ = parse(["--recipe", "mine.toml"])
    assert recipe == expected == Recipe.from_draft(load_recipe("mine.toml").complete())
    assert type(recipe.learning_rate) is type(recipe.milestones[0]) is float
    assert options == RunOptions(data_dir="set/ü", log_every=5)


def test_a_file_may_extend_one_at_home(monkeypatch):
    monkeypatch.setenv("HOME", str(Path("home").resolve()))
    write('extends = "digits"; epochs = 7', "home/base.toml")
    write('extends = "~/base.toml"')
    assert Recipe.from_draft(load_recipe("mine.toml").complete()).epochs == 7


def test_flags_override_the_file():
    write(MINE)
    write('extends = "../mine.toml"; epochs = 35; name = "ours"', "further/yours.toml")
    recipe, options, _ = parse(
        ["--recipe", "further/yours.toml", "--lr", "0.5", "--data-dir", "elsewhere"]
    )
    assert (recipe.name, recipe.epochs, recipe.learning_rate, recipe.weight_decay) == (
        "ours",
        35,
        0.5,
        1e-4,
    )
    assert (options.data_dir, options.log_every) == ("elsewhere", 5)


def test_useless_settings_of_an_extended_file_are_dropped():
    write('extends = "digits"; dataset = "imagefolder"')
    write('extends = "mine.toml"; epochs = 2', "next.toml")
    for name in ("mine.toml", "next.toml"):
        recipe, _, left_out = parse(["--recipe", name])
        assert (recipe.max_shift, recipe.max_zoom) == (0, 0.0)
        assert left_out[0] == "max_shift 1 is left out: it is for data sets in memory"
    write('extends = "mine.toml"; dataset = "digits"; max_shift = 2', "back.toml")
    recipe, _, left_out = parse(["--recipe", "back.toml"])
    assert recipe.max_shift == 2
    assert not [line for line in left_out if line.startswith("max_shift")]


def test_a_file_can_undo_what_it_extends():
    write('extends = "finetune"; multi_label = true; optimizer = "adamw"', "base.toml")
    assert parse(["--recipe", "base.toml"])[0].loss == "bce"
    write('extends = "base.toml"; multi_label = false; optimizer = "sgd"')
    recipe, _, left_out = parse(["--recipe", "mine.toml"])
    assert recipe == RECIPES["finetune"].changed(name="mine")
    assert left_out == ()


def test_extended_files_obey_the_rules_of_new_runs():
    write('extends = "finetune"; check_files = "yes"; zero_init_residual = true', "first.toml")
    write('extends = "first.toml"; dataset = "mindrecord"; weights = "net.pth"', "second.toml")
    write('extends = "second.toml"; epochs = 3; validation_share = 0.0')
    recipe, options, left_out = parse(["--recipe", "mine.toml"])
    assert {line.split()[0] for line in left_out} >= {"check_files", "zero_init_residual"}
    assert (options.check_files, recipe.zero_init_residual) == ("auto", False)


def test_resumed_extended_files_need_not_obey_new_rules():
    both = 'class_weights = "balanced"; sampling = "balanced"'
    write(f'extends = "finetune"; {both}', "base.toml")
    write('extends = "base.toml"; epochs = 3')
    recipe, _, _ = parse(["--recipe", "mine.toml", "--resume", "run"])
    assert (recipe.class_weights, recipe.sampling) == ("balanced", "balanced")
    with pytest.raises(UsageError, match=r"^base.toml line 2: class_weights: 'balanced' counts"):
        parse(["--recipe", "mine.toml"])


def test_a_written_file_leaves_out_useless_settings_only():
    """Of runs that began before the rules."""
    both = {"dataset": "imagefolder", "class_weights": "balanced", "sampling": "balanced"}
    options = RunOptions.unchecked({"device": "Ascend", "threads": 2, "fast_math": True})
    write(recipe_text(Recipe.unchecked(both), options))
    text = Path("mine.toml").read_text(encoding="utf-8")
    assert "fast_math = true" in text
    assert "threads" not in text
    with pytest.raises(UsageError, match="class_weights: 'balanced' counts rare classes twice"):
        parse(["--recipe", "mine.toml"])


def test_what_a_flag_drops_is_not_chosen():
    write('dataset = "imagefolder"; check_files = "yes"; precision = "fp16"; max_skips = 3')
    recipe, options, left_out = parse(
        ["--recipe", "mine.toml", "--dataset", "digits", "--precision", "fp32"]
    )
    assert [line.split()[0] for line in left_out] == ["check_files", "max_skips"]
    assert (options, options.chosen) == (RunOptions(), {})
    assert sorted(recipe.chosen) == ["dataset", "precision"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("epochs = 3; batch_sise = 8", "mine.toml line 2: |'batch_sise'|did you mean batch_size"),
        ('batch_size = "many"', "mine.toml line 1: batch_size: 'many'|a whole number"),
        ('nesterov = "no"', "mine.toml line 1: nesterov: 'no'|true or false"),
        ("epochs = 3; batch_size = 0", "mine.toml line 2: batch_size: 0|give 1 or more"),
        ("model = 18", "mine.toml line 1: model: 18|a text"),
        ("milestones = 3", "mine.toml line 1: milestones: 3|a list of numbers"),
        ("out_dir = 3", "mine.toml line 1: out_dir: 3 is not a text"),
        *(
            (
                f"learning_rate = {number}",
                "mine.toml line 1: learning_rate|is not finite; give a number",
            )
            for number in ("1" + "0" * 400, "-" + "9" * 400)
        ),
        (
            '"policy_ops" = 3; fast-math = true',
            "mine.toml line 1: policy_ops: 3|--policy randaugment; mine.toml line 2: fast_math: "
            "True|--device Ascend",
        ),
        (
            'optimizer = "adam"; nesterov = true',
            "mine.toml line 2: nesterov: True|for SGD|--no-nesterov",
        ),
        ("seed = 1; format = 2", "mine.toml line 2: format: 2|1"),
        ("format = true", "mine.toml line 1: format: True|1"),
        ("policy = {a = 1}", "mine.toml line 1: policy: |sections or tables|name = value"),
        ('extends = "digit"', "mine.toml line 1: extends: 'digit'|did you mean digits"),
        ("extends = 3", "mine.toml line 1: extends: '3' is unknown"),
        ('extends = "none.toml"', "mine.toml line 1: extends: none.toml|did you mean mine.toml"),
        (
            'extends = "mine.toml"',
            "mine.toml line 1: extends: mine.toml|itself; name another recipe",
        ),
        ("[data]; flip = true", "mine.toml line 1: |data: |no sections|name = value"),
        ("seed = 1; model = resnet50", "mine.toml: |Invalid value|line 2, column 9|quotes"),
        ("flip = True", "mine.toml: |Invalid value|line 1, column 8|true and false"),
        ("seed = 1; seed = 2", "mine.toml: |Cannot overwrite|line 2"),
        ("milestones = [1,;  2", "mine.toml: |Unclosed array"),
        ("seed = " + "[" * 100_000, "mine.toml: |nested too deeply; write one name = value"),
        (
            "lr = 1; ; learning-rate = 2",
            "mine.toml line 3: learning-rate: |line 1|lr; keep one line",
        ),
        (
            'extends = "finetune"; multi_label = true; loss = "cross_entropy"',
            "mine.toml line 2: multi_label: True|bce",
        ),
    ],
)
def test_mistakes_have_their_line(text, parts, raises_line):
    write(text)
    with raises_line(*parts.split("|"), kind=UsageError):
        parse(["--recipe", "mine.toml"])


def test_bytes_that_are_not_text_have_a_fix(raises_line):
    Path("mine.toml").write_bytes('group_by = "größe"\n'.encode("latin-1"))
    with raises_line("mine.toml line 1: group_by: ", "rename the file, or write", kind=UsageError):
        parse(["--recipe", "mine.toml"])


def test_a_file_that_cannot_be_read_is_named(raises_line):
    Path("mine.toml").mkdir()
    with raises_line("mine.toml: cannot be read (Is a directory); give a file", kind=UsageError):
        parse(["--recipe", "mine.toml"])
    with raises_line("mine.toml: cannot be read (Is a directory); give a file"):
        load_recipe("mine.toml")


def test_a_dropped_setting_of_a_file_is_named():
    """Though it be the default's value; the line of a file stands for what the file says."""
    write('policy = "randaugment"; policy_ops = 2')
    _, _, left_out = parse(["--recipe", "mine.toml", "--policy", ""])
    assert left_out == ("policy_ops 2 is left out: it needs --policy randaugment",)
    draft = read_recipe_file(Path("mine.toml"), RECIPES).resolve({"policy": ""})
    assert (draft.values["policy_ops"].line, draft.values["policy_ops"].value) == ("", 2)


def test_each_value_of_recipe_files_has_its_line():
    write('# b = 1; a = 1; ; "b" = [;  2, 3]   # c = 4;   c-d = "x = 5"; \'e\' = 1e-3')
    values = {"a": 1, "b": [2, 3], "c-d": "x = 5", "e": 1e-3}
    lines = (2, 4, 6, 7)
    expected = {
        word: (values[word], f"mine.toml line {line}")
        for word, line in zip(values, lines, strict=True)
    }
    assert read_toml(Path("mine.toml")) == expected


def test_flags_complete_or_overrule_what_a_file_needs():
    write('reset_head = true; policy = "randaugment"; policy_ops = 3; dataset = "cifar10"')
    with pytest.raises(
        UsageError, match=r"^mine.toml line 1: reset_head: True needs weights; give --weights FILE$"
    ):
        parse(["--recipe", "mine.toml"])
    recipe, _, left_out = parse(["--recipe", "mine.toml", "--weights", "net.pth", "--policy", ""])
    assert (recipe.reset_head, recipe.policy, recipe.policy_ops) == (True, "", 2)
    assert left_out == ("policy_ops 3 is left out: it needs --policy randaugment",)


def test_what_is_extended_must_be_whole():
    write("epochs = 3; reset_head = true", "base.toml")
    write('extends = "base.toml"; weights = "net.pth"')
    with pytest.raises(
        UsageError, match=r"^mine.toml line 1: extends: base.toml line 2: reset_head: True needs"
    ):
        parse(["--recipe", "mine.toml"])


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_run_writes_is_the_same_recipe(name):
    odd = 'C:\\new "ü" \x7f\t\n#😀'  # a path may hold anything
    recipe = RECIPES[name]
    options = RunOptions(data_dir=odd, accumulate=2, out_dir="runs/one", resume="never")
    Path("recipe.toml").write_text(recipe_text(recipe, options), encoding="utf-8")
    again = read_recipe_file(Path("recipe.toml"), RECIPES).complete()
    expected = recipe, RunOptions(data_dir=odd, accumulate=2), ()
    assert (
        Recipe.from_draft(again),
        RunOptions.from_draft(again),
        again.drop_notes,
    ) == expected


@pytest.mark.parametrize(
    "words", ["cifar100_resnet18 --schedule cosine", "imagenet_resnet50_v2 --epochs 5"]
)
def test_written_recipe_files_read_as_the_same_recipe(words):
    recipe, options, left_out = parse(["--recipe", *words.split()])
    Path("recipe.toml").write_text(recipe_text(recipe, options))
    assert parse(["--recipe", "recipe.toml"]) == (recipe, options, ())
    assert left_out


def test_a_multi_label_flag_replaces_a_files_settings():
    write('extends = "finetune"; loss = "cross_entropy"; sampling = "balanced"')
    recipe, _, left_out = parse(["--recipe", "mine.toml", "--multi-label"])
    assert (recipe.loss, recipe.sampling) == ("bce", "shuffle")
    assert "sampling balanced becomes shuffle: multi_label needs --sampling shuffle" in left_out


def test_a_files_multi_label_rejects_contradicting_flags(raises_line):
    write(
        'extends = "finetune"; multi_label = true; loss = "bce"; label_smoothing = 0; monitor = '
        '"map"'
    )
    assert parse(["--recipe", "mine.toml"])[0].multi_label
    for flag, value in (("--loss", "cross_entropy"), ("--sampling", "balanced")):
        with raises_line("mine.toml line 2: multi_label: True needs", flag, kind=UsageError):
            parse(["--recipe", "mine.toml", flag, value])


def test_a_resume_drops_options_that_new_rules_forbid():
    """Nobody typed them: they are the run's. What they need may have been added since."""
    options = {**to_dict(RunOptions()), "max_skips": 50, "data_threads": 2, "log_every": 3}
    Path("run").mkdir()
    Path("run/config.json").write_text(
        json.dumps({"recipe": to_dict(Recipe()), "options": options})
    )
    _, resumed, left_out = parse(["--resume", "run"])
    assert resumed == RunOptions(resume="run", log_every=3)
    assert [line.partition(" is left out: it ")[0] for line in left_out] == [
        "data_threads 2",
        "max_skips 50",
    ]
    with pytest.raises(UsageError, match=r"^data_threads: 2 is for data sets of image files"):
        parse(["--resume", "run", "--data-threads", "2"])


@pytest.mark.parametrize(("section", "name"), [("recipe", "log_every"), ("options", "epochs")])
def test_stored_settings_in_wrong_sections_are_named(section, name):
    settings = {"recipe": to_dict(Recipe()), "options": to_dict(RunOptions())}
    settings[section][name] = 3
    with pytest.raises(ValueError, match=rf"^{section}: unknown setting '{name}'; "):
        draft_of_run(settings)
