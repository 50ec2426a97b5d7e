"""How images are prepared for a net, as its weights say."""

import argparse
import copy
import json
import pickle
import shlex
import shutil
from functools import partial
from pathlib import Path

import pytest

from resnet_fn import recipes
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.checkpoint.tensor_file import write_safetensors
from resnet_fn.config.recipe import PREPARATION, Recipe
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.evaluate import main as evaluate
from resnet_fn.evaluation.loaded_net import load_run
from resnet_fn.train import main as train
from resnet_fn.train import parse
from resnet_fn.weights.files import read_arrays
from resnet_fn.weights.load import convert_weights, read_start
from resnet_fn.weights.preparation import of_release
from resnet_fn.weights.published import PUBLISHED

pytestmark = pytest.mark.usefixtures("device")

HALF = (0.5, 0.5, 0.5)
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
BICUBIC = {"mean": HALF, "std": HALF, "interpolation": "bicubic"}
RA4 = {**BICUBIC, "input_size": [3, 224, 224], "crop_pct": 0.9}
TAKEN = {**BICUBIC, "eval_resize": 248, "image_size": 224}


@pytest.fixture
def hub(written):
    """hub(entries) writes weights with a `config.json`, as on the Hugging Face hub."""
    return partial(write_hub, written)


def write_hub(written, entries, root=Path()):
    file = root / "hub" / "model.safetensors"
    file.parent.mkdir(exist_ok=True)
    written(file, "torchvision")
    config = {"architecture": "custom8", "num_classes": 3, "pretrained_cfg": entries}
    file.with_name("config.json").write_text(json.dumps(config))
    return str(file)


def start(recipe):
    return read_start(recipe)


def finetuned(weights, **given):
    """The recipe finetune with these weights and settings, and the weights, as training starts."""
    return start(recipes.finetune(weights=weights, **given))


def settings_of(recipe):
    return {name: getattr(recipe, name) for name in PREPARATION}


def check_settings(weights, wanted, **given):
    assert settings_of(finetuned(weights, **given)[0]).items() >= wanted.items()


@pytest.mark.parametrize(
    ("entries", "given", "wanted"),
    [
        (RA4, {}, TAKEN | {"eval_size": 0}),
        # The crop keeps its share of an image: 128 / 0.9 and 320 / 0.9, rounded down as in timm.
        (RA4, {"image_size": 128}, TAKEN | {"image_size": 128, "eval_size": 0, "eval_resize": 142}),
        (RA4, {"eval_size": 320}, TAKEN | {"eval_size": 320, "eval_resize": 355}),
        (
            RA4,
            {"eval_resize": 300, "mean": (0.1,)},
            TAKEN | {"eval_size": 0, "eval_resize": 300, "mean": (0.1,)},
        ),
        (
            {"input_size": [3, 160, 160]},
            {},
            {"image_size": 160, "eval_resize": 182, "mean": (), "interpolation": "bicubic"},
        ),
        (
            {"std": [0.2, 0.2, 0.2]},
            {"std": (0.1, 0.2, 0.3)},
            {"std": (0.1, 0.2, 0.3), "image_size": 224},
        ),
        ({"crop_pct": 1.0, "input_size": [3, 224, 224]}, {}, {"eval_resize": 224}),
    ],
)
def test_chosen_settings_win_over_the_files(entries, given, wanted, hub):
    check_settings(hub(entries), wanted, **given)


def test_a_chosen_zero_wins_over_the_files(hub):
    recipe, _ = finetuned(hub(RA4), eval_resize=0)
    assert (recipe.image_size, recipe.evaluation_resize) == (224, 256)  # 224 / 0.875


def test_a_resize_below_the_files_size_is_rejected(hub, raises_line):
    weights = hub({**RA4, "input_size": [3, 288, 288]})
    with raises_line("eval_resize: 256", "288", "hub/config.json", "--eval-size"):
        finetuned(weights, eval_resize=256)
    recipe, _ = finetuned(weights, eval_resize=256, eval_size=224)
    assert (recipe.eval_size, recipe.eval_resize) == (224, 256)


