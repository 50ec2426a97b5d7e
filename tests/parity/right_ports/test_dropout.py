"""Right ports with dropout, and with layers that are dropped, agree."""

from types import SimpleNamespace

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import doubt_of, title_of_stage
from small_nets import (
    ADAMW,
    DropPath,
    Ours,
    Pair,
    PortedPath,
    Theirs,
    agrees,
    cell,
    draw,
    labels,
    ladder_of,
    ours,
    stage_of,
    t,
    theirs,
    tokens,
    torch,
    vector,
    vectors,
)

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")


def test_dropout_may_move_past_a_relu():
    """Which computes the same."""
    Pair(
        vector,
        lambda: Theirs(
            t.Linear(8, 8), t.Dropout(0.4), t.ReLU(), t.Linear(8, 8), t.ReLU(), t.Dropout(0.4)
        ),
        lambda: Ours(
            nn.Dense(8, 8),
            nn.ReLU(),
            nn.Dropout(p=0.4),
            nn.Dense(8, 8),
            nn.Dropout(p=0.4),
            nn.ReLU(),
        ),
    ).climb()


def layer_drop(share):
    """Layers that are skipped at random in training, by a share in a configuration."""

    def forward(self, x):
        for layer in self.part:
            if not (self.training and torch.rand([]) < self.config.layerdrop):
                x = torch.sigmoid(layer(x))
        return self.head(x)

    return theirs(
        forward, *(t.Linear(8, 8) for _ in range(3)), config=SimpleNamespace(layerdrop=share)
    )


def ported_layer_drop() -> nn.Cell:
    def construct(self, x):
        for layer in self.part:
            if not (self.training and self.layerdrop > 0 and np.random.uniform() < self.layerdrop):
                x = ops.sigmoid(layer(x))
        return self.head(x)

    return ours(construct, *(nn.Dense(8, 8) for _ in range(3)), layerdrop=0.5)


@pytest.mark.parametrize("share", [0.5, torch.tensor(0.5)])
def test_layers_dropped_with_equal_shares_agree(share):
    ladder = agrees(ported_layer_drop(), layer_drop(share), vectors(), ADAMW)
    stage = stage_of(ladder, "dropout")
    assert [(item.port, item.reference) for item in stage.differences] == [(0.5, 0.5)]


def test_layers_dropped_by_a_tensor_are_undecided():
    """No crash: what is random is named."""
    module = layer_drop(torch.tensor([0.5]))
    ladder = ladder_of(ported_layer_drop(), module, vectors(), ADAMW)
    assert ladder.first_stage is None
    assert "random" in doubt_of(ladder.undecided[-1])


def fused(share: float) -> Ladder:
    """The share of a dropout layer that does not run is a function's; the port drops `share`."""

    def forward(self, x):
        p = self.drop.p if self.training else 0.0
        return self.head(self.part(F.scaled_dot_product_attention(x, x, x, dropout_p=p)).mean(1))

    def construct(self, x):
        scores = self.drop(ops.softmax(ops.bmm(x, x.swapaxes(1, 2)) / 8**0.5, -1))
        return self.head(self.part(ops.bmm(scores, x)).mean(1))

    module = theirs(forward, t.Linear(8, 8), t.Dropout(0.2), drop=t.Dropout(0.1))
    net = ours(construct, nn.Dense(8, 8), nn.Dropout(p=0.2), drop=nn.Dropout(p=share))
    return ladder_of(net, module, tokens())


def test_dropout_inside_the_references_fused_attention_is_compared():
    assert fused(0.1).agrees
    assert title_of_stage(fused(0.3).first_stage) == "dropout"


def test_drawing_in_evaluation_on_both_sides_is_undecided():
    """As a variational encoder."""

    def forward(self, x):
        x = self.part(x)
        return self.head(x + torch.randn_like(x))

    def construct(self, x):
        x = self.part(x)
        return self.head(x + Tensor(draw(*x.shape)))

    ladder = ladder_of(ours(construct, nn.Sigmoid()), theirs(forward, t.Sigmoid()), vectors())
    assert ladder.first_stage is None, table(ladder)
    assert {"eval forward", "loss"} <= {title_of_stage(stage) for stage in ladder.undecided}
    assert "dropout" not in table(ladder)


