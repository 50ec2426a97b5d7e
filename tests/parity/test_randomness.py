"""Randomness in training: dropout is compared; other random numbers are named, and leave stages
undecided.
"""

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.ladder import compare_recordings
from resnet_fn.parity.pair.matching import match, outline_of
from resnet_fn.parity.record import dropouts
from resnet_fn.parity.record.dropouts import drops_of
from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.show.titles import doubt_of, title_of_stage
from resnet_fn.parity.trace.drop import Drop
from resnet_fn.parity.trace.folder import load_recording, save_recording
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.stages import DROPOUT
from resnet_fn.recipes import recipe

BATCHES = [
    (
        np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32),
        (np.arange(6) % 3).astype(np.int32),
    )
] * 2
RECIPE = recipe("digits").changed(clip_norm=0.0, learning_rate=0.02)
TRACE = Path(__file__).parents[1] / "acceptance" / "trace"


class Ported(nn.Cell):
    def __init__(self, share: float) -> None:
        super().__init__()
        self.fc, self.share = nn.Dense(8, 3), share

    def construct(self, x: Tensor) -> Tensor:
        return ops.dropout(self.fc(x), self.share, self.training) if self.share else self.fc(x)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("way", "share", "place"),
    [
        ("function", 0.2, "the reference 0 (Block)"),
        ("layer", 0.2, "the net 0 (Ported)"),
        ("noise", 0.0, "the reference 0 (Block)"),
        ("rare", 0.0, "the reference 0 (Block)"),
        ("own generator", 0.0, "the reference 0 (Block)"),
        ("RandomState", 0.0, "the reference 0 (Block)"),
        ("Random", 0.0, "the reference 0 (Block)"),
        ("loss", 0.0, "the reference code between its layers, or the loss,"),
    ],
)
def test_random_layers_are_named_their_stages_undecided(torch, way, share, place):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.old, self.plain = (
                torch.Generator(),
                np.random.RandomState(0),
                random.Random(0),
            )
            self.fc, self.drop = (
                torch.nn.Linear(8, 3),
                torch.nn.Dropout(0.2 if way == "layer" else 0),
            )

        def forward(self, x):
            x = self.drop(self.fc(x))
            if way == "noise" and self.training:
                return x + 3e-5 * torch.randn_like(x)
            if way == "own generator" and self.training:
                return x + torch.rand(x.shape, generator=self.own)
            if way in ("RandomState", "Random") and self.training:
                return x + (self.old.rand() if way == "RandomState" else self.plain.random())
            if way == "rare" and self.training:
                return x * (torch.rand(len(x), 1) > 0.1)
            return torch.nn.functional.dropout(x, 0.2, self.training) if way == "function" else x

    def loss(outputs, labels):
        drawn = 0.1 * torch.rand(()) if way == "loss" else 0
        return torch.nn.functional.cross_entropy(outputs, labels.long()) + drawn

    options = {
        "loss": ops.cross_entropy,
        "reference_loss": loss,
        "initialisation": False,
        "quick": True,
    }
    net, module = nn.SequentialCell(Ported(share)), torch.nn.Sequential(Block())
    ladder = compare_step(net, module, BATCHES, RECIPE, mode="pynative", **options)
    assert (ladder.first_stage, ladder.first_layer, ladder.agrees) == (None, None, False)
    names = [title_of_stage(stage) for stage in ladder.undecided]
    before = ["dropout"] if way == "layer" else []
    after = [] if way == "loss" else ["train layers"]
    expected = [*before, "train forward", *after, "loss", "loss alone", "gradients"]
    assert names[: len(expected)] == expected
    assert "optimizer alone" not in names
    assert "learning rate" not in names
    assert f"in {place}" in doubt_of(ladder.undecided[-1])


A, B, FUNCTION = Drop("a", 0.1, True), Drop("b", 0.2, True), Drop("c", 0.1, False)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "words"),
    [
        ([], [], None, ""),
        ([A, B], [Drop("x", 0.1, True), Drop("y", 0.2, True)], "ok", ""),
        ([A, B], [A], "DIFFERS", "b: p=0.2 in the port, 0 in the reference"),
        ([A, A], [FUNCTION], "undecided", "a function call may"),
        ([A], None, "undecided", "record that trace again"),
    ],
)
def test_how_much_is_dropped_is_compared(ours, theirs, verdict, words, tmp_path):
    recording = load_recording(TRACE)
    save_recording(dataclasses.replace(recording, drops=ours), tmp_path / "trace")
    sides = load_recording(tmp_path / "trace"), dataclasses.replace(recording, drops=theirs)
    ladder = compare_recordings(*sides, match(*(outline_of(side, "eval") for side in sides)))
    stage = next((stage for stage in ladder.stages if stage.id == DROPOUT), None)
    assert (stage and stage.verdict) == verdict
    assert ladder.agrees == (verdict in (None, "ok"))
    assert words in " ".join([*stage.hints, doubt_of(stage)] if stage else [])