def test_a_copied_recipe_keeps_the_users_choices(hub):
    base = recipes.finetune(weights=hub(RA4))
    assert start(copy.copy(base))[0].image_size == 224
    small = base.changed(image_size=128)
    for recipe in (small, copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
        taken, _ = start(recipe)
        assert (taken.image_size, taken.eval_resize, taken.mean) == (128, 142, HALF)
    own = base.changed(mean=(0.1,), std=(0.2,), interpolation="box")
    taken, _ = start(own)
    assert (taken.mean, taken.std, taken.interpolation) == ((0.1,), (0.2,), "box")


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, (176, 224, 248)),
        ({"eval_resize": 232}, (176, 224, 232)),
        ({"eval_size": 0}, (224, 0, 248)),  # a chosen zero: as in training
    ],
)
def test_recipes_with_two_sizes_keep_their_training_size(given, sizes, hub):
    two_sizes = recipes.imagenet_resnet50_v2(weights=hub(RA4), model="resnet8", **given)
    recipe, _ = start(two_sizes)
    assert (recipe.image_size, recipe.eval_size, recipe.eval_resize) == sizes


def test_a_dropped_resize_is_the_files(hub):
    """Nobody chose the 232 of the recipe's file, nor the 0 that a rule puts in its place."""
    weights = hub(RA4)
    Path("mine.toml").write_text('extends = "imagenet_resnet50_v2"\neval_resize = 232\n')
    words = f"--recipe mine.toml --model resnet8 --weights {weights} --eval-size 320"
    recipe, *_ = parse(words.split())
    assert recipe.eval_resize == 0
    taken, _ = start(recipe)
    assert (taken.eval_size, taken.eval_resize) == (320, 355)


def test_what_weights_bring_is_not_chosen(hub):
    recipe, _ = finetuned(hub(RA4), image_size=160, mean=())
    assert {*recipe.chosen} == {"weights", "image_size"}


def test_a_copy_has_not_chosen_what_rules_drop():
    recipe = recipes.finetune(weights="w.ckpt", eval_resize=256).changed(image_size=320)
    assert recipe.eval_resize == 0
    assert "eval_resize" not in recipe.chosen


def test_sets_in_memory_take_mean_and_deviation_alone(hub):
    recipe, _ = start(recipes.cifar10_resnet18(weights=hub(RA4), model="resnet8"))
    kept = {"image_size": 32, "eval_size": 0, "eval_resize": 0, "interpolation": ""}
    assert settings_of(recipe) == {"mean": HALF, "std": HALF, **kept}


def test_lines_say_what_comes_from_where(hub, says):
    tests = {"test_input_size": [3, 288, 288], "test_crop_pct": 1.0}
    _, source = finetuned(hub({**RA4, **tests}), image_size=128)
    taken, given, larger = source.notes
    parts = "mean 0.5,0.5,0.5|std 0.5,0.5,0.5|interpolation bicubic|eval_resize 142|hub/config.json"
    says(taken, *parts.split("|"))
    assert "image_size 128, not 224" in given
    assert "--eval-size 288 --eval-resize 288" in larger
    for crop_mode in ("squash", "border"):
        _, source = finetuned(hub({**RA4, "crop_mode": crop_mode}))
        warning = f"warning: hub/config.json has the crop_mode {crop_mode!r}"
        assert any(warning in note for note in source.notes)


def test_weights_without_preparation_get_a_note(written, says):
    written("a.safetensors")
    recipe, source = finetuned("a.safetensors")
    flags = "--mean, --std, --interpolation, --eval-resize"
    says(source.notes[-1], "preparation as in the recipe", flags)
    assert (recipe.mean, recipe.interpolation, recipe.eval_resize) == ((), "", 0)
    _, source = finetuned("a.safetensors", mean=HALF)
    assert not source.notes


