"""Which folders train and which validate, by the names that projects use."""

import errno
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.contents import write_split
from resnet_fn.data.sources.folders import load_test_folder
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.validation import SplitRule

RECIPE = Recipe(dataset="imagefolder", image_size=8, batch_size=2)
SPLIT = RECIPE.changed(validation_share=0.2)


@pytest.fixture
def lay(make_photograph, encode):
    """lay("train/bee 5", "val 0", "train/notes.txt") writes into set: 5 JPEGs, a folder, a text."""
    picture = encode(make_photograph(0, 12, 8))

    def write(*places):
        shutil.rmtree("set", ignore_errors=True)
        Path("set").mkdir()
        for place in places:
            folder, _, count = place.rpartition(" ")
            file = Path("set", folder or place)
            (file if folder else file.parent).mkdir(parents=True, exist_ok=True)
            if not folder:
                file.write_text("no image")
            for number in range(int(count) if folder else 0):
                (file / f"{number}.jpg").write_bytes(picture)
        return "set"

    return write


def halves(*names, classes=("bee", "cat")):
    """5 images of each class in the first folder, 2 in each other."""
    return [f"{name}/{label} {5 if name == names[0] else 2}" for name in names for label in classes]


VALIDATED = {
    "Roboflow": ("train", "valid", "test"),
    "fastai": ("train", "valid"),
    "Keras": ("train", "validation"),
    "Food-11": ("training", "validation", "evaluation"),
    "upper case": ("TRAIN", "VAL"),
    "dev": ("train", "dev"),
    "ImageNet": ("ILSVRC2012_img_train", "ILSVRC2012_img_val"),
    "a copy inside": ("train", "val", "chest_xray/train", "__MACOSX/train"),
    "classes beside val": (".", "val"),
}
FASTAI = ("test/unknown 3", "models/x.pkl")
FRUITS = ("test-multiple_fruits 3", "papers/x.pdf")
SCENES = ("seg_pred/seg_pred 3",)
TESTED = {
    "brain tumours": ("Training", "Testing"),
    "fruits-360": ("Training", "Test", *FRUITS),
    "Intel scenes": ("seg_train/seg_train", "seg_test/seg_test", *SCENES),
    "cats and dogs": ("training_set/training_set", "test_set/test_set"),
    "hold-out": ("train", "hold-out"),
    "classes beside test": (".", "test"),
}


@pytest.mark.parametrize("name", VALIDATED)
def test_a_validation_folder_of_any_usual_name_validates(lay, name):
    lay(*halves(*VALIDATED[name]))
    train, val, *_ = VALIDATED[name]
    for recipe in (SPLIT, RECIPE):
        dataset = load_dataset(recipe, "set")
        assert dataset.classes == ("bee", "cat")
        assert (len(dataset.train), len(dataset.test), dataset.is_split) == (10, 4, False)
        assert Path(dataset.train.root) == Path("set", train)
        assert dataset.test.root == f"set/{val}"
        note = f"set/{val} is the validation set, so nothing is split off the training images"
        assert (note in dataset.notes) == (recipe is SPLIT)


@pytest.mark.parametrize("name", TESTED)
def test_a_test_folder_never_validates(lay, name, raises_line):
    train, test, *more = TESTED[name]
    dataset = load_dataset(SPLIT, lay(*halves(train, test), *more))
    assert dataset.classes == ("bee", "cat")
    assert Path(dataset.train.root) == Path(dataset.test.root) == Path("set", train)
    assert (len(dataset.train), len(dataset.test)) == (8, 2)
    advice = f"evaluate RUN --data-dir set/{test.partition('/')[0]}"
    assert sum(advice in note for note in dataset.notes) == 1
    with raises_line("data_dir: 'set' must contain", "--validation-share 0.2", advice):
        load_dataset(RECIPE, "set")


def test_links_beside_train_are_not_followed(lay):
    lay(*halves("train"), "more/x.txt")
    Path("set/all").symlink_to("/")
    Path("set/more/around").symlink_to("..")
    started = time.monotonic()
    dataset = load_dataset(SPLIT, "set")
    assert time.monotonic() - started < 10
    assert (dataset.train.root, dataset.notes) == ("set/train", ())


