"""A data set by its recipe: notes, warnings and errors."""

import dataclasses
from pathlib import Path

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import data_threads, load_dataset, open_dataset
from resnet_fn.runtime.cpus import cpu_count

SMALL = Recipe(name="digits", dataset="imagefolder", image_size=8)


def test_a_folder_that_is_not_needed_names_the_set_that_it_looks_like(folder, make_cifar):
    make_cifar(Path("tens"), "cifar10", True)
    make_cifar(Path("hundreds"), "cifar100", False)
    Path("packed").mkdir()
    Path("packed/index.json").touch()
    Path("empty").mkdir()
    own = "pictures of your own, a folder for each class, are for --recipe finetune"
    for place, hint in {
        folder: own,
        folder / "train": own,
        "tens": "it looks like --dataset cifar10",
        "tens/cifar-10-batches-bin": "it looks like --dataset cifar10",
        "hundreds": "it looks like --dataset cifar100",
        "hundreds/cifar-100-python": "it looks like --dataset cifar100",
        "packed": "it looks like --dataset mindrecord",
        "empty": "leave it out",
        "nowhere": "leave it out",
    }.items():
        with pytest.raises(ValueError) as caught:
            load_dataset(Recipe(), str(place))
        assert str(caught.value) == f"data_dir: '{place}' is given, but the set digits needs none; {hint}"


def test_photographs_on_the_recipe_of_the_digits_are_warned_about(folder):
    (note,) = open_dataset(SMALL, str(folder)).notes
    assert note == (
        f"warning: {folder}/train/bee/00 ü.JPEG has 60 x 40 pixels, the net sees 8 x 8, at a learning rate of 0.2: "
        "the recipe digits is for small images; give --recipe imagenet_resnet50_v1"
    )
    for other in ({"image_size": 16}, {"name": "mine"}):
        assert open_dataset(dataclasses.replace(SMALL, **other), str(folder)).notes == ()
    assert open_dataset(SMALL, str(folder), splits=["test"]).notes == ()


def test_more_threads_than_cpus_are_rejected():
    most = cpu_count()
    with pytest.raises(ValueError, match=f"data_threads: {most + 1} is more than the {most} CPU"):
        data_threads(most + 1)
    assert data_threads(0) == most


def test_the_input_is_the_recipes(folder):
    recipe = Recipe(dataset="imagefolder", image_size=24, eval_size=32, eval_resize=40)
    spec = load_dataset(recipe, str(folder)).input
    assert (spec.name, spec.image_size, spec.eval_resize) == ("imagefolder", 32, 40)
    assert spec.data_dir == str(folder)
    digits = load_dataset(Recipe(image_size=16)).input
    assert (digits.image_size, digits.eval_resize, digits.data_dir) == (16, 0, "")


def test_other_classes_than_in_training_are_rejected(folder):
    recipe = Recipe(dataset="imagefolder", image_size=24)
    trained_on = load_dataset(recipe, str(folder)).input
    again = open_dataset(recipe, trained_on=trained_on)  # in the folder of training
    assert again.input == trained_on
    for half in ("train", "val"):
        (folder / half / "bee").rename(folder / half / "wasp")
    with pytest.raises(ValueError, match=r"^data_dir: the data set imagefolder has other classes now .*'bee' → "):
        open_dataset(recipe, trained_on=trained_on)