@pytest.mark.parametrize(
    ("entries", "parts"),
    [
        ({"mean": [123.7, 116.3, 103.5]}, "mean|123.7|[0, 1]"),
        ({"std": [0.2, 0.2, 0.0]}, "std|0.0|(0, 1]"),
        ({"interpolation": "cubic"}, "interpolation|'cubic'|bicubic"),
        ({"crop_pct": 87.5, "input_size": [3, 224, 224]}, "crop_pct|87.5|(0, 1]"),
        ({"mean": "imagenet"}, "mean|'imagenet'"),
    ],
)
def test_impossible_values_are_named_and_not_used(entries, parts, hub, says):
    recipe, source = finetuned(hub(entries))
    says(source.notes[0], "warning: hub/config.json", *parts.split("|"))
    assert (recipe.mean, recipe.std, recipe.interpolation, recipe.eval_resize) == ((), (), "", 0)


def test_a_config_of_another_net_is_not_used(written):
    written("model.safetensors", "torchvision", model="resnet18")
    known = {"resnet50": (), "resnet18d": (), "resnet18": HALF, "my_net": HALF}
    for architecture, mean in known.items():
        entries = {"architecture": architecture, "pretrained_cfg": RA4}
        Path("config.json").write_text(json.dumps(entries))
        recipe, source = finetuned("model.safetensors")
        assert recipe.mean == mean, architecture
        assert any("not used" in note for note in source.notes) == (not mean)
    Path("config.json").write_text("{")
    _, source = finetuned("model.safetensors")
    assert "warning: config.json cannot be read" in source.notes[0]


def test_metadata_say_the_preparation(written):
    written("a.safetensors")
    arrays = read_arrays(Path("a.safetensors")).arrays
    own = {**IMAGENET, "image_size": 96, "eval_resize": 100, "interpolation": "lanczos"}
    for name, entries, wanted in (
        ("preprocessing", {**own, "full_scale": 255.0}, own),
        ("pretrained_cfg", RA4, TAKEN),
    ):
        write_safetensors(Path("b.safetensors"), arrays, {name: json.dumps(entries)})
        check_settings("b.safetensors", wanted)


def test_training_scripts_settings_say_the_preparation(torch, written):
    written("a.pth", "torchvision")
    state = torch.load("a.pth", weights_only=True)
    timm = {**BICUBIC, "crop_pct": 0.9, "img_size": 224}
    torchvision = {"val_resize_size": 232, "val_crop_size": 224, "interpolation": "bilinear"}
    size = {"img_size": 160}
    crop = {"crop_pct": 0.95, "mean": HALF}
    for key, given, wanted, notes in (
        ("state_dict", timm, (224, 248, HALF, "bicubic"), 1),
        ("model", torchvision, (224, 232, (), "bilinear"), 1),
        ("state_dict", size, (160, 182, (), "bicubic"), 1),
        ("state_dict", crop, (224, 0, HALF, ""), 2),
    ):
        args = argparse.Namespace(model="resnet8", **given)
        torch.save({"arch": "resnet8", key: state, "args": args}, "b.pth")
        recipe, source = finetuned("b.pth")
        taken = (recipe.image_size, recipe.eval_resize, recipe.mean, recipe.interpolation)
        assert taken == wanted
        assert len(source.notes) == notes
    assert "crop_pct 0.95, but no square input_size" in source.notes[-1]


def test_strange_entries_do_not_stop_a_start(torch, written):
    deep = "[" * 50_000
    written("model.safetensors", "torchvision")
    arrays = read_arrays(Path("model.safetensors")).arrays
    write_safetensors(Path("model.safetensors"), arrays, {"classes": deep, "pretrained_cfg": deep})
    strange = ({"architecture": {"a": [1]}}, {"architecture": [1]}, {"mean": {"a": 1}})
    for entries in (*strange, {"input_size": {"a": 1}, "crop_pct": 0.9}, {"pretrained_cfg": [3]}):
        Path("config.json").write_text(json.dumps(entries))
        recipe, _ = finetuned("model.safetensors")
        assert (recipe.mean, recipe.eval_resize) == ((), 0)
    Path("config.json").unlink()
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    for args in ({"val_crop_size": "224", "val_resize_size": "256"}, {"mean": "x"}, {"std": [[1]]}):
        torch.save({"state_dict": state, "args": argparse.Namespace(**args)}, "b.pth")
        recipe, _ = finetuned("b.pth")
        assert (recipe.mean, recipe.eval_resize) == ((), 0)


