"""Weights into a net: heads, classes, names, misfits."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from mindspore import Parameter, Tensor

from resnet_fn import convert
from resnet_fn.config.draft import Source
from resnet_fn.config.recipe import Recipe
from resnet_fn.inspect import __main__ as inspect
from resnet_fn.models import create_model
from resnet_fn.weights.files import read_arrays, write_arrays
from resnet_fn.weights.load import (
    describe_source,
    load_weights,
    name_model,
    read_any_weights,
    read_start,
    read_weights,
    start_from,
)
from resnet_fn.weights.recognise import WeightsError

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def net():
    return create_model("resnet8", num_classes=3)


def bits(net):
    return {parameter.name: parameter.asnumpy().tobytes() for parameter in net.get_parameters()}


def test_unfitting_arrays_are_listed_and_nothing_is_assigned(net, written, raises_line):
    def change(arrays):
        del arrays["bn1.beta"], arrays["layer3.0.conv2.weight"]
        arrays["layer9.bias"] = np.zeros(1, np.float32)
        arrays["conv1.weight"] = np.zeros((16, 1, 3, 3), np.float32)

    written("a.safetensors", change=change)
    before = bits(net)
    parts = ("missing: bn1.beta, layer3.0.conv2.weight; ", "unexpected: layer9.bias; ")
    shapes = "of another shape: conv1.weight (16, 1, 3, 3) instead of (16, 3, 3, 3)"
    with raises_line(
        "a.safetensors does not fit", *parts, shapes, "give the model of these", kind=WeightsError
    ):
        load_weights(net, "a.safetensors")
    assert bits(net) == before


def test_weights_with_nan_or_infinity_are_rejected(net, written, raises_line):
    def poison(arrays):
        arrays["fc.bias"][1] = np.nan
        arrays["conv1.weight"][0, :, 0, 0] = -np.inf

    written("a.safetensors", change=poison)
    before = bits(net)
    named = "3 of 432 values of conv1.weight, 1 of 3 values of fc.bias"
    for refuses in (
        lambda: load_weights(net, "a.safetensors"),
        lambda: convert.main(["a.safetensors", "b.ckpt"]),
    ):
        with raises_line(
            "a.safetensors contains NaN or infinity (",
            named,
            "give other weights",
            "--allow-non-finite",
        ):
            refuses()
    assert bits(net) == before
    assert not Path("b.ckpt").exists()
    assert convert.main(["a.safetensors", "b.ckpt", "--allow-non-finite"]) == 0
    load_weights(net, "b.ckpt", allow_non_finite=True)
    assert np.isnan(net.fc.bias.asnumpy()).tolist() == [False, True, False]
    # The layer that is left out is not checked.
    written("head.safetensors", change=lambda arrays: arrays["fc.bias"].fill(np.nan))
    load_weights(net, "head.safetensors", reset_head=True)


def test_weights_of_another_function_are_warned_or_rejected(capsys, written):
    written("a.safetensors", "mindcv", model="resnet18")
    load_weights(create_model("resnet18", num_classes=3), "a.safetensors")
    assert (
        "warning: a.safetensors: MindCV's stem max-pool pads only right and below"
        in capsys.readouterr().err
    )
    official = ("conv1.weight", "layer1.0.conv3.weight", "end_point.weight")
    write_arrays("b.safetensors", {name: np.zeros(1, np.float32) for name in official})
    with pytest.raises(
        WeightsError, match="pad strided convolutions with `same` instead of equally on all sides"
    ):
        read_weights("b.safetensors")
    assert read_any_weights("b.safetensors").useless  # to look at, not to load


def test_of_a_run_folder_the_average_counts(net, save_run, arrays_of, says):
    weights = list(net.get_parameters())
    averages = [Parameter(parameter * 0.5, name=f"ema.{parameter.name}") for parameter in weights]
    count = Parameter(Tensor(np.float32(7)), name="ema_updates")
    momentum = Parameter(weights[0] * 2, name=f"momentum.{weights[0].name}")
    save_run(1, weights, [momentum])
    assert not read_weights("run").averaged
    save_run(2, weights, [momentum, *averages, count])
    source = read_weights("run")
    assert (source.averaged, source.update, source.notes) == (True, 2, ())
    half = {name: (array * np.float32(0.5)).tobytes() for name, array in arrays_of(net).items()}
    assert {name: array.tobytes() for name, array in source.arrays.items()} == half
    step = "run/checkpoints/step-00000002"
    assert describe_source(source)[0].endswith(f" {step}, the moving average of the weights")
    bare = read_weights(f"{step}/weights.safetensors")
    assert bare.arrays["fc.bias"].tobytes() == net.fc.bias.asnumpy().tobytes()
    assert not bare.averaged
    says(bare.notes[0], "bare weights", f"class names and preparation, give {step}")


def test_the_best_checkpoint_of_a_run_is_loaded(net, save_run, capsys):
    weights = list(net.get_parameters())
    best = save_run(1, weights)
    last = save_run(2, [Parameter(parameter + 1, name=parameter.name) for parameter in weights])
    for which, path in (("last", last), ("best", best)):
        _, source = read_start(Recipe(model="resnet8", weights="run", which=which))
        assert source.path == path
        assert convert.main(["run", "a.safetensors", "--which", which]) == 0
        assert capsys.readouterr().out.endswith(f" in a.safetensors, read from {path}\n")
        converted = read_arrays("a.safetensors").arrays
        assert converted["fc.bias"].tobytes() == source.arrays["fc.bias"].tobytes()
        assert inspect.main(["run", "a.safetensors", "--which", which]) == 0
        assert capsys.readouterr().out.startswith(f"{path}: resnet8, this package's names\n")
    for command in (convert, inspect):
        with pytest.raises(
            ValueError, match=r"which.* is for run folders.*; leave (--which out|out which)"
        ):
            command.main(["a.safetensors", "b.safetensors", "--which", "best"])


def start(classes, chosen=(), known=(), **fields):
    """The lines of a training that starts from a.safetensors, which has the class names `known`.

    The last layer of the net is new if the first line says so.
    """
    net = create_model("resnet8", num_classes=len(classes))
    head = net.fc.weight.asnumpy().copy()
    source = dataclasses.replace(read_weights("a.safetensors"), classes=known)
    recipe = Recipe(model="resnet8", weights="a.safetensors", **fields)
    lines = start_from(net, source, recipe, classes, chosen)
    assert np.array_equal(net.conv1.weight.asnumpy(), source.arrays["conv1.weight"])
    assert np.array_equal(net.fc.weight.asnumpy(), head) == ("new" in lines[0])
    return [line.removeprefix("weights     a.safetensors") for line in lines]


def test_training_makes_a_new_head_for_other_classes(written):
    written("a.safetensors")  # of 3 classes
    new = "the last layer is new"
    assert start("abc") == [", for 3 classes without names: the last layer is kept"]
    assert start("abc", known=tuple("abc")) == [", for the same classes: the last layer is kept"]
    assert start("abc", reset_head=True) == [f", as --reset-head wants: {new}"]
    assert start("abcde") == [f", for 3 classes, not 5: {new}"]
    assert start("abc", known=tuple("bac")) == [f", for these classes in another order: {new}"]
    assert start("abc", known=tuple("xyz")) == [f", for other classes (x, y, z): {new}"]
    written(
        "a.safetensors",
        change=lambda arrays: [arrays.pop(name) for name in ("fc.weight", "fc.bias")],
    )
    assert start("abc") == [f", without a last layer: {new}"]


def test_an_initialisation_that_weights_replace_is_rejected(written, raises_line):
    written("a.safetensors")  # of 3 classes
    torchs = {"initialisation": "torch"}
    with raises_line("initialisation: 'torch'", "no effect", "leave it out"):
        start("abc", torchs, **torchs)
    assert "the last layer is new" in start("abcde", torchs, **torchs)[0]
    first, note = start("abc", **torchs)
    assert "the last layer is kept" in first
    assert note.startswith("initialisation torch has no effect")


def test_a_last_layer_of_several_parts_makes_room(net, written):
    """As MoCo's nets have them, and nets with `fc = nn.Sequential(...)`."""

    def several(arrays):
        arrays["fc.0.weight"] = np.zeros((64, 64), np.float32)
        arrays["fc.0.bias"] = np.zeros(64, np.float32)
        arrays["fc.2.weight"], arrays["fc.2.bias"] = arrays.pop("fc.weight"), arrays.pop("fc.bias")

    written("a.safetensors", "torchvision", change=several)
    parts = "fc.0.weight, fc.0.bias, fc.2.weight and 1 more"
    assert start("abc") == [f", with a last layer of other parts ({parts}): the last layer is new"]
    with pytest.raises(WeightsError, match=r"unexpected: fc\.0\.weight.*reset_head=True"):
        load_weights(net, "a.safetensors")


