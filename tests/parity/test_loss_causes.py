"""Why a loss or a gradient differs is named: a factor, another loss, a detached tensor."""

import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.show.titles import title_of_stage
from small_nets import draw, ladder_of, ours, t, theirs, torch

pytestmark = pytest.mark.usefixtures("device")

F = torch.nn.functional
SHAPE = 6, 3, 4, 4


def hints(reference_loss, loss):
    """The first stage, and its causes, for nets that differ in the loss only."""

    def forward(net, x):
        return net.head(x).reshape(SHAPE)

    labels = draw(*SHAPE), np.random.random((6, 4, 4)) < 0.3
    sides = ours(forward, head=nn.Dense(8, 48)), theirs(forward, head=t.Linear(8, 48))
    losses = {"reference_loss": reference_loss, "loss": loss}
    ladder = ladder_of(*sides, [(draw(6, 8), labels)] * 2, quick=False, **losses)
    stage = ladder.first_stage
    return title_of_stage(stage), "\n".join(stage.hints)


def squares(y, labels):
    return F.mse_loss(y, labels[0])


def masked_mean(y, labels):
    mask = labels[1].to(y.dtype)
    return (F.smooth_l1_loss(y, labels[0], reduction="none").mean(1) * mask).sum() / mask.sum()


def chosen_mean(y, labels):
    mask = labels[1].unsqueeze(1).expand_as(y)
    return F.l1_loss(y[mask], labels[0][mask])


def smooth(y, labels, beta):
    d = ops.abs(y - labels[0])
    return ops.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)


def positives(labels, y):
    return labels[1].astype(y.dtype)


LOSSES = {
    "mean, a factor of 288 = 6·3·4·4": (
        squares,
        lambda y, labels: ((y - labels[0]) ** 2).sum(),
    ),
    "multiplied by 48 = 3·4·4": (
        squares,
        lambda y, labels: ((y - labels[0]) ** 2).sum() / len(y),
    ),
    "the loss and every gradient are the reference's multiplied by 0.5": (
        squares,
        lambda y, labels: 0.5 * ((y - labels[0]) ** 2).mean(),
    ),
    "beta 1 for 0.1111": (
        lambda y, labels: F.smooth_l1_loss(y, labels[0], beta=1 / 9),
        lambda y, labels: smooth(y, labels, 1.0).mean(),
    ),
    "divided by 96 = 6·4·4 for": (
        masked_mean,
        lambda y, labels: (smooth(y, labels, 1.0).mean(1) * positives(labels, y)).mean(),
    ),
    "l1_loss divided by 288 = 6·3·4·4 for": (
        chosen_mean,
        lambda y, labels: (ops.abs(y - labels[0]) * positives(labels, y).expand_dims(1)).mean(),
    ),
}


@pytest.mark.parametrize("words", LOSSES)
def test_what_is_wrong_with_a_loss_is_named(words):
    stage, text = hints(*LOSSES[words])
    assert stage == "loss"
    assert words in text
    assert "permuted" not in text


def test_a_gradient_that_passes_a_detach_is_named():
    def reference(y, labels):
        weight = torch.sigmoid(y).detach()
        return (weight * (y - labels[0]) ** 2).mean()

    stage, text = hints(reference, lambda y, labels: (ops.sigmoid(y) * (y - labels[0]) ** 2).mean())
    assert stage.startswith("gradients")
    assert "detach left out, so the gradient passes" in text


def test_a_gradient_that_is_stopped_is_named():
    def reference(y, labels):
        return (torch.sigmoid(y) * (y - labels[0]) ** 2).mean()

    def loss(y, labels):
        return (ops.stop_gradient(ops.sigmoid(y)) * (y - labels[0]) ** 2).mean()

    stage, text = hints(reference, loss)
    assert stage.startswith("gradients")
    assert "no gradient to argument 1 of" in text
