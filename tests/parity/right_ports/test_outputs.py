"""Right ports with unusual inputs, outputs, labels and losses agree."""

import collections

import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.show.titles import title_of_stage
from small_nets import (
    Ours,
    Pair,
    Theirs,
    agrees,
    draw,
    labels,
    ladder_of,
    ours,
    stage_of,
    t,
    theirs,
    torch,
    vector,
    vectors,
)

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")


Named = collections.namedtuple("Named", "best hidden logits")


def heads(self, x):
    """Classes, and in training boxes, which have not the batch first."""
    x = self.part(x)
    return (self.head(x), self.boxes(x).T) if self.training else self.head(x)


def ported_heads(self, x):
    x = self.part(x)
    return (self.head(x), self.where(x).T) if self.training else self.head(x)


def heads_loss(outputs, targets):
    boxes = ops.smooth_l1_loss(outputs[1].T, targets[1], reduction="mean")
    return (ops.cross_entropy(outputs[0], targets[0]) + boxes).reshape((1,))


def reference_heads_loss(outputs, targets):
    boxes = F.smooth_l1_loss(outputs[1].T, targets[1])
    return (F.cross_entropy(outputs[0], targets[0].long()) + boxes).reshape(1)


def test_a_right_port_with_other_outputs_in_training():
    """Its loss has the shape [1]."""
    Pair(
        lambda: (draw(6, 8), (labels(6), draw(6, 4))),
        lambda: theirs(heads, t.Linear(8, 8), t.Tanh(), boxes=t.Linear(8, 4)),
        lambda: ours(ported_heads, nn.Dense(8, 8), nn.Tanh(), where=nn.Dense(8, 4)),
        options={"loss": heads_loss, "reference_loss": reference_heads_loss, "accumulate": 2},
    ).climb_compiled()


def ordinal(module):
    """K levels passed: labels are 0 … K."""

    def loss(logits, labels):
        levels = module.arange(logits.shape[1]) < labels[:, None]
        return (logits.sigmoid() - levels.float()).pow(2).mean()

    return loss


ORDINAL = {"loss": ordinal(ops), "reference_loss": ordinal(torch)}


def by_name(n, ids, mask=None, types=None, scale: float = 0.5):
    return n.head(scale * (ids + types))


def sequence_first(n, x, time):
    return n.head((x * time).mean(0))


PORTS = {
    "inputs by name, which are no prefix": Pair(
        lambda: ({"types": draw(6, 8), "ids": draw(6, 8)}, labels(6)),
        lambda: theirs(by_name),
        lambda: ours(by_name),
    ),
    "sequence first, a scalar, and no labels": Pair(
        lambda: ((draw(5, 4, 8), np.array(0.5, np.float32)), None),
        lambda: theirs(sequence_first),
        lambda: ours(sequence_first),
        options=dict.fromkeys(("loss", "reference_loss"), lambda outputs, _: (outputs**2).mean()),
    ),
    "a graph: nodes and edges, of other numbers": Pair(
        lambda: ((draw(5, 8), np.random.randint(0, 5, (2, 7)).astype(np.int32)), labels(5)),
        lambda: theirs(
            lambda n, x, edges: n.head(x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]))
        ),
        lambda: ours(
            lambda n, x, edges: n.head(
                x + ops.index_add(ops.zeros_like(x), edges[1], x[edges[0]], 0)
            )
        ),
    ),
    "labels that are no class": Pair(
        lambda: (draw(6, 8), np.array([3, 0, 1, 2, 3, 1], np.int32)), Theirs, Ours, options=ORDINAL
    ),
    "a named tuple, without a loss": Pair(
        vector,
        lambda: theirs(lambda n, x: Named(x.argmax(1), None, n.head(x))),
        lambda: ours(lambda n, x: {"logits": n.head(x), "best": x.argmax(1)}),
    ),
}


@pytest.mark.parametrize("name", PORTS)
def test_each_right_port_agrees(name):
    PORTS[name].climb()


class Output(collections.OrderedDict):
    """As the outputs of transformers: a dict with attributes."""

    def __getattr__(self, name: str):
        return self[name]


class Cache:
    """Keys and values in an object of its own."""


