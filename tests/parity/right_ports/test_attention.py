"""Right ports of attention, embeddings and recurrent layers agree: text, masks, positions."""

from typing import Any

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.trace.tree import Batch
from small_nets import (
    ADAMW,
    Pair,
    Theirs,
    agrees,
    cell,
    draw,
    labels,
    ladder_of,
    module,
    ones,
    ours,
    stage_of,
    t,
    theirs,
    tokens,
    torch,
    vector,
)

pytestmark = pytest.mark.usefixtures("device")


PLACES = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


def tied(self, ids, mask):
    """Token ids and a padding mask; the output layer shares the embedding's weight."""
    x = self.embed(ids) + self.positions
    x = self.norm(x + self.attn(x, x, x, key_padding_mask=~mask)[0])
    return self.head((self.lstm(x)[0] * mask[..., None]).sum(1))


def tied_net():
    net = module(
        tied,
        embed=t.Embedding(11, 8, padding_idx=0),
        attn=t.MultiheadAttention(8, 2, batch_first=True),
        norm=t.LayerNorm(8),
        lstm=t.LSTM(8, 4, bidirectional=True, batch_first=True),
        head=t.Linear(8, 11, bias=False),
    )
    net.register_buffer("positions", torch.from_numpy(PLACES))
    net.head.weight = net.embed.weight
    return net


def ported_tied(self, ids, mask):
    x = self.table(ids) + self.places
    x = self.ln(x + self.mixer(x, x, x, key_padding_mask=ops.logical_not(mask))[0])
    return self.out((self.rnn(x)[0] * mask.expand_dims(-1)).sum(1))


def ported_tied_net() -> nn.Cell:
    net = cell(
        ported_tied,
        table=nn.Embedding(11, 8, padding_idx=0),
        places=Tensor(PLACES),
        mixer=nn.MultiheadAttention(8, 2, batch_first=True),
        ln=nn.LayerNorm((8,), epsilon=1e-5),
        rnn=nn.LSTM(8, 4, bidirectional=True, batch_first=True),
        out=nn.Dense(8, 11, has_bias=False),
    )
    net.out.weight = net.table.embedding_table
    return net


def masked() -> Batch:
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], bool)
    return {"ids": np.random.randint(1, 11, (2, 6)).astype(np.int32), "mask": mask}, labels(2)


