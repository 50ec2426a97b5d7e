"""Parameters are paired by name, else by what their layers are, their shapes, and who feeds
whom.
"""

import numpy as np
import pytest
from mindspore import nn

from resnet_fn.parity.pair.matching import Outline, match
from small_nets import cell, module, ones, t, torch

pytestmark = pytest.mark.usefixtures("device")

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 12, 12)).astype(np.float32)


def test_names_that_agree_up_to_leaf_names_decide():
    sources = {
        "bn.gamma": "bn.weight",
        "bn.beta": "bn.bias",
        "bn.moving_mean": "bn.running_mean",
        "bn.moving_variance": "bn.running_var",
        "fc.weight": "fc.weight",
    }
    ours = {**dict.fromkeys(sources, (4,)), "fc.weight": (2, 4)}
    theirs = {"fc.weight": (2, 4)} | dict.fromkeys([*sources.values()][:4], (4,))
    assert match(Outline(ours), Outline(theirs)).how == "names"
    assert pairs(ours, theirs) == (sources, ())
    problem = "fc.weight is (2, 4) in the port, (3, 4) in the reference"
    assert pairs(ours, {**theirs, "fc.weight": (3, 4)})[1] == (problem,)


@pytest.fixture
def matched(paired):
    return lambda net, reference: paired(net, reference, IMAGES, ())[0]


def pairs(ours, theirs, tied=(), constants=((), ())):
    of_port, of_reference = constants
    names = match(
        Outline(ours, constants=of_port), Outline(theirs, tied=tied, constants=of_reference)
    )
    return {name: str(source) for name, source in names.parameters.items()}, names.problems


def test_a_weight_is_never_taken_for_transposed():
    assert pairs({"fc.weight": (4, 4)}, {"fc.weight": (4, 4)}) == ({"fc.weight": "fc.weight"}, ())
    _, problems = pairs({"fc.weight": (2, 4)}, {"fc.weight": (4, 2)})
    assert problems == (
        "fc.weight is (2, 4) in the port, (4, 2) in the reference; if it is stored transposed, add "
        '{"fc.weight": {"from": "fc.weight", "transpose": [1, 0]}} to --map',
    )


def test_a_shared_array_may_have_two_names():
    table = {"embed.embedding_table": (5, 4)}
    theirs = {"embed.weight": (5, 4), "head.weight": (5, 4)}
    shared = [("embed.weight", "head.weight")]
    problem = "the reference's head.weight [5, 4] has no counterpart in the port"
    assert pairs(table, theirs)[1] == (problem,)
    source = {"embed.embedding_table": "embed.weight"}
    assert pairs(table, theirs, shared) == (source, ())
    copies = {**table, "head.weight": (5, 4)}
    assert pairs(copies, theirs, shared) == ({**source, "head.weight": "head.weight"}, ())


def test_constants_need_no_counterpart():
    ours, theirs = {"fc.weight": (2, 4), "table": (3,)}, {"fc.weight": (2, 4), "positions": (7,)}
    weight = {"fc.weight": "fc.weight"}
    assert len(pairs(ours, theirs)[1]) == 2
    assert pairs(ours, theirs, constants=({"table"}, {"positions"})) == (weight, ())
    both = {**weight, "table": "table"}
    assert pairs(ours, ours, constants=({"table"}, {"table"})) == (both, ())


def test_custom_layers_are_matched_by_their_parameters(matched):
    """MindCV's GRN between Dense layers is timm's GlobalResponseNorm between convolutions of one
    pixel.
    """

    norm = module(
        lambda self, x: x * self.weight[:, None, None] + self.bias[:, None, None],
        weight=t.Parameter(torch.ones(6)),
        bias=t.Parameter(torch.ones(6)),
    )
    grn = cell(
        lambda self, x: x * self.gamma + self.beta, gamma=ones(1, 1, 1, 6), beta=ones(1, 1, 1, 6)
    )
    channels_last = cell(lambda self, x: x.transpose(0, 2, 3, 1))
    net = nn.SequentialCell(channels_last, nn.Dense(3, 6), grn, nn.Dense(6, 4))
    reference = t.Sequential(t.Conv2d(3, 6, 1), norm, t.Conv2d(6, 4, 1))
    names = matched(net, reference)
    assert names.problems == ()
    assert {name: source.names[0] for name, source in names.parameters.items()} == {
        "1.weight": "0.weight",
        "1.bias": "0.bias",
        "2.gamma": "1.weight",
        "2.beta": "1.bias",
        "3.weight": "2.weight",
        "3.bias": "2.bias",
    }
    # Where one does not fit, the others are not called missing.
    reference[2] = t.Conv2d(6, 5, 1)
    assert matched(net, reference).problems == (
        "3 weight [4, 6], bias [4] has no counterpart in the reference",
        "the reference's 2 weight [5, 6], bias [5] has no counterpart in the port",
    )