def test_published_files_are_known_by_their_hash():
    """All of them, and their values: test_transforms.py."""
    for name, file in PUBLISHED.items():
        preparation = of_release(Path(file.address))
        project, *_ = name.split(":")
        filters = {"timm": "bicubic", "torchvision": "bilinear"}
        assert (preparation and preparation.interpolation) == filters.get(project), name
    a1 = of_release(Path("resnet50_a1_0-14fe96d1.pth"))
    assert (a1.image_size, a1.resize(224), a1.mean) == (224, 235, IMAGENET["mean"])
    assert of_release(Path("resnet50-12345678.pth")) is None


@pytest.fixture(scope="module")
def trained(photographs, written, tmp_path_factory):
    """A run of an epoch from weights of the hub, without their config. Not to be changed."""
    root = tmp_path_factory.mktemp("trained")
    words = ["--recipe", "finetune", "--data-dir", str(photographs)]
    words += ["--weights", write_hub(written, RA4, root)]
    small = shlex.split(
        "--image-size 24 --batch-size 32 --no-progress --epochs 1 --warmup-epochs 0"
    )
    assert train([*words, *small, "--out-dir", str(root / "run")]) == 0
    (root / "hub" / "config.json").unlink()
    return root / "run", words, small


def test_a_run_prepares_images_as_its_weights_say(trained):
    """What these values do to pixels: tests/evaluation/test_describe_input.py."""
    about = load_run(trained[0]).preprocessing
    wanted = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}
    assert about.items() >= {**wanted, "image_size": 24, "eval_resize": 26}.items()
    # The crop keeps its share of an image, rounded down as in timm.
    for size, resize in ((48, 52), (20, 21)):
        assert load_run(trained[0], image_size=size).input.eval_resize == resize


def test_a_run_as_weights_brings_its_preparation(trained):
    run = str(trained[0])
    wanted = {**TAKEN, "image_size": 24, "eval_resize": 26}
    check_settings(run, wanted)
    own = {"std": (0.25,), "interpolation": "box"}
    check_settings(run, wanted | own, **own)


def test_convert_keeps_preparation_and_class_names(trained):
    first, of_run = finetuned(str(trained[0]))
    convert_weights(str(trained[0]), "a.safetensors", "torchvision")
    second, of_file = finetuned("a.safetensors")
    assert (settings_of(second), of_file.classes) == (settings_of(first), of_run.classes)
    assert (first.interpolation, len(of_run.classes)) == ("bicubic", 3)


def test_a_resume_keeps_the_weights_preparation(trained, raises_line):
    run, words, small = trained
    shutil.copytree(run, "run")
    assert train([*words, *small, "--resume", "run", "--epochs", "2"]) == 0
    first, second = (RunFolder(Path(folder)).newest().state for folder in (run, "run"))
    assert second["update"] == 2 * first["update"]
    assert (second["dataset"], second["recipe"]["mean"]) == (first["dataset"], list(HALF))
    with raises_line("resume: ", "other settings", "mean [0.5, 0.5, 0.5] → [0.1, 0.2, 0.3]"):
        train([*words, *small, "--out-dir", "run", "--mean", "0.1,0.2,0.3"])


def test_evaluate_takes_the_preparation_of_weights(hub, folder, capsys):
    words = ["--weights", hub(RA4), "--recipe", "finetune", "--data-dir", str(folder)]
    words += ["--eval-size", "24", "--json"]
    assert evaluate([*words, "file.json"]) == 0
    assert "interpolation bicubic" in capsys.readouterr().out
    Path("hub/config.json").unlink()
    typed = shlex.split("--mean 0.5 --std 0.5 --interpolation bicubic --eval-resize 26")
    assert evaluate([*words, "typed.json", *typed]) == 0
    assert Path("typed.json").read_text() == Path("file.json").read_text()


def test_chosen_means_need_a_value_for_each_channel(raises_line):
    spec = load_dataset(Recipe(mean=(0.25,), std=(0.5,))).input
    assert (spec.mean, spec.std) == ((0.25,), (0.5,))
    with raises_line("mean: 0.1,0.2,0.3", "3 values", "1 channel", "give one value"):
        load_dataset(Recipe(mean=(0.1, 0.2, 0.3)))
