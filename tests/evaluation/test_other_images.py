"""A net is scored on images that did not validate it, in class folders or in another data set."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from resnet_fn.checkpoint.folder import save_checkpoint
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.values import to_dict
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.contents import write_split
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.evaluate import evaluate
from resnet_fn.evaluation.loaded_net import load_run, open_trained_dataset
from resnet_fn.evaluation.predict import predict
from resnet_fn.models import build_net

pytestmark = pytest.mark.usefixtures("device")
RECIPE = Recipe(dataset="imagefolder", model="resnet8", image_size=8, eval_resize=8, batch_size=2)


@pytest.fixture
def lay(make_photograph, encode):
    """lay("T/bee 5", seed) writes 5 different JPEGs into T/bee."""

    def write(place, seed=0):
        folder, _, count = place.rpartition(" ")
        Path(folder).mkdir(parents=True)
        for number in range(int(count)):
            picture = encode(make_photograph(1000 * seed + number, 12 + seed, 9))
            Path(folder, f"{number}.jpg").write_bytes(picture)

    return write


@pytest.fixture
def run_of():
    """run_of(folder, **settings) writes the run of an untrained net for the data set there."""

    def make(folder, **settings):
        recipe = RECIPE.changed(**settings)
        dataset = open_dataset(recipe, folder)
        save_checkpoint(
            Path("run/checkpoints/step-00000001"),
            list(build_net(recipe, dataset.input).get_parameters()),
            [],
            {
                "update": 1,
                "recipe": to_dict(recipe),
                "dataset": to_dict(dataset.input),
                "feed": make_feed(dataset, recipe).reproducibility_key,
            },
        )
        write_split(Path("run"), dataset, is_new=True)
        return dataset

    return make


@pytest.fixture
def split_run(lay, run_of):
    """A run on 10 images each of bee, cat and dog in P, of which 2 each validated."""
    for seed, name in enumerate(("bee", "cat", "dog")):
        lay(f"P/{name} 10", seed)
    return run_of("P", validation_share=0.2)


def scored(folder):
    """The data set that `evaluate run --data-dir folder` scores."""
    return open_trained_dataset(load_run("run"), folder)


def test_a_folder_with_fewer_classes_is_scored_whole(split_run, lay, main, capsys):
    lay("T/dog 4", 7)
    lay("T/cat 3", 8)
    assert main("evaluate", "run", "--data-dir", "T", "--json", "scores.json") == 0
    assert " of 7 images in T\n" in capsys.readouterr().out
    rows = predict("run", sorted(Path("T").glob("*/*")))
    right = np.mean([row["top"][0]["class"] == Path(row["file"]).parent.name for row in rows])
    scores = json.loads(Path("scores.json").read_text())
    assert (scores["count"], scores["top1"]) == (7, pytest.approx(right))
    assert scored("T").test.labels.tolist() == [1] * 3 + [2] * 4


def test_different_images_with_old_names_are_all_scored(split_run, lay):
    for seed, name in enumerate(("bee", "cat", "dog")):
        lay(f"S/{name} 10", 20 + seed)
    assert len(scored("S").test) == 30


def test_a_checkpoints_own_name_is_enough(split_run, monkeypatch):
    """Its run's split is found from the folder that has the checkpoints."""
    folder = str(Path("P").absolute())
    monkeypatch.chdir("run/checkpoints")
    again = open_trained_dataset(load_run("step-00000001"), folder)
    assert again.test.names == split_run.test.names


def test_a_copied_data_set_keeps_its_validation_images(split_run):
    shutil.copytree("P", "copy")
    assert scored("copy").validates
    assert scored("copy").test.names == split_run.test.names
    Path("copy/bee/new.jpg").write_bytes(Path("P/bee/0.jpg").read_bytes())
    assert scored("copy").test.names == split_run.test.names
    shutil.copytree("P", "partial")
    shutil.rmtree("partial/cat")
    part = scored("partial")
    assert part.test.labels.tolist() == [0] * 10 + [2] * 10
    assert any("warning: run was trained on 16 of the 20" in note for note in part.notes)
    Path("run/contents.json").unlink()  # as of a version that stored names alone
    assert len(scored("copy").test) == 31
    assert (
        scored("copy")
        .notes[-1]
        .startswith("warning: copy has files with the names of 6 validation images of the run")
    )


