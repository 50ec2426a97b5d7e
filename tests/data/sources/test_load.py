"""Opening a data set: what is rejected before an image is read."""

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import data_threads, load_dataset, open_dataset
from resnet_fn.runtime.cpus import cpu_count


def test_photographs_with_the_digits_recipe_give_a_warning(folder, pack):
    small = Recipe(name="digits", dataset="imagefolder", image_size=8)
    (note,) = open_dataset(small, str(folder)).notes
    assert note == (
        f"warning: {folder}/train/bee/00 ü.JPEG has 60 x 40 pixels, but the recipe digits trains "
        "on 8 x 8, with "
        "learning rate 0.2; give --recipe finetune with --weights FILE or --model NAME"
    )
    for other in ({"image_size": 16}, {"name": "mine"}):
        assert open_dataset(small.changed(**other), str(folder)).notes == ()
    assert open_dataset(small, str(folder), splits=["test"]).notes == ()
    pack(folder, "out")
    (note,) = open_dataset(small.changed(dataset="mindrecord"), "out").notes
    assert note.startswith("warning: bee/00 ü.JPEG has 60 x 40 pixels, but the recipe digits")


def test_more_threads_than_cpus_are_rejected(raises_line):
    most = cpu_count()
    with raises_line(f"data_threads: {most + 1} is more than the {most} CPU"):
        data_threads(most + 1)
    assert data_threads(0) == most


def test_the_nets_input_follows_recipe_and_folder(folder):
    recipe = Recipe(dataset="imagefolder", image_size=24, eval_size=32, eval_resize=40)
    spec = load_dataset(recipe, str(folder)).input
    assert (spec.name, spec.image_size, spec.eval_resize) == ("imagefolder", 32, 40)
    assert spec.data_dir == str(folder)
    digits = load_dataset(Recipe(image_size=16)).input
    assert (digits.image_size, digits.eval_resize, digits.data_dir) == (16, 0, "")


def test_other_classes_than_in_training_are_rejected(folder, raises_line):
    recipe = Recipe(dataset="imagefolder", image_size=24)
    trained_on = load_dataset(recipe, str(folder)).input
    again = open_dataset(recipe, trained_on=trained_on)  # in the folder of training
    assert again.input == trained_on
    for half in ("train", "val"):
        (folder / half / "bee").rename(folder / half / "wasp")
    with raises_line("data_dir: the classes of imagefolder are not the trained net's ", "'bee' → "):
        open_dataset(recipe, trained_on=trained_on)
