"""The task that the flags describe: recipe, batches, micro-batches."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.parity import commands, flags
from resnet_fn.parity.trace import Task


def task(*arguments: str) -> Task:
    parser = cli.Parser("parity", "")
    parser.add_argument("--net")
    parser.add_argument("--reference")
    flags.add_task_flags(parser, flags.recipe_named_in(list(arguments)))
    return flags.task_of(parser.parse(arguments))


def test_the_learning_rate_goes_with_the_batch():
    whole = recipes.recipe("digits")
    use = flags.ladder_recipe(whole, whole.batch_size // 4, None, {})
    assert (use.batch_size, use.learning_rate) == (whole.batch_size // 4, whole.learning_rate / 4)
    assert use.min_learning_rate == whole.min_learning_rate / 4
    assert flags.ladder_recipe(whole, 4, 0.5, {}).learning_rate == 0.5
    assert flags.ladder_recipe(whole, 4, None, {"optimizer": "lamb"}).learning_rate == 1e-3


def test_every_setting_of_a_step_is_the_recipes_or_the_flags():
    described = task("--recipe", "imagenet_resnet50_a3", "--image-size", "8", "--num-classes", "7", "--ema", "0.9")
    a3 = recipes.recipe("imagenet_resnet50_a3")
    for name in ("optimizer", "loss", "weight_decay", "label_threshold", "clip_norm", "mixup", "cutmix", "repeats"):
        assert getattr(described.recipe, name) == getattr(a3, name), name
    assert described.recipe.ema == 0.9
    images, labels = described.batches[0]
    assert (images.shape, labels.shape) == ((4, 3, 8, 8), (4, 7))  # mixed: probabilities
    assert labels.sum(1) == pytest.approx(1, rel=1e-6)


def test_images_are_those_of_the_recipes_data_set_or_usual_ones_for_a_net_of_ones_own():
    images, labels = task().batches[0]
    assert (images.shape, labels.dtype, len(task().batches)) == ((4, 1, 16, 16), np.int32, 5)
    images, labels = task("--net", "mine.py:build", "--reference", "theirs.py:build").batches[0]
    assert images.shape == (4, 3, 32, 32)
    assert labels.max() < 10


def test_own_inputs(tmp_path):
    (tmp_path / "data.py").write_text(
        "import numpy as np\ndef batches():\n    ids = np.arange(6).reshape(2, 3)\n"
        "    return [({'ids': ids, 'mask': ids > 2}, np.ones(2, np.int64))] * 2\ndef wrong():\n    return 7\n"
    )
    batches = task("--inputs", "data.py:batches").batches
    assert (len(batches), batches[0][0]["mask"].dtype) == (2, bool)
    with pytest.raises(ValueError, match=r"^--inputs: data.py:wrong returned int; return a list of \(inputs, labels"):
        task("--inputs", "data.py:wrong")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "digit"], "recipe: 'digit' is unknown; did you mean digits?"),
        (["--batch-size", "4", "--repeats", "3"], "repeats: 3 does not divide the batch size 4"),
        (["--inputs", "data.py:batches", "--steps", "2"], "--steps: --inputs returns the batches; leave it out"),
        (
            ["--steps", "0", "--accumulate", "0"],
            "--steps: 0 is too small; give 1 or more; --accumulate: 0 is too small",
        ),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(cli.UsageError) as error:
        task(*arguments)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mine.py", "--net: 'mine.py' is not FILE:FUNCTION; give for example nets/mine.py:build"),
        ("nowhere.py:build", "--net: there is no file nowhere.py; give FILE.py:FUNCTION"),
        ("mine.txt:build", "--net: mine.txt is not a Python file; its name must end in .py"),
        ("mine.py:number", "--net: mine.py has no function 'number'"),
        ("bad.py:build", "--net: bad.py cannot be imported (ModuleNotFoundError: No module named 'a_missing_package')"),
    ],
)
def test_a_function_that_is_not_there_is_named(place, message, tmp_path):
    for name in ("mine.py", "mine.txt"):
        (tmp_path / name).write_text("number = 7\n")
    (tmp_path / "bad.py").write_text("import a_missing_package\n")
    with pytest.raises(ValueError) as error:
        flags.load_function(place, "--net")
    assert str(error.value) == message
    assert isinstance(error.value, cli.UsageError) == (not place.startswith("bad"))


def test_a_function_may_import_from_beside_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_net.py").write_text("number = 7\n")
    (tmp_path / "mine.py").write_text("import beside_the_net\ndef build():\n    return beside_the_net.number\n")
    assert flags.load_function("mine.py:build", "--net")() == 7


def test_the_value_that_a_function_returns_is_checked():
    assert flags.returned("--net", "mine.py:build", {}, dict, "a dict") == {}
    for value, words in ((7, "int"), (dict, "the class dict")):
        with pytest.raises(ValueError, match=rf"^--net: mine.py:build returned {words}; return a dict$"):
            flags.returned("--net", "mine.py:build", value, dict, "a dict")


def test_a_map_is_read_and_a_mistake_in_it_is_one_line():
    assert commands.corrections_in(argparse.Namespace(map=None)) is None
    Path("names.json").write_text('{"head.weight": "fc.weight"}')
    corrections = commands.corrections_in(argparse.Namespace(map="names.json"))
    assert {name: str(source) for name, source in corrections.items()} == {"head.weight": "fc.weight"}
    with pytest.raises(cli.UsageError, match=r"^--map: name.json cannot be read \(No such file or directory\); "):
        commands.corrections_in(argparse.Namespace(map="name.json"))