def test_evaluation_scores_the_validation_or_test_folder(split_run, lay, raises_line):
    for half in ("Training", "Testing"):
        lay(f"Q/{half}/{half}/bee 3", 9)
        lay(f"Q/{half}/{half}/cat 3", 10)
    for folder in ("Q", "Q/Testing", "Q/Testing/Testing"):
        test = scored(folder).test
        assert (len(test), test.root) == (6, "Q/Testing/Testing")
    lay("Q/valid/dog 2", 11)
    assert scored("Q").test.root == "Q/valid"
    shutil.rmtree("Q/valid")
    shutil.rmtree("Q/Testing")
    with raises_line("data_dir: Q holds no validation or test folder", "--data-dir Q/Training"):
        scored("Q")


def test_a_test_folder_beside_train_is_scored(lay, run_of):
    for half in ("train", "valid", "test"):
        for seed, name in enumerate(("bee", "cat")):
            lay(f"P/{half}/{name} 4", len(half) + seed)
    run_of("P", validation_share=0.2)
    for folder, root in (("P", "P/valid"), ("P/test", "P/test"), ("P/train", "P/train")):
        test = scored(folder).test
        assert (len(test), test.root) == (8, root)
    assert Path(scored("").test.root) == Path("P/valid").resolve()


def test_folders_of_unknown_or_no_classes_are_rejected(split_run, lay, raises_line):
    lay("T/wasp 3")
    lay("T/bee 3")
    with raises_line("data_dir: T/wasp", "no class of the trained net", "use one of bee, cat, dog"):
        scored("T")
    with raises_line("data_dir: 'missing' does not exist", "--data-dir"):
        scored("missing")
    lay("flat 3")
    with raises_line("flat: has no class folders", "sort the images into class folders"):
        scored("flat")


def test_a_packed_run_may_be_scored_on_folders(lay, run_of, main):
    for name in ("bee", "cat"):
        lay(f"P/{name} 6")
    main("pack", "P", "packed", "--validation-share", "0.2", "--no-progress")
    run_of("packed", dataset="mindrecord")
    lay("T/cat 3", 5)
    assert scored("T").test.labels.tolist() == [1] * 3


def test_another_size_resizes_to_size_over_0_875(split_run):
    """The shorter side is size / 0.875, as in runs of earlier versions."""
    assert load_run("run", image_size=32).input.eval_resize == 37


@pytest.fixture
def imagenet(lay):
    """imagenet(flat) writes I/val; if `flat`, without class folders and with the kit's files."""

    def write(flat):
        for name in ("bee", "cat", "dog"):
            lay(f"I/val/{name} 2", 3)
        if not flat:
            return
        for number, file in enumerate(sorted(Path("I/val").glob("*/*"))):
            file.rename(f"I/val/ILSVRC2012_val_{number:08d}.jpg")
        for folder in Path("I/val").glob("*/"):
            folder.rmdir()
        Path("I/ILSVRC2012_validation_ground_truth.txt").write_text("1\n1\n3\n3\n2\n2\n")
        rows = np.zeros(4, dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])
        rows["ILSVRC2012_ID"], rows["WNID"] = [1, 2, 3, 1001], ["bee", "dog", "cat", "animal"]
        savemat("I/meta.mat", {"synsets": rows})

    return write


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("folder", ["I", "I/val"])
def test_imagenets_val_alone_can_be_scored(imagenet, flat, folder):
    imagenet(flat)
    dataset = open_dataset(RECIPE, folder, splits=("test",))
    assert dataset.classes == ("bee", "cat", "dog")
    assert dataset.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match=r"^data_dir: "):
        open_dataset(RECIPE, folder)


@pytest.mark.slow
def test_weights_are_scored_on_val_alone(split_run, imagenet, main, write_recipe, capsys):
    imagenet(flat=False)
    small = {"model": "resnet8", "image_size": 8, "eval_resize": 8, "dataset": "imagefolder"}
    flags = ("--weights", "run", "--recipe", write_recipe(small), "--data-dir", "I")
    assert main("evaluate", *flags, "--json", "scores.json") == 0
    assert " of 6 images in I/val\n" in capsys.readouterr().out
    assert json.loads(Path("scores.json").read_text()) == evaluate("run", data_dir="I/val")
