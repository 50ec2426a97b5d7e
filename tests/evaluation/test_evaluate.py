"""`evaluate` and its command: which checkpoint, which data, which output."""

import json
from pathlib import Path

import mindspore
import pytest

from resnet_fn.checkpoint.folder import load_checkpoint, write_checkpoint
from resnet_fn.evaluation.evaluate import evaluate, evaluate_in_detail
from resnet_fn.models import create_model

pytestmark = pytest.mark.usefixtures("device")


def test_flip_ema_and_size_change_the_score(run):
    """The batch size does not, nor `ema=True`, the default of a run that has an average."""
    plain = evaluate(run)
    assert evaluate(run, batch_size=70, ema=True) == plain
    assert evaluate(run, tta="flip")["loss"] != plain["loss"]
    assert evaluate(run, ema=False) != plain
    assert evaluate(run, image_size=16)["loss"] != plain["loss"]


def test_a_wrong_tta_or_size_is_named(run):
    with pytest.raises(ValueError, match=r"^tta: 'flipp' is unknown; "):
        evaluate(run, tta="flipp")
    with pytest.raises(
        ValueError, match=r"^image_size: -1 is negative; give pixels, or 0 for the recipe's size$"
    ):
        evaluate(run, image_size=-1)


def test_which_is_an_option_of_run_folders(run):
    assert evaluate_in_detail(run, "best").options["which"] == "best"
    assert "which" not in evaluate_in_detail(run / "checkpoints/step-00000005").options


def test_weights_of_a_run_print_checkpoint_and_classes(run, main, capsys, write_recipe):
    best = load_checkpoint(run / "checkpoints/step-00000005")
    spec = best.state["dataset"] | {"classes": list("1023456789")}
    last = run / "checkpoints/step-00000006"
    write_checkpoint(last, best.weights, best.training, best.state | {"update": 6, "dataset": spec})
    recipe = write_recipe({"model": "resnet8", "image_size": 8})
    flags = ("--weights", run, "--recipe", recipe, "--json", "result.json", "--which")
    other = (
        f"warning: {last}: the last layer is for these classes in another order, '1' → '0', "
        "'0' → '1'; the net"
    )
    for which, path, warning in (("last", last, other), ("best", best.path, "")):
        assert main("evaluate", *flags, which) == 0
        out, err = capsys.readouterr()
        assert (out.splitlines()[0], err.partition(" is scored")[0]) == (
            f"weights     {path}, the moving average of the weights",
            warning,
        )
    assert json.loads(Path("result.json").read_text()) == evaluate(run, which="best")


SMALL = {"dataset": "imagefolder", "model": "resnet8", "image_size": 8, "eval_resize": 8}


@pytest.fixture
def evaluate_weights(folder, write_recipe, main):
    """evaluate_weights(classes, *flags, **settings) runs the command on weights of so many
    classes.
    """

    def run_command(classes, *flags, **settings):
        mindspore.save_checkpoint(create_model("resnet8", num_classes=classes), "net.ckpt")
        recipe = write_recipe({**SMALL, "data_dir": str(folder), **settings})
        main("evaluate", "--weights", "net.ckpt", "--recipe", recipe, *flags)

    return run_command


@pytest.mark.parametrize(
    ("check", "message"),
    [("auto", "1 of 9 validation files are bad"), ("no", "00 ü.JPEG: cannot be decoded")],
)
def test_evaluation_checks_files_as_the_recipe_file_says(
    check, message, folder, evaluate_weights, raises_line
):
    bad = folder / "val" / "bee" / "00 ü.JPEG"
    bad.write_bytes(bad.read_bytes()[:300])
    with raises_line(message):
        evaluate_weights(3, check_files=check)
    # nothing beside the data
    assert sorted(path.name for path in folder.iterdir()) == ["train", "val"]


def test_lines_that_a_flag_makes_useless_are_named(evaluate_weights, capsys):
    for flags, note in (
        (["--eval-size", "16"], "eval_resize 8 is left out: it is below the crop"),
        ([], ""),
    ):
        evaluate_weights(3, *flags)
        lines = capsys.readouterr().err.splitlines()
        assert [line[: len(note)] for line in lines if "left out" in line] == [note] * bool(note)


def test_weights_for_other_classes_have_a_fix(evaluate_weights, raises_line):
    with raises_line(
        "net.ckpt ",
        "fc.weight (4, 64) instead of (3, 64)",
        "train with --weights FILE to make a new",
    ):
        # More threads than there are CPUs here: how fast training reads is not for an evaluation.
        evaluate_weights(4, data_threads=9999)