def test_outputs_in_dict_and_tuple_are_paired():
    """Without a loss: the recipe's, of `logits`.

    Outputs are paired by order and shape; what we have more is named.
    """

    def forward(self, x):
        hidden = self.part(x)
        return Output(logits=self.head(hidden), past_key_values=Cache(), hidden_states=(x, hidden))

    def construct(self, x):
        hidden = self.part(x)
        return self.head(hidden), (hidden[:, :4], hidden[:, 4:]), (x, hidden)

    module = theirs(forward, t.Linear(8, 8), t.Sigmoid())
    ladder = agrees(ours(construct, nn.Dense(8, 8), nn.Sigmoid()), module, vectors())
    for mode in ("eval", "train"):
        assert len(stage_of(ladder, f"{mode} forward").differences) == 3
    assert "logits 1 0" in stage_of(ladder, "eval forward").note


def test_outputs_and_labels_that_mismatch_are_named():
    nets = Ours(nn.Sigmoid()), Theirs(t.Sigmoid())
    with pytest.raises(ValueError, match=r"boxes.*--loss"):
        ladder_of(nets[0], theirs(lambda self, x: Output(boxes=self.head(x), scores=x)), vectors())
    with pytest.raises(ValueError, match=r"\[6, 3\].*\[5\].*--loss"):
        ladder_of(*nets, [(draw(6, 8), labels(5))])


def test_a_single_drawn_number_is_no_constant():
    """The bias of Linear(8, 1), whose number is drawn; MindSpore's Dense draws it likewise.

    No label is a class.
    """
    net, module = Ours(nn.Sigmoid(), classes=1), Theirs(t.Sigmoid(), classes=1)
    batches = [(draw(6, 8), np.array([1, 0, 1, 1, 0, 1], np.int32))] * 2
    agrees(net, module, batches, initialisation=True, **ORDINAL)
    net = Ours(nn.Sigmoid(), classes=1)
    ops.assign(net.head.bias, ops.zeros_like(net.head.bias))
    ladder = ladder_of(net, module, batches, initialisation=True, **ORDINAL)
    assert title_of_stage(ladder.first_stage) == "initialisation"


def test_a_reference_may_write_into_its_input():
    """And whose ReLU writes into what the layer before it gave."""

    def forward(self, x):
        x += 1
        return self.head(self.part(x))

    def construct(self, x):
        return self.head(self.part(x + 1))

    batches = vectors()
    kept = [batch[0].copy() for batch in batches]
    net = ours(construct, nn.Dense(8, 8), nn.ReLU())
    ladder = agrees(net, theirs(forward, t.Linear(8, 8), t.ReLU(inplace=True)), batches)
    assert all(np.array_equal(one, batch[0]) for one, batch in zip(kept, batches, strict=True))
    assert all(item.input.relative < 1e-6 for item in ladder.layers)


def test_changes_of_batches_in_use_reach_no_side():
    """Both sides see them as they were at first."""
    batches = vectors()

    def loss(logits, labels):
        batches[0][0][0] += 1
        return F.cross_entropy(logits, labels.long())

    net = Ours(nn.Sigmoid())
    agrees(net, Theirs(t.Sigmoid()), batches, reference_loss=loss, loss=ops.cross_entropy)


def test_a_float64_failure_names_the_references_line():
    def forward(self, x):
        return (
            self.head(self.part(x)) if x.dtype == torch.float32 else F.linear(x, torch.ones(3, 5))
        )

    with pytest.raises(ValueError) as error:
        ladder_of(Ours(nn.Sigmoid()), theirs(forward, t.Sigmoid()), vectors())
    assert "F.linear(x, torch.ones(3, 5))" in str(error.value)
    assert __file__ in str(error.value)


def test_pure_rounding_beside_large_numbers_agrees():
    """A column that is 0 but for the reference's rounding."""

    def forward(self, x):
        y = self.head(self.part(x))
        rest = (y - y.mean(1, keepdim=True)).mean(1, keepdim=True)
        return {"logits": y, "table": torch.cat([2000 + y, rest], 1)}

    def construct(self, x):
        y = self.head(self.part(x))
        return {"logits": y, "table": ops.cat([2000 + y, ops.zeros_like(y[:, :1])], 1)}

    agrees(ours(construct, nn.Dense(8, 8)), theirs(forward, t.Linear(8, 8)), vectors())
