"""A data set by its recipe: what is said where folder and set do not fit each other."""

import dataclasses
from pathlib import Path

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset, open_dataset

SMALL = Recipe(name="digits", dataset="imagefolder", image_size=8)


@pytest.mark.parametrize("dataset", ["digits", "synthetic"])
def test_a_folder_that_is_not_needed_names_the_set_that_it_looks_like(dataset, folder, make_cifar):
    make_cifar(Path("tens"), "cifar10", True)
    make_cifar(Path("hundreds"), "cifar100", False)
    Path("packed").mkdir()
    Path("packed/index.json").touch()
    Path("empty").mkdir()
    for place, hint in {
        folder: "it looks like --dataset imagefolder",
        "tens": "it looks like --dataset cifar10",
        "tens/cifar-10-batches-bin": "it looks like --dataset cifar10",
        "hundreds": "it looks like --dataset cifar100",
        "hundreds/cifar-100-python": "it looks like --dataset cifar100",
        "packed": "it looks like --dataset mindrecord",
        "empty": "leave it out",
        "nowhere": "leave it out",
    }.items():
        with pytest.raises(ValueError) as caught:
            load_dataset(Recipe(dataset=dataset), str(place))
        assert str(caught.value) == f"data_dir: '{place}' is given, but the set {dataset} needs none; {hint}"


def test_photographs_on_the_recipe_of_the_digits_are_warned_about(folder):
    (note,) = open_dataset(SMALL, str(folder)).notes
    assert note == (
        f"warning: {folder}/train/bee/00 ü.JPEG has 60 x 40 pixels, the net sees 8 x 8, at a learning rate of 0.2: "
        "the recipe digits is for small images; give --recipe imagenet_resnet50_v1"
    )
    for other in ({"image_size": 16}, {"name": "mine"}):
        assert open_dataset(dataclasses.replace(SMALL, **other), str(folder)).notes == ()
    assert open_dataset(SMALL, str(folder), splits=["test"]).notes == ()
