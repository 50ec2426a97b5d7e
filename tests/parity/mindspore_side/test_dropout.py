"""Nothing is dropped inside, and everything is as it was after."""

import numpy as np
import pytest
from mindspore import Tensor, mint, nn

from resnet_fn.parity.mindspore_side.dropout import without_dropout

pytestmark = pytest.mark.usefixtures("device")


class DropPath(nn.Cell):
    def __init__(self):
        super().__init__()
        self.drop_prob = 0.2


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.keeps = nn.Dropout(0.9)
        self.drops = nn.Dropout(p=0.4)
        self.planes = nn.Dropout2d(0.5)
        self.signals = nn.Dropout1d(0.25)
        self.mint = mint.nn.Dropout(0.3)
        self.none = nn.Dropout(p=0.0)
        self.attn = nn.MultiheadAttention(4, 2, dropout=0.1)
        self.lstm = nn.LSTM(4, 4, 2, dropout=0.3)
        self.path = DropPath()
        self.kept = DropPath()
        del self.kept.drop_prob
        self.kept.keep_prob = 0.75


def test_every_kind_of_dropout_is_set_to_0_and_put_back():
    net = Net().set_train(True)
    x = Tensor(np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32))
    image = Tensor(np.ones((2, 3, 4, 4), np.float32))
    with without_dropout(net) as found:
        assert found == [
            "keeps: p=0.1",
            "drops: p=0.4",
            "planes: p=0.5",
            "signals: p=0.25",
            "mint: p=0.3",
            "attn: dropout=0.1",
            "lstm: dropout=0.3",
            "lstm.dropout_op: p=0.3",
            "path: drop_prob=0.2",
            "kept: keep_prob=0.75",
        ]
        for layer in (net.keeps, net.drops, net.signals, net.mint):
            assert (layer(x) == x).all()
        assert (net.planes(image) == image).all()
        assert (net.attn(x, x, x)[0] == net.attn(x, x, x)[0]).all()
        assert (net.lstm(x)[0] == net.lstm(x)[0]).all()
    assert (net.keeps.keep_prob, net.drops.p, net.lstm.dropout, net.path.drop_prob) == (0.9, 0.4, 0.3, 0.2)
    assert not (net.drops(x) == x).all()
    assert not (net.lstm(x)[0] == net.lstm(x)[0]).all()
