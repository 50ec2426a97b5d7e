"""A run: what it is built from, what is rejected before the first update, when it is saved, that it comes back."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from mindspore import Tensor, ops

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.data.sources.validation import write_validation
from resnet_fn.run.prefetch import Prefetcher
from resnet_fn.run.resume import restore, save, should_save_at_epoch_end, split_notes, split_of
from resnet_fn.run.session import Progress, Session, build_components
from resnet_fn.runtime import process
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers
from resnet_fn.telemetry.norms import LayerNorms
from resnet_fn.telemetry.telemetry import Pace, SilentTelemetry

pytestmark = pytest.mark.usefixtures("device")

OPTIONS = RunOptions(progress=False)
RECIPE = Recipe(model="resnet8", image_size=8, batch_size=240, epochs=3)


def build(recipe=RECIPE, options=OPTIONS, checkpoint=None, **changes):
    return build_components(dataclasses.replace(recipe, **changes), options, Workers(), checkpoint)


def names(parameters):
    return [parameter.name for parameter in parameters]


def test_the_state_is_the_weights_and_what_the_recipe_trains_with():
    components = build(ema=0.9, precision="fp16", loss_scale=512.0)
    assert components.total == 3 * (1437 // 240) == 3 * components.feed.updates_per_epoch
    state, weights = components.state, names(components.state.weights)
    trained = [name for name in weights if "moving" not in name]
    kinds = {name.partition(".")[0] for name in names(state.training)}
    assert kinds == {"momentum", "scaler", "ema", "ema_updates"}
    assert names(state.training)[: len(trained)] == [f"momentum.{name}" for name in trained]
    assert names(state.average.averages) == [f"ema.{name}" for name in weights]
    assert state.scaler.scale.asnumpy() == 512
    assert components.schedule(0) == 0.2
    assert [(array.shape, array.dtype) for array in components.blank] == [
        (array.shape, array.dtype) for array in components.feed.batch(0)
    ]
    plain = build(momentum=0.0, nesterov=False).state
    assert plain.average is None
    assert all(name.startswith(("momentum.", "scaler.")) for name in names(plain.training))


def test_what_is_frozen_has_neither_momentum_nor_average():
    state = build(freeze="stem,layer1", ema=0.9).state
    moving = [name for name in names(state.weights) if not name.startswith(("conv1", "bn1", "layer1"))]
    assert names(state.optimizer) == [f"momentum.{name}" for name in moving if "moving" not in name]
    assert names(state.average.averages) == [f"ema.{name}" for name in moving]


def test_a_batch_that_does_not_divide_is_rejected_before_the_data_is_looked_for():
    with pytest.raises(ValueError, match="batch_size: 64 does not divide into 1 workers x 3 micro-batches"):
        build(Recipe(dataset="imagefolder", batch_size=64), RunOptions(accumulate=3, data_dir="nowhere"))


def test_first_weights_are_read_at_the_start_alone():
    with pytest.raises(ValueError, match=r"^weights: nowhere\.pth: does not exist"):
        build(weights="nowhere.pth")
    checkpoint = Checkpoint(Path("run/checkpoints/step-00000005"), {}, {}, {})
    assert build(weights="nowhere.pth", checkpoint=checkpoint).total == 15


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ({"sync_batchnorm": True}, {"accumulate": 2}, r"accumulate: 2 micro-batches .*; give --accumulate 1"),
        ({}, {"max_skips": 2}, "max_skips: 2 needs --precision fp16; in float32 the first overflow ends the run"),
    ],
)
def test_options_that_nothing_in_the_recipe_can_use_are_rejected(recipe, options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        build(options=RunOptions(**options), **recipe)


def test_a_run_that_goes_on_keeps_its_validation_part(folder):
    """From one folder: as its run has it written down, with what has come since in training."""
    shutil.rmtree(folder / "val")
    recipe = dataclasses.replace(RECIPE, batch_size=8, dataset="imagefolder", image_size=16, validation_share=0.3)
    options = RunOptions(data_dir=str(folder), progress=False)
    first = build(recipe, options).dataset
    write_validation(Path(), first.held_out)
    for k in range(5):
        shutil.copy(folder / "train/bee/00 ü.JPEG", folder / f"train/bee/{k}.JPEG")
    checkpoint = Checkpoint(Path("checkpoints/step-00000005").resolve(), {}, {}, {})
    again = build(recipe, options, checkpoint).dataset
    assert (len(first.train), len(again.train)) == (15, 20)
    assert again.test.names == first.test.names
    assert len(build(recipe, options).dataset.test) == 8


def test_a_resume_with_other_micro_batches_or_workers_says_that_other_bits_follow():
    state = {"split": split_of(RunOptions(accumulate=2), Workers(0, 1))}
    assert split_notes(state, RunOptions(accumulate=2), Workers(0, 1)) == []
    assert split_notes({}, RunOptions(accumulate=2), Workers(0, 1)) == []  # an earlier checkpoint has no such entry
    workers, parts = split_notes(state, RunOptions(accumulate=4), Workers(0, 2))
    assert workers.startswith("resuming with 2 workers instead of 1: the same samples, but other bits follow")
    assert parts.startswith("resuming with 4 micro-batches instead of 2: ")


@pytest.mark.parametrize(
    ("name", "then"),
    [
        *(("CPU count", 64), ("thread count", 17), ("device", "Ascend"), ("processor", "8086"), ("mode", "pynative")),
        *(("fast-math", "on"), ("ONEDNN_MAX_CPU_ISA", "SSE41"), ("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")),
        *(("MindSpore", "2.7.2"), ("NumPy", "1.25.0")),
    ],
)
def test_a_resume_with_other_kernels_says_that_other_bits_may_follow(name, then):
    now = split_of(RunOptions(), Workers())
    line, *_ = split_notes({"split": {**now, name: then}}, RunOptions(), Workers())
    assert line == f"resuming with {name} {now[name]} instead of {then}: other bits may follow"


@pytest.mark.parametrize(("cpus", "threads", "lines"), [(64, 4, 0), (4, 64, 0), (64, 64, 1), (5, 8, 1)])
def test_a_resume_with_more_threads_than_keep_their_bits_says_so(monkeypatch, cpus, threads, lines):
    for name, value in (("cpus", cpus), ("threads", threads)):
        monkeypatch.setitem(process.started, name, value)
    state = {"split": split_of(RunOptions(), Workers())}
    notes = split_notes(state, RunOptions(), Workers())
    assert len(notes) == lines
    assert all("threads, which" in note and "--threads 4" in note for note in notes)


@pytest.fixture
def make_session():
    """make_session(folder, checkpoint_every=0) makes the session of a run that has not begun."""

    def make(folder="run", recipe=RECIPE, **options):
        chosen = RunOptions(progress=False, **options)
        components = build(recipe, chosen)
        return Session(
            components=components,
            progress=Progress(),
            options=chosen,
            workers=Workers(),
            run=RunFolder(Path(folder)),
            telemetry=SilentTelemetry(),
            writer=CheckpointWriter(components.state),
            stop_request=StopRequest(),
            prefetcher=Prefetcher(components.feed, components.total, components.blank),
            norms=LayerNorms(components.state.weights, 0),
        )

    return make


def bits(session):
    state = session.components.state
    return {parameter.name: parameter.asnumpy().tobytes() for parameter in (*state.weights, *state.training)}


@pytest.mark.parametrize(("every", "saved"), [(0, [5, 10, 15]), (4, [15]), (10, [10, 15])])
def test_an_epochs_end_is_saved_when_it_is_due_best_or_last(make_session, every, saved):
    session = make_session(checkpoint_every=every)
    due = []
    for session.progress.update in (5, 10, 15):
        if should_save_at_epoch_end(session):
            due.append(session.progress.update)
    assert due == saved
    session.progress.update, session.progress.best = 5, {"top1": 0.5, "update": 5}
    assert should_save_at_epoch_end(session)


def test_what_was_saved_comes_back_bit_for_bit(make_session):
    recipe = dataclasses.replace(RECIPE, sampling="balanced")
    session = make_session(recipe=recipe)
    for parameter in session.components.state.weights:
        ops.assign(parameter, parameter + 0.25)
    session.progress.update, session.progress.last = 7, {"update": 5, "top1": 0.5}
    session.progress.best = {"top1": 0.5, "update": 5}
    save(session)
    session.writer.wait()
    checkpoint = session.run.newest()
    assert checkpoint.state["epoch"] == 1
    assert recipe_from_dict(checkpoint.state["recipe"]) == recipe
    counts = [row["training_images"] for row in checkpoint.state["treatment"]]
    assert counts == np.bincount(session.components.dataset.train.labels).tolist()
    other = make_session(recipe=recipe)
    assert restore(other.components, checkpoint, other.run) == session.progress
    assert bits(other) == bits(session)
    branch = restore(other.components, checkpoint, RunFolder(Path("elsewhere")))
    assert (branch.branched_from, branch.began) == (str(checkpoint.path.absolute()), 7)


def test_adam_goes_on_bit_for_bit(make_session):
    """Five updates, and three from the checkpoint after two in a run that was made anew: weights, moments, count."""
    recipe = dataclasses.replace(RECIPE, optimizer="adamw", nesterov=False, learning_rate=1e-3)

    def train(session, *updates):
        for update in updates:
            images, labels = session.components.feed.batch(update)
            session.components.train_step(Tensor(images), Tensor(labels), session.components.schedule(update))
        return bits(session)

    session = make_session(recipe=recipe)
    train(session, 0, 1)
    session.progress.update = 2
    save(session)
    session.writer.wait()
    unbroken = train(session, 2, 3, 4)
    other = make_session(recipe=recipe)
    restore(other.components, session.run.newest(), other.run)
    assert train(other, 2, 3, 4) == unbroken
    assert np.frombuffer(unbroken["adam_updates"], np.float32) == 5


def test_the_first_update_of_a_process_is_its_compilation():
    pace = Pace()
    pace.add(2.0, 0.1, 30.0, applied=True)
    pace.add(1.0, 0.2, 0.5, applied=True)
    pace.add(float("inf"), 0.3, 0.25, applied=False)
    assert (pace.compiling, pace.seconds, pace.losses, pace.accuracies) == (30.0, [0.5, 0.25], [2.0, 1.0], [0.1, 0.2])
    pace.begin(1)
    pace.add(0.5, 0.4, 0.5, applied=True)
    assert (pace.compiling, pace.seconds, pace.losses) == (0.0, [0.5], [0.5])