# What drops by a mask is measured. (By layers of both frameworks: test_faults.py and
# right_ports/test_dropout.py.)
IMAGE = np.random.default_rng(0).normal(size=(4, 3, 5, 6))


LAYER = Layer("a", 0, "own block", "Block", {}, IMAGE, IMAGE, (), True)


def test_a_dropouts_true_share_is_measured():
    rng = np.random.default_rng(1)
    drop = _drop_of(lambda x: 2 * x * (rng.random(x.shape) >= 0.7))
    assert drop == Drop(
        "a", pytest.approx(0.7, abs=0.02), True, 2.0, IMAGE.shape, varies=1.0, further=1
    )


def _drop_of(run, layer=LAYER):
    """Return the dropout of one layer, which `run` runs with random dropout."""

    def make(name, ones, only, compiled):
        return lambda: run(ones)

    (drop,) = drops_of([("a", "p", 0.3)], [layer], make)
    return drop


@pytest.mark.parametrize(
    "run",
    [
        # as AlphaDropout
        lambda x: np.random.default_rng(0).random(IMAGE.shape) - 0.5,
        lambda x: IMAGE if x is None else x,
        lambda x: [][1],
    ],
)
def test_what_is_no_mask_has_its_share_alone(run):
    drop = _drop_of(run)
    assert (drop.title, drop.share, drop.scale, drop.shape) == ("a", 0.3, 0.0, ())
    assert not drop.varies


def test_a_mask_that_never_changes_is_recognised():
    mask = np.random.default_rng(1).random((2048, 3, 2, 2)) >= 0.3
    drop = _drop_of(lambda x: x * mask / 0.7)
    assert (drop.scale, drop.varies) == (pytest.approx(1 / 0.7), 0.0)


def test_one_number_per_batch_counts_as_mask():
    rng = np.random.default_rng(1)
    drop = _drop_of(lambda x: x * (rng.random() >= 0.3) / 0.7)
    assert (drop.share, drop.shape, drop.scale) == (0.3, (1, 1, 1, 1), pytest.approx(1 / 0.7))


@pytest.mark.parametrize(("shape", "factor"), [((4, 1, 1, 1), 1.0), ((1, 1, 1, 1), 1 / 0.7)])
def test_a_branch_that_is_dropped_is_recognised(shape, factor):
    rng = np.random.default_rng(1)
    added = rng.normal(size=IMAGE.shape)
    layer = dataclasses.replace(LAYER, output=IMAGE + added)
    drop = _drop_of(lambda x: IMAGE + added * factor * (rng.random(shape) >= 0.3), layer)
    assert (drop.is_branch, drop.shape, drop.share) == (True, shape, 0.3)
    assert drop.scale == pytest.approx(factor)


@pytest.mark.parametrize(
    ("paths", "most", "further"),
    [(1, dropouts._MOST_BYTES, 31), (2, dropouts._MOST_BYTES, 63), (2, 100, 31)],
)
def test_several_dropped_paths_take_further_runs(monkeypatch, paths, most, further):
    """One path is recognised as a branch; further runs stop where outputs take much memory."""
    monkeypatch.setattr(dropouts, "_MOST_BYTES", most)
    rng = np.random.default_rng(1)
    added = rng.normal(size=(paths, *IMAGE.shape))
    layer = dataclasses.replace(LAYER, output=IMAGE + added.sum(0))

    def run(ones):
        kept = rng.random((paths, 1, 1, 1, 1)) >= 0.3
        return IMAGE + (added * kept).sum(0)

    drop = _drop_of(run, layer)
    assert (drop.further, drop.is_branch) == (further, paths == 1)


def test_what_runs_uncompiled_only_is_named():
    def make(name, ones, only, compiled):
        if compiled:
            raise TypeError("cannot be compiled")
        return lambda: ones * (np.random.random(ones.shape) >= 0.3)

    (drop,) = drops_of([("a", "p", 0.3)], [LAYER], make)
    assert (drop.share, drop.error) == (0.3, "TypeError: cannot be compiled")
