"""The split of one folder in whole runs: started from weights, resumed, evaluated, exported."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_fn.config import cli
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluate import main as evaluate_main
from resnet_fn.export import main as export_main
from resnet_fn.train import main as train_main
from resnet_fn.train import parse

pytestmark = pytest.mark.usefixtures("device")

SMALL = shlex.split(
    "--recipe finetune --model resnet8 --image-size 16 --eval-resize 16 --no-flip "
    "--batch-size 8 --epochs 1 --warmup-epochs 0 --mode pynative --no-progress"
)


def noise(path, seed):
    """A picture that has nothing to do with its class."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (16, 16, 3), np.uint8)).save(path)


@pytest.fixture
def chance():
    """Labels of pure chance: 5 classes of 12 pictures of noise."""
    for label, name in enumerate("abcde"):
        for k in range(12):
            noise(Path(f"chance/{name}/{k:02}.png"), 100 * label + k)
    return Path("chance")


@pytest.fixture
def command(capsys):
    """command(main, *arguments) runs a command here; returns what it prints, in one line."""

    def run(main, *arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            cli.run("command", main, list(map(str, arguments)))
        captured = capsys.readouterr()
        text = " ".join((captured.out + captured.err).split())
        assert ended.value.code == code, text
        return text

    return run


@pytest.fixture
def train(chance, command):
    """train(out_dir, *flags) fine-tunes on the pictures of chance; returns what that prints."""

    def start(out_dir, *flags):
        places = ("--data-dir", "chance", "--out-dir", out_dir)
        return command(train_main, *SMALL, *places, *flags)

    return start


@pytest.fixture
def go_on(command):
    """go_on(epochs, *flags) resumes the run for so many epochs; returns what that prints."""
    return lambda epochs, *flags: command(train_main, "--resume", "run", "--epochs", epochs, *flags)


def validating(run):
    names = json.loads(Path(run, "validation.json").read_text())
    return {Path("chance", name).read_bytes() for name in names}


def everything():
    return {path.read_bytes() for path in Path("chance").rglob("*.png")}


def test_fine_tuning_validates_on_no_trained_picture(train):
    """Where labels are chance, a run from another run's weights must not report more than chance.

    Before, 23 of 40 validation pictures had trained the first run, and top-1 rose from 18 to 65 %.
    """
    train("first")
    trained = everything() - validating("first")
    noise(Path("chance/a/new.png"), 999)
    text = train("second", "--weights", "first")
    assert not validating("second") & trained
    assert validating("second") >= validating("first")
    assert "validation images of first/validation.json validate again" in text
    text = train("third", "--weights", "first", "--split-seed", 7)
    seen = len(validating("third") & trained)
    count = len(validating("third"))
    assert seen > 2
    assert f"warning: first was trained on {seen} of the {count} validation images" in text


@pytest.mark.usefixtures("chance")
def test_all_seeds_validate_on_the_same_pictures():
    first, second = (
        open_dataset(parse([*SMALL, "--seed", seed])[0], "chance").test.names for seed in "01"
    )
    assert len(first) == 10
    assert list(first) == list(second)


def test_weights_of_a_run_keep_its_validation_images(train, command, write_recipe):
    train("run", "--split-seed", 3, "--validation-share", 0.4)
    small = {"extends": "finetune", "model": "resnet8", "image-size": 16, "eval-resize": 16}
    words = ("--weights", "run", "--data-dir", "chance", "--recipe")
    kept = command(evaluate_main, *words, write_recipe({**small, "split-seed": 3}))
    other = command(evaluate_main, *words, write_recipe(small))
    assert "25 validation images of run/validation.json validate again" in kept
    assert "of 25 validation images" in kept
    assert "warning: run was trained on " in other


def test_a_resume_says_that_the_validation_set_changed(train, go_on):
    train("run")
    names = json.loads(Path("run/validation.json").read_text())
    kept = Path("chance", names[0]).read_bytes()
    Path("chance", names[0]).unlink()
    text = go_on(2)
    assert "1 of the 10 validation images that run/validation.json lists are missing" in text
    assert "another validation set than the checkpoint's (samples 10 → 9)" in text
    Path("chance", names[0]).write_bytes(kept)
    text = go_on(3)
    assert "(samples 9 → 10)" in text
    assert json.loads(Path("run/validation.json").read_text()) == names
    assert "another validation set" not in go_on(4)


def test_lists_of_absolute_paths_resume_and_evaluate(chance, command, train, go_on):
    files = sorted(chance.resolve().rglob("*.png"))
    Path("all.txt").write_text("".join(f"{file} {file.parent.name}\n" for file in files))
    train("run", "--train-list", "all.txt")
    validated = validating("run")
    assert "missing" not in go_on(2)
    assert "of 10 validation images" in command(evaluate_main, "run")
    assert len(validated) == 10
    assert validating("run") == validated


def test_an_export_needs_no_data_set(command, train):
    train("run")
    kinds = ("safetensors", "mindir")

    def export(kind, *flags, **code):
        words = f"run --format {kind} --out net.{kind}"
        return command(export_main, *words.split(), *flags, **code)

    for kind in kinds:
        assert "verified on 10 validation images, largest" in export(kind)
    shutil.rmtree("chance")
    for kind in kinds:
        text = export(kind)
        assert "verified on 128 images of noise (the data set cannot be read), largest" in text
        verified = json.loads(Path(f"net.{kind}.json").read_text())["verified"]
        assert verified["largest_difference"] <= verified["tolerance"]
        assert "data_dir" in export(kind, "--data-dir", "chance", code=1)