def test_a_chosen_norm_stays_beside_weights(written, raises_line):
    written("a.safetensors")
    recipe = Recipe(model="", norm="none", weights="a.safetensors")
    recipe, weights = read_start(recipe)
    assert (recipe.model, recipe.norm) == ("resnet8", "none")
    in_file = Recipe.unchecked({"model": "", "norm": "none"}, {"norm": Source.FILE})
    taken, (note,) = name_model(in_file, weights)
    assert (taken.norm, note) == ("batch", "norm batch, not none (from a.safetensors)")
    net = create_model(recipe.model, num_classes=3, norm=recipe.norm)
    with raises_line("weights: ", "norm", "--norm batch"):
        start_from(net, weights, recipe, ())


def test_settings_of_norms_are_named_without_norms(written, raises_line):
    written("a.safetensors", norm="none")
    weights = read_weights("a.safetensors")
    recipe, left_out = name_model(Recipe.unchecked({"model": "", "sync_batchnorm": True}), weights)
    assert (recipe.norm, recipe.sync_batchnorm) == ("none", False)
    assert left_out == ("sync_batchnorm True is left out: it needs --norm batch",)
    with raises_line("sync_batchnorm: True", "--norm batch"):
        name_model(Recipe(model="", sync_batchnorm=True), weights)


def test_a_recipe_without_a_model_takes_its_weights(written):
    written("a.safetensors", model="resnet18", stem="cifar")
    recipe, _ = name_model(Recipe(model=""), read_weights("a.safetensors"))
    assert (recipe.model, recipe.stem, recipe.norm) == ("resnet18", "cifar", "batch")
    written("b.safetensors")
    recipe, _ = name_model(Recipe(model=""), read_weights("b.safetensors"))
    assert (recipe.model, recipe.stem) == ("resnet8", "")
    assert name_model(Recipe(model="resnet50"), None)[0].model == "resnet50"