def test_an_unreadable_folder_beside_train_stops_nothing(lay, monkeypatch):
    """It is not listed: here any listing of it fails, as root reads each folder."""
    lay(*halves("train"), "private 1")
    scan = os.scandir

    def refuse(path):
        if Path(path) == Path("set/private"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert load_dataset(SPLIT, "set").train.root == "set/train"


@pytest.mark.parametrize(
    ("places", "line"),
    [
        ([*halves("seg_train", "seg_test"), *SCENES], "predict RUN set/seg_pred"),
        ([*halves("Training", "Test"), *FRUITS], "set/test-multiple_fruits is not used"),
        ([*halves("train", "valid"), *FASTAI], "predict RUN set/test"),
        (
            [*halves("train"), "val/bee 1", "valid 2"],
            "set/valid is not used: set/val is the validation folder",
        ),
        (
            [*halves("train", "val"), "training 2"],
            "set/training is not used: set/train is the training folder",
        ),
    ],
)
def test_folders_that_are_not_used_are_named(lay, places, line):
    assert "\n".join(load_dataset(SPLIT, lay(*places)).notes).count(line) == 1


@pytest.mark.parametrize(
    ("places", "classes"),
    [
        (["bee 5", "test 5", "val 5"], ("bee", "test", "val")),
        (["bee 5", "pred 5"], ("bee", "pred")),
        (["bus/2023 5", "train/2023 5"], ("bus", "train")),
        (["bee/2023 5", "wasp/2023 5", "test/2023 5"], ("bee", "test", "wasp")),
        (["trains 5", "valley 5"], ("trains", "valley")),
        (["bee/Train_images 5", "sport/match 2", "sport/training 3"], ("bee", "sport")),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_class_may_be_called_train_or_val(lay, places, classes):
    dataset = load_dataset(SPLIT, lay(*places))
    assert (dataset.classes, dataset.train.root) == (classes, "set")
    assert len(dataset.train) + len(dataset.test) == 5 * len(classes)
    notes = "\n".join(dataset.notes)
    for name in {"test", "train", "val", "pred"}.intersection(classes):
        assert f"warning: set/{name} counts as a class" in notes


@pytest.mark.parametrize("more", [[], ["labels/bee.txt"], ["@eaDir 3", "lost+found/x"]])
def test_train_alone_or_beside_junk_is_no_class(lay, more):
    dataset = load_dataset(SPLIT, lay(*halves("train"), *more))
    assert (dataset.classes, dataset.train.root) == (("bee", "cat"), "set/train")


MISTAKES = {
    "two that validate": (halves("train", "val", "valid"), ["set/val and set/valid", "rename"]),
    "two that train": (halves("train", "Training"), ["set/Training and set/train", "rename"]),
    "no class folders": (
        ["train 5", "test 5"],
        ["set/train holds images and no folders", "set/train/CLASS", "test, train", "rename"],
    ),
    "no training folder": (halves("test"), ["'set' must contain train/", "--data-dir set/test"]),
    "object detection": (
        ["train/images 5", "train/labels/0.txt", "valid/images 2"],
        ["set/train/labels contains no images", "object detection", "a folder for each class"],
    ),
    "a class of train and test each": (
        ["bee/train 5", "bee/test 2", "cat/train 5", "cat/test 2"],
        ["give --data-dir set/bee"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_folder_without_clear_halves_is_rejected(lay, name, raises_line):
    places, parts = MISTAKES[name]
    lay(*places)
    for recipe in (SPLIT, RECIPE):
        with raises_line("data_dir: ", *parts):
            load_dataset(recipe, "set")


def test_an_empty_folders_error_names_train_and_val(lay, raises_line):
    with raises_line("data_dir: 'set' must contain train/ and val/, but it contains nothing"):
        load_dataset(RECIPE, lay())


def test_an_empty_validation_folder_gives_way_to_another(lay):
    lay(*halves("train", "val"), "valid 0")
    assert load_dataset(SPLIT, "set").test.root == "set/val"


@pytest.mark.parametrize("place", ["val 0", "val/bee 0", "val/bee/0.heic"])
def test_an_empty_validation_folder_is_an_error(lay, place, raises_line):
    """Training images must not take its place unnoticed."""
    with raises_line("set/val", "convert" if "heic" in place else "CLASS/*.JPEG"):
        load_dataset(SPLIT, lay(*halves("train"), place))


@pytest.mark.parametrize("recipe", [SPLIT, RECIPE], ids=["share", "no share"])
@pytest.mark.parametrize("train", ["train", "."])
def test_a_missing_validation_folder_scores_no_training_images(lay, raises_line, train, recipe):
    trained_on = load_dataset(recipe, lay(*halves(train, "val"))).input
    rule = SplitRule(run=Path("run"))
    gone = "validation folder of the run run is missing or empty in set; restore it, or "
    gone += "evaluate" if recipe is RECIPE else "if the images were split off, run/validation.json"
    empty = "set/val: holds neither class folders nor images" if train == "train" else gone
    for damage, words in ((shutil.rmtree, gone), (Path.mkdir, empty)):
        damage(Path("set/val"))
        for splits in (("train", "test"), ("test",)):
            with raises_line(words):
                load_dataset(recipe, "set", RunOptions(), rule, splits, trained_on)


def test_a_split_run_ignores_a_validation_folder(lay):
    lay(*halves("train"))
    before = load_dataset(SPLIT, "set")
    Path("run").mkdir()
    write_split(Path("run"), before, is_new=True)
    shutil.copytree("set/train", "set/valid")
    again = load_dataset(SPLIT, "set", rule=SplitRule(run=Path("run")))
    assert (again.train.names, again.test.names) == (before.train.names, before.test.names)
    assert any("set/valid is not used" in note for note in again.notes)


def test_an_older_run_keeps_val_beside_valid(lay):
    lay(*halves("train", "val", "valid"))
    rule = SplitRule(run=Path("run"), classes=("bee", "cat"))
    assert load_dataset(RECIPE, "set", rule=rule).test.root == "set/val"
    assert load_test_folder("set", ("bee", "cat")).test.root == "set/val"


@pytest.mark.parametrize(
    ("places", "root", "classes"),
    [
        ([*halves("train"), "samples 3"], "set/train", ("bee", "cat")),
        ([*halves("train", "Training"), "samples 3"], "set/train", ("bee", "cat")),
        (halves("Training", "Testing"), "set", ("Testing", "Training")),
        (halves(".", "test"), "set", ("bee", "cat", "test")),
    ],
)
def test_an_older_run_resumes_with_its_folders(lay, places, root, classes):
    """The classes show which folders the version f4bba1ad read."""
    lay(*places)
    names = sorted(str(path.relative_to(root)) for path in Path(root).rglob("*.jpg"))
    Path("run").mkdir()
    Path("run/validation.json").write_text(json.dumps(names[::5]))
    rule = SplitRule(run=Path("run"), classes=classes)
    for splits in (("train", "test"), ("test",)):
        dataset = load_dataset(SPLIT, "set", rule=rule, splits=splits)
        assert (dataset.classes, dataset.train.root) == (classes, root)
        assert list(dataset.test.names) == names[::5]
        assert len(dataset.train) == len(names) - len(names[::5])


def test_files_beside_the_folders_are_counted(lay):
    files = [
        ". 2",
        "._0.jpg",
        "train 3",
        "val 1",
        "notes.txt",
        "1.heic",
        "train/labels.csv",
        "val/2.heic",
    ]
    notes = load_dataset(SPLIT, lay(*halves("train", "val"), *files, "train/bee/x.txt")).notes
    condition = "that have no image ending such as .jpg, begin with a dot, or are a system's"
    for line in (
        "ignoring 2 images beside the class folders, for example set/0.jpg",
        "ignoring 3 images beside the class folders, for example set/train/0.jpg",
        "ignoring 1 image beside the class folders, for example set/val/0.jpg",
        f"leaving out 2 names in set {condition}: ._0.jpg, 1.heic",
        f"leaving out 2 names in set/train {condition}: bee/x.txt, labels.csv",
        f"leaving out 1 names in set/val {condition}: 2.heic",
    ):
        assert line in notes
    for folder in ("set", "set/val"):
        assert any(note.startswith(f"warning: {folder}: 1 .heic not read") for note in notes)


def test_thumbnails_and_junk_are_left_out_and_counted(lay):
    thumbnails = ["bee/@eaDir/0.jpg 2", "@eaDir/bee 2", "cat/__MACOSX 3"]
    junk = ["$RECYCLE.BIN 1", "lost+found/x", "bee/.ipynb_checkpoints 2", "Thumbs.db"]
    dataset = load_dataset(SPLIT, lay(*halves("."), *thumbnails, *junk))
    assert dataset.classes == ("bee", "cat")
    assert len(dataset.train) + len(dataset.test) == 10
    (note,) = dataset.notes
    assert note.startswith("leaving out 7 names in set ")


def test_an_unknown_class_of_a_net_is_named(lay, raises_line):
    with raises_line("set/zebra exists, but zebra is no class of the trained net; use one of bee"):
        load_test_folder(lay("zebra 2", "bee 1"), ("bee", "cat"))


@pytest.mark.parametrize(
    ("classes", "labels"), [(("a", "\u00e9"), [1, 1]), (("e\u0301", "\u00e9"), [0, 0])]
)
def test_classes_may_have_both_forms_of_unicode(lay, classes, labels):
    """Both forms are one class, unless both are class folders."""
    dataset = load_dataset(RECIPE, lay(*halves("train", classes=classes), "val/e\u0301 2"))
    assert dataset.classes == classes
    assert dataset.test.labels.tolist() == labels
