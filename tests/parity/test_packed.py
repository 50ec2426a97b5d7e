"""Packed sequences in the reference, padded ones in the port: compared at their valid steps."""

import mindspore
import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.record.packed import padded
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import agrees, draw, ladder_of, t, torch

pytestmark = pytest.mark.usefixtures("device")

rnn = torch.nn.utils.rnn


class Tagger(t.Module):
    def __init__(self, kind="GRU", batch_first=True, total=5):
        super().__init__()
        self.rnn = getattr(t, kind)(8, 6, batch_first=batch_first)
        self.head, self.first, self.total = t.Linear(6, 3), batch_first, total

    def forward(self, x, lengths):
        x = x if self.first else x.transpose(0, 1)
        packed = rnn.pack_padded_sequence(x, lengths, self.first, enforce_sorted=False)
        x, _ = rnn.pad_packed_sequence(self.rnn(packed)[0], self.first, total_length=self.total)
        return self.head(x if self.first else x.transpose(0, 1))


class PortedTagger(nn.Cell):
    """Pads; `step` moves what the recurrent layer returns."""

    def __init__(self, kind="GRU", step=0, clean=True):
        super().__init__()
        self.rnn, self.head = getattr(nn, kind)(8, 6, batch_first=True), nn.Dense(6, 3)
        self.step, self.clean = step, clean

    def construct(self, x, lengths):
        if self.clean:
            x, _ = self.rnn(x, None, lengths.astype(mindspore.int32))
        else:
            x, _ = self.rnn(x)
            valid = ops.arange(x.shape[1]) < lengths.expand_dims(1)
            x = x * valid.astype(x.dtype).expand_dims(2)
        if self.step:
            x = ops.cat((x[:, self.step :], x[:, : self.step]), 1)
        return self.head(x)


def sentences(*lengths):
    tags = np.random.randint(0, 3, (4, 5)).astype(np.int32)
    for row, length in zip(tags, lengths, strict=True):
        row[length:] = -100
    return (draw(4, 5, 8), np.array(lengths)), tags


LOSSES = {
    "reference_loss": lambda x, y: t.functional.cross_entropy(
        x.flatten(0, 1), y.flatten().long(), ignore_index=-100
    ),
    "loss": lambda x, y: ops.cross_entropy(x.reshape(-1, 3), y.reshape(-1), ignore_index=-100),
}
BATCHES = ((5, 3, 4, 2), (1, 5, 5, 3))


@pytest.mark.parametrize(
    ("kind", "batch_first", "total", "clean"),
    [("GRU", True, 5, True), ("LSTM", False, None, False)],
)
def test_a_padded_tagger_agrees_with_a_packed_one(kind, batch_first, total, clean):
    batches = [sentences(*lengths) for lengths in BATCHES]
    net, reference = PortedTagger(kind, clean=clean), Tagger(kind, batch_first, total)
    ladder = agrees(net, reference, batches, **LOSSES)
    assert {layer.name for layer in ladder.layers} == {"rnn", "head"}


class PackedTagger(Tagger):
    """Returns packed sequences."""

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        x, *places = self.rnn(packed)[0]
        return rnn.PackedSequence(self.head(x), *places)


def loss_of_packed(x, y):
    return LOSSES["reference_loss"](rnn.pad_packed_sequence(x, True, total_length=5)[0], y)


PACKED = {**LOSSES, "reference_loss": loss_of_packed}


@pytest.mark.parametrize("step", [0, 1])
def test_returned_packed_sequences_are_compared_without_padding(step):
    """The port pads: only steps that a sequence has are compared."""
    batches = [sentences(*lengths) for lengths in BATCHES]
    ladder = ladder_of(PortedTagger(step=step), PackedTagger(), batches, **PACKED)
    assert ladder.agrees is not bool(step)
    line = "loss alone: not compared, for the reference returns packed sequences"
    assert line in ladder.coverage.not_exercised
    assert step == 0 or title_of_stage(ladder.first_stage) == "eval forward"


class LeakyTagger(PackedTagger):
    def forward(self, x, lengths):
        x, *places = super().forward(x, lengths)
        return rnn.PackedSequence(t.functional.leaky_relu(x, 0.2), *places)


class PortedLeakyTagger(PortedTagger):
    def construct(self, x, lengths):
        return ops.leaky_relu(super().construct(x, lengths), 0.01)


def test_a_cause_is_searched_for_in_packed_outputs():
    batches = [sentences(*BATCHES[0])]
    ladder = ladder_of(PortedLeakyTagger(), LeakyTagger(), batches, quick=False, **PACKED)
    (line,) = ladder.first_stage.hints
    assert line.endswith("leaky ReLU 0.01 for leaky_relu in the port")
    assert not [line for line in ladder.changes if "probes" in line]


def test_a_wrong_step_of_a_tagger_is_seen():
    ladder = ladder_of(PortedTagger(step=1), Tagger(), [sentences(*BATCHES[0])], **LOSSES)
    assert title_of_stage(ladder.first_stage) == "eval forward"
    assert ladder.first_layer.name == "head"


@pytest.mark.parametrize("are_sorted", [False, True])
def test_packed_sequences_are_padded_as_torch_pads(are_sorted):
    lengths = [4, 3, 2, 2] if are_sorted else [2, 4, 2, 3]
    x = torch.from_numpy(draw(4, 5, 3))
    packed = rnn.pack_padded_sequence(x, torch.tensor(lengths), True, enforce_sorted=are_sorted)
    array, valid = padded(packed)
    expected, ends = rnn.pad_packed_sequence(packed, batch_first=True)
    np.testing.assert_array_equal(array, expected.numpy())
    np.testing.assert_array_equal(valid, np.arange(4) < ends.numpy()[:, None])