PAIRS = {
    "text, attention, tied weights": Pair(
        masked, tied_net, ported_tied_net, options={"mode": "pynative"}
    )
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_port_of_each_kind_agrees(name):
    PAIRS[name].climb_compiled()


def qkv(kind) -> dict[str, Any]:
    return {name: kind(8, 8) for name in "qkv"}


def tiny(module):
    for parameter in module.parameters():
        t.init.normal_(parameter, std=0.01)
    return module


def table_inside():
    return module(
        lambda self, x: self.body(x) + self.table,
        table=t.Parameter(torch.ones(8)),
        body=t.Linear(8, 8),
    )


def table_apart() -> nn.Cell:
    """MindCV's Swin has the position table in a cell of its own, torchvision in the attention."""
    bias = cell(lambda self: self.table * 1.0, table=ones(8))
    return cell(lambda self, x: self.body(x) + self.bias(), bias=bias, body=nn.Dense(8, 8))


LEAST = Tensor(np.triu(np.full((10, 10), np.finfo(np.float32).min), 1))


PORTS = {
    "a key bias under Adam: its gradient is 1e-10, its variance 1e-30, whose square is 0 in "
    "float32": Pair(
        lambda: (1e-2 * draw(4, 5, 8), labels(4)),
        lambda: tiny(
            theirs(
                lambda n, x: n.head(((n.q(x) @ n.k(x).mT).softmax(-1) @ n.v(x)).mean(1)),
                **qkv(t.Linear),
            )
        ),
        lambda: ours(
            lambda n, x: n.head(
                ops.bmm(ops.softmax(ops.bmm(n.q(x), n.k(x).swapaxes(1, 2)), -1), n.v(x)).mean(1)
            ),
            **qkv(nn.Dense),
        ),
        ADAMW,
    ),
    "a mask in the default dtype, of the least number of the input's, as in CLIP": Pair(
        lambda: (draw(4, 5, 8), labels(4)),
        lambda: theirs(
            lambda n, x: n.head(
                (
                    (x @ x.mT + torch.full((5, 5), torch.finfo(x.dtype).min).triu(1)).softmax(-1)
                    @ x
                ).mean(1)
            )
        ),
        lambda: ours(
            lambda n, x: n.head(
                ops.bmm(
                    ops.softmax(
                        ops.bmm(x, x.swapaxes(1, 2)) + LEAST[: x.shape[1], : x.shape[1]], -1
                    ),
                    x,
                ).mean(1)
            )
        ),
    ),
    "an EmbeddingBag": Pair(
        lambda: (np.random.randint(0, 9, (6, 4)), labels(6)),
        lambda: Theirs(t.EmbeddingBag(9, 8)),
        lambda: ours(lambda n, ids: n.head(n.part(ids).mean(1)), nn.Embedding(9, 8)),
    ),
    "a table in a part of its own, which is not compared with the whole layer": Pair(
        vector,
        lambda: theirs(lambda n, x: n.head(n.bias(x)), bias=table_inside()),
        lambda: ours(lambda n, x: n.head(n.body(x)), body=table_apart()),
    ),
    "an attention's projections, which are paired by their names whatever their order": Pair(
        vector,
        lambda: theirs(
            lambda n, x: n.head(n.to_q(x) + 2 * n.to_k(x) + 3 * n.to_v(x)),
            **{f"to_{name}": t.Linear(8, 8) for name in "qkv"},
        ),
        lambda: ours(
            lambda n, x: n.head(2 * n.key(x) + n.query(x) + 3 * n.value(x)),
            **{name: nn.Dense(8, 8) for name in ("query", "key", "value")},
        ),
    ),
}


@pytest.mark.parametrize("name", PORTS)
def test_each_right_port_agrees(name):
    PORTS[name].climb()


def steps(dtype) -> np.ndarray:
    """A table computed in `dtype`, then float32."""
    powers = dtype(10000) ** (np.arange(40, dtype=dtype).reshape(5, 8) / dtype(40))
    return (dtype(1) / powers).astype(np.float32)


@pytest.mark.parametrize(("more", "verdict"), [(0, "ok"), (1e-6, "DIFFERS")])
def test_a_table_may_differ_by_float32s_rounding(more, verdict):
    table = steps(np.float32) + np.float32(more)
    assert not np.array_equal(table, steps(np.float64))

    def forward(self, x):
        return self.head(self.part(x + self.table)).mean(1)

    net = theirs(forward, t.Sigmoid())
    net.register_buffer("table", torch.from_numpy(steps(np.float64)))
    port = ours(forward, nn.Sigmoid(), table=Parameter(Tensor(table), requires_grad=False))
    stage = stage_of(ladder_of(port, net, tokens()), "untrained arrays")
    assert (stage.verdict, "table" in stage.note) == (verdict, not more)
    words = "may compute this table in float64"
    assert [words in hint for hint in stage.hints] == [True] * (verdict == "DIFFERS")


@pytest.mark.parametrize("batch", [(), (1,)])
def test_positions_may_be_looked_up_per_sample(batch):
    batches = [(np.random.randint(0, 9, (6, 5)), labels(6)) for _ in range(2)]

    def each(self, x):
        places = torch.arange(5, device=x.device).expand(len(x), 5)
        return self.head(torch.tanh(self.token(x) + self.position(places)).mean(1))

    def once(self, x):
        return self.head(ops.tanh(self.token(x) + self.position(self.places)).mean(1))

    def net(first):
        places = Tensor(np.broadcast_to((np.arange(5) + first) % 5, (*batch, 5)).astype(np.int32))
        return ours(once, token=nn.Embedding(9, 8), position=nn.Embedding(5, 8), places=places)

    module = theirs(each, token=t.Embedding(9, 8), position=t.Embedding(5, 8))
    agrees(net(0), module, batches)
    assert ladder_of(net(1), module, batches).first_layer.name == "position"
