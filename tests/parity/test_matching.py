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
    ours = {
        "bn.gamma": (4,),
        "bn.beta": (4,),
        "bn.moving_mean": (4,),
        "bn.moving_variance": (4,),
        "fc.weight": (2, 4),
    }
    theirs = {
        "fc.weight": (2, 4),
        "bn.weight": (4,),
        "bn.bias": (4,),
        "bn.running_mean": (4,),
        "bn.running_var": (4,),
    }
    found = match(Outline(ours), Outline(theirs))
    assert (found.how, found.problems) == ("names", ())
    sources = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "fc.weight")
    assert {name: str(source) for name, source in found.parameters.items()} == dict(
        zip(ours, sources, strict=True)
    )
    found = match(Outline(ours), Outline({**theirs, "fc.weight": (3, 4)}))
    assert found.problems == ("fc.weight is (2, 4) in the port, (3, 4) in the reference",)


@pytest.fixture
def matched(paired):
    return lambda net, reference: paired(net, reference, IMAGES, ())[0]


def pairs(ours, theirs, tied=(), constants=((), ())):
    found = match(
        Outline(ours, constants=constants[0]), Outline(theirs, tied=tied, constants=constants[1])
    )
    return {name: str(source) for name, source in found.parameters.items()}, found.problems


def test_a_weight_is_never_taken_for_transposed():
    assert pairs({"fc.weight": (4, 4)}, {"fc.weight": (4, 4)}) == ({"fc.weight": "fc.weight"}, ())
    _, problems = pairs({"fc.weight": (2, 4)}, {"fc.weight": (4, 2)})
    assert problems == (
        "fc.weight is (2, 4) in the port, (4, 2) in the reference; if it is stored transposed, add "
        '{"fc.weight": {"from": "fc.weight", "transpose": [1, 0]}} to --map',
    )


def test_a_shared_array_may_have_two_names():
    one, two = {"embed.embedding_table": (5, 4)}, {"embed.weight": (5, 4), "head.weight": (5, 4)}
    shared = [("embed.weight", "head.weight")]
    assert pairs(one, two)[1] == (
        "the reference's head.weight [5, 4] has no counterpart in the port",
    )
    assert pairs(one, two, tied=shared) == ({"embed.embedding_table": "embed.weight"}, ())
    copies = {"embed.embedding_table": (5, 4), "head.weight": (5, 4)}
    assert pairs(copies, two, tied=shared) == (
        {"embed.embedding_table": "embed.weight", "head.weight": "head.weight"},
        (),
    )


def test_constants_need_no_counterpart():
    ours, theirs = {"fc.weight": (2, 4), "table": (3,)}, {"fc.weight": (2, 4), "positions": (7,)}
    assert len(pairs(ours, theirs)[1]) == 2
    assert pairs(ours, theirs, constants=({"table"}, {"positions"})) == (
        {"fc.weight": "fc.weight"},
        (),
    )
    assert pairs(ours, ours, constants=({"table"}, {"table"})) == (
        {"fc.weight": "fc.weight", "table": "table"},
        (),
    )


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
    found = matched(net, reference)
    assert found.problems == ()
    names = ("1.weight", "1.bias", "2.gamma", "2.beta", "3.weight", "3.bias")
    sources = [f"{layer}.{leaf}" for layer in range(3) for leaf in ("weight", "bias")]
    assert {name: source.names[0] for name, source in found.parameters.items()} == dict(
        zip(names, sources, strict=True)
    )
    # Where one does not fit, the others are not called missing.
    reference[2] = t.Conv2d(6, 5, 1)
    assert matched(net, reference).problems == (
        "3 weight [4, 6], bias [4] has no counterpart in the reference",
        "the reference's 2 weight [5, 6], bias [5] has no counterpart in the port",
    )
