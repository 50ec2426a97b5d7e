"""A run's state: when it is saved, that it comes back, what it says when its updates are split otherwise."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from mindspore import Tensor, ops
from resnet_fn.runtime.waiter import ResultWaiter

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.run.prefetch import Prefetcher
from resnet_fn.run.session import (
    Pace,
    Progress,
    Session,
    build_components,
    restore,
    save,
    should_save_at_epoch_end,
    split_notes,
    split_of,
)
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers
from resnet_fn.telemetry.telemetry import SilentTelemetry


def test_a_resume_with_other_micro_batches_or_workers_says_that_other_bits_follow():
    state = {"split": split_of(RunOptions(accumulate=2), Workers(0, 1))}
    assert split_notes(state, RunOptions(accumulate=2), Workers(0, 1)) == []
    assert split_notes({}, RunOptions(accumulate=2), Workers(0, 1)) == []  # an earlier checkpoint does not know
    assert split_notes(state, RunOptions(accumulate=4), Workers(0, 2)) == [
        "resuming with 2 workers instead of 1: the same samples, but other bits follow; "
        "BatchNorm normalises each part on its own",
        "resuming with 4 micro-batches instead of 2: the same samples, but other bits follow; "
        "BatchNorm normalises each part on its own",
    ]


RECIPE = Recipe(model="resnet8", image_size=8, batch_size=240, epochs=3)


@pytest.fixture
def make_session(device):
    """make_session(folder, checkpoint_every=0) makes the session of a run that has not begun."""

    def make(folder="run", recipe=RECIPE, **options):
        chosen = RunOptions(progress=False, **options)
        components = build_components(recipe, chosen, Workers())
        return Session(
            components=components,
            progress=Progress(),
            options=chosen,
            workers=Workers(),
            run=RunFolder(Path(folder)),
            telemetry=SilentTelemetry(),
            writer=CheckpointWriter(*components.state),
            stop_request=StopRequest(),
            prefetcher=Prefetcher(components.feed, components.total),
            waiter=ResultWaiter(),
        )

    return make


@pytest.mark.parametrize(("every", "saved"), [(0, [5, 10, 15]), (4, [15]), (10, [10, 15])])
def test_an_epochs_end_is_saved_when_it_is_due_best_or_last(make_session, every, saved):
    session = make_session(checkpoint_every=every)
    found = []
    for session.progress.update in (5, 10, 15):
        if should_save_at_epoch_end(session):
            found.append(session.progress.update)
    assert found == saved
    session.progress.update, session.progress.best = 5, {"top1": 0.5, "update": 5}
    assert should_save_at_epoch_end(session)


def test_what_was_saved_comes_back_bit_for_bit(make_session):
    session = make_session()
    for parameter in session.components.weights:
        ops.assign(parameter, parameter + 0.25)
    session.progress.update, session.progress.last = 7, {"update": 5, "top1": 0.5}
    session.progress.best = {"top1": 0.5, "update": 5}
    save(session)
    session.writer.wait()
    checkpoint = session.run.newest()
    assert checkpoint.state["epoch"] == 1
    assert recipe_from_dict(checkpoint.state["recipe"]) == RECIPE
    other = make_session()
    assert restore(other.components, checkpoint, other.run) == session.progress
    for ours, theirs in zip(other.components.state, session.components.state, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.asnumpy().tobytes() == b.asnumpy().tobytes(), a.name
    branch = restore(other.components, checkpoint, RunFolder(Path("elsewhere")))
    assert branch.branched_from == str(checkpoint.path.resolve())


def test_adam_goes_on_bit_for_bit(make_session):
    """Five updates, and three from the checkpoint after two in a run that was made anew: weights, moments, count."""
    recipe = dataclasses.replace(RECIPE, optimizer="adamw", nesterov=False, learning_rate=1e-3)

    def train(session, *updates):
        for update in updates:
            images, labels = session.components.feed.batch(update)
            session.components.train_step(Tensor(images), Tensor(labels), session.components.schedule(update))
        return {p.name: p.asnumpy().tobytes() for half in session.components.state for p in half}

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
    pace.add(2.0, 30.0, applied=True)
    pace.add(1.0, 0.5, applied=True)
    pace.add(float("inf"), 0.25, applied=False)
    assert (pace.compiling, pace.seconds, pace.losses) == (30.0, [0.5, 0.25], [2.0, 1.0])
    pace.begin()
    pace.add(0.5, 0.5, applied=True)
    assert (pace.compiling, pace.seconds, pace.losses) == (0.0, [0.5], [0.5])
