"""What the flags come to: recipe, batches, micro-batches."""

import numpy as np
import pytest

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.parity.commands import flags
from resnet_fn.parity.traces.trace import Task


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
    found = task("--recipe", "imagenet_resnet50_a3", "--image-size", "8", "--num-classes", "7", "--ema", "0.9")
    a3 = recipes.recipe("imagenet_resnet50_a3")
    for name in ("optimizer", "loss", "weight_decay", "label_threshold", "clip_norm", "mixup", "cutmix", "repeats"):
        assert getattr(found.recipe, name) == getattr(a3, name), name
    assert found.recipe.ema == 0.9
    images, labels = found.batches[0]
    assert (images.shape, labels.shape) == ((4, 3, 8, 8), (4, 7))  # mixed: probabilities
    assert labels.sum(1) == pytest.approx(1, rel=1e-6)


def test_images_are_those_of_the_recipes_data_set():
    images, labels = task().batches[0]
    assert (images.shape, labels.dtype, len(task().batches)) == ((4, 1, 16, 16), np.int32, 5)


def test_images_for_a_net_of_ones_own_are_usual_ones():
    images, labels = task("--net", "mine.py:build", "--reference", "theirs.py:build").batches[0]
    assert images.shape == (4, 3, 32, 32)
    assert labels.max() < 10


def test_own_inputs(tmp_path):
    (tmp_path / "data.py").write_text(
        "import numpy as np\ndef batches():\n    ids = np.arange(6).reshape(2, 3)\n"
        "    return [({'ids': ids, 'mask': ids > 2}, np.ones(2, np.int64))] * 2\ndef wrong():\n    return 7\n"
    )
    found = task("--inputs", "data.py:batches")
    assert len(found.batches) == 2
    assert found.batches[0][0]["mask"].dtype == bool
    with pytest.raises(
        ValueError, match=r"^--inputs: data.py:wrong returned int; return a list of \(inputs, labels\)$"
    ):
        task("--inputs", "data.py:wrong")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps: 0 is too small; give 1 or more"),
        (["--batch-size", "-1"], "--batch-size: -1 is too small; give 1 or more"),
        (["--recipe", "digit"], "recipe: 'digit' is unknown; did you mean digits?"),
        (["--batch-size", "4", "--repeats", "3"], "repeats: 3 does not divide the batch size 4"),
        (
            ["--inputs", "data.py:batches", "--steps", "2"],
            "--steps: the batches are what --inputs returns; leave it out",
        ),
        (
            ["--steps", "0", "--accumulate", "0"],
            "--steps: 0 is too small; give 1 or more; --accumulate: 0 is too small; give 1 or more",
        ),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(cli.UsageError) as error:
        task(*arguments)
    assert str(error.value) == message