def test_a_right_port_with_a_dropout_branch_agrees():
    """One dropout layer that runs twice is two in the port; the first update is made once more,
    with the same masks.
    """

    def forward(self, x):
        branch = self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)))))
        return self.head((x + self.path(branch)).mean(1))

    def construct(self, x):
        branch = self.down(self.of_up(ops.gelu(self.up(x), approximate="none")))
        return self.head((x + self.skip(self.of_down(branch))).mean(1))

    layers = {"fc1": t.Linear(8, 16), "fc2": t.Linear(16, 8), "drop": t.Dropout(0.1)}
    module = theirs(forward, **layers, path=DropPath(0.3))
    drops = {"of_up": nn.Dropout(p=0.1), "of_down": nn.Dropout(p=0.1), "skip": PortedPath(0.3)}
    net = ours(construct, up=nn.Dense(8, 16), down=nn.Dense(16, 8), **drops)
    batches = [(draw(6, 5, 8), labels(6)) for _ in range(2)]
    use = ADAMW.changed(clip_norm=0.1)
    ladder = agrees(net, module, batches, use, quick=False, mode="graph")
    for name in ("train forward", "train layers", "loss", "gradients", "change by update 1"):
        assert stage_of(ladder, f"{name}, with dropout").differences
    assert len(stage_of(ladder, "dropout").differences) == 3
    worst = [stage_of(ladder, title).worst.reference for title in ("loss", "loss, with dropout")]
    assert worst[0] != worst[1]


def test_dropout_agrees_with_channels_last():
    module = t.Sequential(
        t.Conv2d(3, 4, 1),
        t.Dropout(0.3),
        t.Conv2d(4, 4, 1),
        t.Dropout2d(0.3),
        t.Flatten(),
        t.Linear(80, 3),
    )

    def construct(self, x):
        """The first layers have channels last; a dropout of channels is written for that."""
        x = self.b(self.drop(self.a(x.transpose(0, 2, 3, 1))))
        return self.head(self.channels(x.transpose(0, 3, 1, 2)).reshape(-1, 80))

    net = cell(
        construct,
        a=nn.Dense(3, 4),
        drop=nn.Dropout(p=0.3),
        b=nn.Dense(4, 4),
        channels=nn.Dropout2d(0.3),
        head=nn.Dense(80, 3),
    )
    ladder = agrees(net, module, [(draw(4, 3, 5, 4), labels(4))] * 2, accumulate=2)
    assert stage_of(ladder, "gradients, with dropout").differences


def test_dropout_inside_an_lstm_is_compared_by_share():
    def forward(self, x):
        return self.head(self.drop(self.lstm(x)[0].mean(1)))

    lstm, ported = (kind(8, 8, 2, batch_first=True, dropout=0.2) for kind in (t.LSTM, nn.LSTM))
    net = ours(forward, lstm=ported, drop=nn.Dropout(p=0.1))
    ladder = agrees(net, theirs(forward, lstm=lstm, drop=t.Dropout(0.1)), tokens())
    note = stage_of(ladder, "dropout").note.replace("dropout", "")
    assert ("lstm" in note, "drop" in note) == (True, False)
    assert stage_of(ladder, "gradients, with dropout").differences


@pytest.mark.parametrize(("share", "verdict"), [(0.2, "ok"), (0.3, "DIFFERS")])
def test_a_ports_fused_attention_dropout_is_compared(share, verdict):
    """The reference's mask has no place in the port: the share alone is compared, and a line names
    it. The other dropout has the same mask on both sides.
    """

    def forward(self, x):
        q, k, v = (part(x).reshape(4, 5, 2, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = self.attn_drop((q @ k.transpose(2, 3) / 2).softmax(-1)) @ v
        return self.head(self.drop(self.out_proj(mixed.transpose(1, 2).reshape(4, 5, 8))).mean(1))

    def construct(self, x):
        return self.head(self.drop(self.attn(x, x, x)[0]).mean(1))

    layers = {name: t.Linear(8, 8) for name in ("q", "k", "v", "out_proj")}
    module = theirs(forward, **layers, attn_drop=t.Dropout(0.2), drop=t.Dropout(0.1))
    net = ours(
        construct,
        attn=nn.MultiheadAttention(8, 2, dropout=share, batch_first=True),
        drop=nn.Dropout(p=0.1),
    )
    ladder = ladder_of(net, module, tokens())
    stage = stage_of(ladder, "dropout")
    assert stage.verdict == verdict, table(ladder)
    assert ladder.agrees == ("attn" in stage.note) == (verdict == "ok")
    assert stage_of(ladder, "gradients, with dropout").differences
