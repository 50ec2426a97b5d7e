"""MindSpore's side: what is recorded of the compiled step, of dropout, of MindSpore's own
optimizers.
"""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops

from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.mindspore_cell import with_inputs
from resnet_fn.parity.record.mindspore_optimizer import as_functions
from resnet_fn.parity.record.mindspore_side import MindSporeSide
from resnet_fn.parity.record.rates import without_dropout
from resnet_fn.parity.record.record import record
from small_nets import SGD, cell, custom, draw, labels, vector

pytestmark = pytest.mark.usefixtures("device")


class Dropout(nn.Cell):
    """One share in two attributes, of which the second is used."""

    def __init__(self):
        super().__init__()
        self.p, self.keep_prob = np.float32(0.25), 0.75

    def construct(self, x):
        return x * (ops.rand_like(x) < self.keep_prob) / self.keep_prob


def test_every_dropout_becomes_0_and_is_restored():
    net = custom(
        "Net",
        keeps=nn.Dropout(0.9),
        drops=nn.Dropout(p=0.4),
        planes=nn.Dropout2d(0.5),
        signals=nn.Dropout1d(0.25),
        mint=mint.nn.Dropout(0.3),
        none=nn.Dropout(p=0.0),
        attn=nn.MultiheadAttention(4, 2, dropout=0.1),
        lstm=nn.LSTM(4, 4, 2, dropout=0.3),
        path=custom("DropPath", drop_prob=0.2),
        kept=custom("DropPath", keep_prob=0.75),
        depth=custom("StochasticDepth", drop_prob=0.2),  # by its name, for it has no `p`
        own=Dropout(),
    ).set_train(True)
    x, image = Tensor(draw(2, 3, 4)), Tensor(draw(2, 3, 4, 4))
    with without_dropout(net.cells_and_names()) as shares:
        assert shares == [
            ("keeps", "p", 0.1),
            ("drops", "p", 0.4),
            ("planes", "p", 0.5),
            ("signals", "p", 0.25),
            ("mint", "p", 0.3),
            ("attn", "dropout", 0.1),
            ("lstm", "dropout", 0.3),
            ("lstm.dropout_op", "p", 0.3),
            ("path", "drop_prob", 0.2),
            ("kept", "p", 0.25),
            ("depth", "p", 0.2),
            ("own", "p", 0.25),
        ]
        assert net.depth.drop_prob == 0
        for layer in (net.keeps, net.drops, net.signals, net.mint, net.own):
            assert (layer(x) == x).all()
        assert (net.planes(image) == image).all()
        assert (net.attn(x, x, x)[0] == net.attn(x, x, x)[0]).all()
        assert (net.lstm(x)[0] == net.lstm(x)[0]).all()
    assert (net.keeps.keep_prob, net.drops.p) == (0.9, 0.4)
    assert (net.lstm.dropout, net.depth.drop_prob) == (0.3, 0.2)
    assert (net.own.p, net.own.keep_prob) == (0.25, 0.75)
    assert not (net.drops(x) == x).all()
    assert not (net.lstm(x)[0] == net.lstm(x)[0]).all()


def test_unusable_inputs_and_optimizers_are_rejected():
    named = cell(lambda self, x, **more: x + more.get("mask", 0))
    message = "construct takes x, more, but not the input 'mask'; add it to construct"
    with pytest.raises(ValueError, match=message):
        with_inputs(named, {"x": np.ones(2), "mask": np.ones(2)})
    net, other = (nn.SequentialCell(nn.Dense(3, 3)) for _ in range(2))
    schedule = nn.Momentum(net.trainable_params(), nn.ExponentialDecayLR(0.1, 0.9, 4), 0.9)
    side = MindSporeSide(net, plan_of(SGD, [(draw(4, 3), labels(4))]), optimizer=schedule)
    message = "optimizer: Momentum has a learning rate schedule; build it with a constant"
    with pytest.raises(ValueError, match=message):
        record(side, probes=False)
    message = "optimizer: Momentum updates .*weight.* which the net does not train"
    with pytest.raises(ValueError, match=message):
        as_functions(nn.Momentum(other.trainable_params(), 0.1, 0.9), net)


def counting():
    """A net that trains an integer, before its other parameters."""

    def construct(self, x):
        return self.head(x)

    return cell(construct, count=Parameter(Tensor([3], mindspore.int32)), head=nn.Dense(8, 3))


@pytest.mark.parametrize("given", [True, False])
def test_updates_made_again_keep_trained_integers(given):
    net = counting()
    optimizer = nn.SGD(net.head.trainable_params(), 0.1) if given else None
    side = MindSporeSide(net, plan_of(SGD, [vector()] * 2), optimizer=optimizer)
    run = record(side, probes=False).trace.run
    again = side.updates_again_uncompiled(None)
    assert run.gradients.keys() == again.gradients.keys() == {"head.weight", "head.bias"}
    for name, value in run.after[-1].items():
        np.testing.assert_allclose(again.after[-1][name], value, rtol=1e-5, atol=1e-7)
    assert net.count.requires_grad


def test_no_loss_is_chosen_before_dropout_is_off():
    side = MindSporeSide(counting(), plan_of(SGD, [vector()]))
    with pytest.raises(AssertionError, match="enter `without_dropout` before"):
        side.loss(None, None)
    with pytest.raises(AssertionError, match="enter `without_dropout` before"):
        side.prepare_updates()
