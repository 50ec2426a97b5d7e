"""A run is built from its recipe: state, frozen parts, best checkpoint."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.checkpoint.tensor_file import write_safetensors
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.data.sources.contents import write_split
from resnet_fn.models import create_model
from resnet_fn.run.build import Progress, build_run
from resnet_fn.run.console import describe_best
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers
from resnet_fn.telemetry.telemetry import Pace
from resnet_fn.train import parse

pytestmark = pytest.mark.usefixtures("device")

RECIPE = Recipe(model="resnet8", image_size=8, batch_size=240, epochs=3)
CHECKPOINT = Checkpoint(
    Path("run/checkpoints/step-00000005"),
    {},
    {},
    {"class_weights": [], "dataset": {"classes": []}, "parallel_layout": {}},
)


def build(recipe=RECIPE, options=RunOptions(progress=False), checkpoint=None, **changes):
    recipe = recipe.changed(**changes) if changes else recipe
    return build_run(recipe, options, Workers(), RunFolder(Path("run")), StopRequest(), checkpoint)


def names(parameters):
    return [parameter.name for parameter in parameters]


def test_the_state_has_what_the_recipe_needs():
    run = build(ema=0.9, ema_every=3, precision="fp16", loss_scale=512.0)
    assert run.total == 3 * (1437 // 240) == 3 * run.feed.updates_per_epoch
    state = run.state
    weights = names(run.state.weights)
    trained = [name for name in weights if "moving" not in name]
    assert names(state.trained) == trained
    assert names(state.statistics) == [name for name in weights if "moving" in name]
    assert names(state.training) == [
        *(f"momentum.{name}" for name in trained),
        *(f"scaler.{name}" for name in ("scale", "good_updates", "skipped", "skipped_in_row")),
        *(f"ema.{name}" for name in weights),
        "ema_updates",
    ]
    assert (state.average.every, state.average.count.asnumpy()) == (3, 0)
    assert state.scaler.scale.asnumpy() == 512
    assert run.schedule(0) == 0.2
    plain = build(momentum=0.0, nesterov=False).state
    assert plain.average is None
    assert all(name.startswith(("momentum.", "scaler.")) for name in names(plain.training))


def test_what_is_frozen_has_neither_momentum_nor_average():
    state = build(freeze="stem,layer1", ema=0.9).state
    moving = [
        name for name in names(state.weights) if not name.startswith(("conv1", "bn1", "layer1"))
    ]
    assert names(state.optimizer) == [f"momentum.{name}" for name in moving if "moving" not in name]
    assert names(state.average.averages) == [f"ema.{name}" for name in moving]


def test_first_weights_are_read_at_the_start_alone():
    with pytest.raises(ValueError, match=r"^weights: nowhere\.pth does not exist"):
        build(weights="nowhere.pth")
    assert build(weights="nowhere.pth", checkpoint=CHECKPOINT).total == 15


def test_few_images_without_weights_are_a_line(folder):
    recipe = RECIPE.changed(batch_size=8, dataset="imagefolder", image_size=16)
    notes = build(recipe, RunOptions(data_dir=str(folder), progress=False)).notes
    (line,) = [note for note in notes if "starts from random numbers" in note]
    assert "--weights torchvision:resnet18" in line
    assert not [note for note in build().notes if "random numbers" in note]  # 1437 digits in memory


def test_notes_show_the_learning_rates_of_parts(says):
    fine = {"head_lr_factor": 10.0, "learning_rate": 0.01}
    for settings, rates, factor in (
        ({}, "stem to layer3 0.01, fc 0.1", 1),
        ({"train_only": "fc"}, "fc 0.1", 10),
    ):
        run = build(**fine, **settings)
        says(run.notes[0], "rates ", rates)
        assert run.rate_factor == factor
    assert (build().notes, build().rate_factor) == ([], 1)


def test_options_useless_for_the_recipe_are_rejected():
    with pytest.raises(ValueError, match=r"^max_skips: 2 needs --precision fp16"):
        build(options=RunOptions(max_skips=2))


def test_a_resumed_run_keeps_its_validation_part(folder):
    """From one folder: as its run has it written down, with what has come since in training.

    For a new run, train would be a class beside samples.
    """
    shutil.rmtree(folder / "val")
    recipe = RECIPE.changed(
        batch_size=8, dataset="imagefolder", image_size=16, validation_share=0.3
    )
    options = RunOptions(data_dir=str(folder), progress=False)
    first = build(recipe, options).dataset
    Path("run").mkdir()
    write_split(Path("run"), first, is_new=True)
    for k in range(5):
        shutil.copy(folder / "train/bee/00 ü.JPEG", folder / f"train/bee/{k}.JPEG")
    assert len(build(recipe, options).dataset.test) == 8  # a new run: 4 of 12, 2 of 7, 2 of 7
    (folder / "samples").mkdir()
    shutil.copy(folder / "train/bee/0.JPEG", folder / "samples")
    state = {**CHECKPOINT.state, "dataset": {"classes": first.classes}}
    again = build(recipe, options, dataclasses.replace(CHECKPOINT, state=state)).dataset
    assert (len(first.train), len(again.train)) == (15, 20)
    assert again.test.names == first.test.names


def test_the_first_update_counts_as_compilation():
    pace = Pace()
    pace.add(2.0, 0.1, 30.0, applied=True)
    pace.add(1.0, 0.2, 0.5, applied=True)
    pace.add(float("inf"), 0.3, 0.25, applied=False)
    assert (pace.compiling, pace.seconds) == (30.0, [0.5, 0.25])
    assert (pace.losses, pace.accuracies) == ([2.0, 1.0], [0.1, 0.2])
    pace.begin(1)
    pace.add(0.5, 0.4, 0.5, applied=True)
    assert (pace.compiling, pace.seconds, pace.losses) == (0.0, [0.5], [0.5])


def bests(monitor, values, losses=None):
    """After each evaluation: the update of the best, and how many came without a gain."""
    progress = Progress()
    best = []
    counts = []
    losses = losses or [1.0] * len(values)
    for progress.update, (value, loss) in enumerate(zip(values, losses, strict=True), 1):
        progress.update_best(monitor, {"top1": 0.5, "loss": loss, monitor: value})
        best.append(progress.best and progress.best["update"])
        counts.append(progress.without_gain)
    return best, counts


def test_the_last_finite_of_equals_is_best():
    assert bests("top1", [0.5, 0.4, 0.5, 0.6, 0.6]) == ([1, 1, 3, 4, 5], [0, 1, 2, 0, 1])
    assert bests("loss", [2.0, 3.0, 2.0, 1.0]) == ([1, 1, 3, 4], [0, 1, 2, 0])
    for bad in (float("nan"), float("inf")):
        assert bests("top1", [0.5, 0.9, 0.6], [1.0, bad, 1.0]) == ([1, 1, 3], [0, 1, 0])
        assert bests("loss", [bad, 2.0, bad]) == ([None, 2, 2], [1, 0, 1])


def test_the_best_evaluation_is_described_in_words():
    best = {"top1": 0.975, "macro_f1": 0.5, "loss": 0.12345, "update": 110}
    last = {**best, "top1": 0.9, "macro_f1": 0.25, "loss": 1.0}
    assert describe_best("top1", best, last) == "best top-1 97.50% (update 110), last 90.00%"
    assert describe_best("loss", best, last) == "best loss 0.1235 (update 110), last 1.0000"
    progress = Progress(update=3)
    progress.update_best("map", {"loss": 1.0, "map": 0.5})
    assert progress.best == {"map": 0.5, "update": 3}  # without top1
    text = describe_best("map", progress.best, {"map": 0.25})
    assert text == "best mAP 50.00% (update 3), last 25.00%"


def test_stored_settings_without_effect_are_notes_not_errors(raises_line):
    """Some of its settings have no effect with its weights and its data."""
    net = create_model("resnet8", num_classes=10, in_channels=1)
    arrays = {parameter.name: parameter.numpy() for parameter in net.get_parameters()}
    write_safetensors(Path("a.safetensors"), arrays)
    recipe = RECIPE.changed(weights="a.safetensors", initialisation="torch", warmup_epochs=0.01)
    options = RunOptions(progress=False)
    Path("recipe.toml").write_text(recipe_text(recipe, options))
    again, options, _ = parse(["--recipe", "recipe.toml"])
    run = build(again, options)
    notes = [note.partition(" has no effect")[0] for note in run.notes if "no effect" in note]
    assert notes == ["initialisation torch", "warmup_epochs 0.01"]
    typed, options, _ = parse(["--recipe", "recipe.toml", "--warmup-epochs", "0.01"])
    with raises_line("warmup_epochs: 0.01 is not more than half an update", "leave it out"):
        build_run(typed, options, Workers(), RunFolder(Path("run")), StopRequest())
