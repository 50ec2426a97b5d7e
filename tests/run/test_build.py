"""What a run is built from: its recipe's parts, and what is refused before the first update."""

import shutil
from pathlib import Path

import pytest
from resnet_fn.run.build import build_components, check_sync_batchnorm

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.validation import write_validation
from resnet_fn.runtime.workers import Workers

pytestmark = pytest.mark.usefixtures("device")

OPTIONS = RunOptions(progress=False)
RECIPE = {"model": "resnet8", "image_size": 8, "batch_size": 240, "epochs": 3}


def names(parameters):
    return [parameter.name for parameter in parameters]


def test_the_state_is_the_weights_and_what_the_recipe_trains_with():
    components = build_components(Recipe(**RECIPE, ema=0.9, precision="fp16", loss_scale=512.0), OPTIONS, Workers())
    assert components.total == 3 * (1437 // 240) == 3 * components.feed.updates_per_epoch
    weights, training = components.state
    trained = [name for name in names(weights) if "moving" not in name]
    assert names(training)[: len(trained)] == [f"momentum.{name}" for name in trained]
    rest = names(training)[len(trained) :]
    assert [name for name in rest if name.startswith("ema")] == [
        *(f"ema.{name}" for name in names(weights)),
        "ema_updates",
    ]
    scale = {parameter.name: parameter.asnumpy() for parameter in training}["scaler.scale"]
    assert scale == 512
    assert components.schedule(0) == 0.2
    plain = build_components(Recipe(**RECIPE, momentum=0.0, nesterov=False), OPTIONS, Workers())
    assert plain.ema is None
    assert all(name.startswith(("momentum.", "scaler.")) for name in names(plain.training))


def test_a_batch_that_does_not_divide_is_refused_before_the_data_is_looked_for():
    recipe = Recipe(dataset="imagefolder", batch_size=64)
    with pytest.raises(ValueError, match="batch_size: 64 does not divide into 1 workers x 3 micro-batches"):
        build_components(recipe, RunOptions(accumulate=3, data_dir="nowhere"), Workers())


def test_first_weights_are_read_at_the_start_alone():
    recipe = Recipe(**RECIPE, weights="nowhere.pth")
    with pytest.raises(ValueError, match=r"^weights: nowhere\.pth: does not exist"):
        build_components(recipe, OPTIONS, Workers())
    checkpoint = Checkpoint(Path("run/checkpoints/step-00000005"), {}, {}, {})
    assert build_components(recipe, OPTIONS, Workers(), checkpoint).total == 15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 2}, r"^accumulate: 2 micro-batches are normalised one by one.*; give --accumulate 1$"),
    ],
)
def test_what_batchnorm_over_all_workers_does_not_go_with(options, message):
    with pytest.raises(ValueError, match=message):
        check_sync_batchnorm(Recipe(sync_batchnorm=True), RunOptions(**options))
    check_sync_batchnorm(Recipe(), RunOptions(**options))


def test_what_is_frozen_has_neither_momentum_nor_average():
    components = build_components(Recipe(**RECIPE, freeze="stem,layer1", ema=0.9), OPTIONS, Workers())
    moving = [name for name in names(components.weights) if not name.startswith(("conv1", "bn1", "layer1"))]
    trained = [name for name in moving if "moving" not in name]
    assert [name for name in names(components.training) if name.startswith("momentum")] == [
        f"momentum.{name}" for name in trained
    ]
    assert names(components.ema.averages) == [f"ema.{name}" for name in moving]
    with pytest.raises(ValueError, match=r"^freeze: 'layer5' is no part of the net; did you mean layer"):
        build_components(Recipe(**RECIPE, freeze="layer5"), OPTIONS, Workers())


def test_a_run_that_goes_on_keeps_its_validation_part(folder):
    """From one folder: as its run has it written down, with what has come since in training."""
    shutil.rmtree(folder / "val")
    fields = {**RECIPE, "batch_size": 8, "dataset": "imagefolder", "image_size": 16}
    recipe, options = Recipe(**fields, validation_share=0.3), RunOptions(data_dir=str(folder), progress=False)
    first = build_components(recipe, options, Workers()).dataset
    write_validation(Path(), first.held_out)
    for k in range(5):
        shutil.copy(folder / "train/bee/00 ü.JPEG", folder / f"train/bee/{k}.JPEG")
    checkpoint = Checkpoint(Path("checkpoints/step-00000005").resolve(), {}, {}, {})
    again = build_components(recipe, options, Workers(), checkpoint=checkpoint).dataset
    assert (len(first.train), len(again.train)) == (15, 20)
    assert again.test.names == first.test.names
    assert len(build_components(recipe, options, Workers()).dataset.test) == 8


def test_an_empty_model_needs_weights_that_tell_it():
    with pytest.raises(ValueError, match=r"^model: is told by the weights; give --weights FILE, or --model NAME$"):
        build_components(Recipe(**{**RECIPE, "model": ""}), OPTIONS, Workers())
