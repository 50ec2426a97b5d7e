"""Parameters are paired by name, else by what their layers are, their shapes, and who feeds whom."""

import numpy as np
import pytest

from resnet_fn.parity.match import match
from resnet_fn.parity.mindspore_side.record import record_cell
from resnet_fn.parity.torch_side.record import record_torch

pytestmark = pytest.mark.usefixtures("device")

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 12, 12)).astype(np.float32)


def test_names_that_agree_up_to_leaf_names_decide():
    ours = {"bn.gamma": (4,), "bn.beta": (4,), "bn.moving_mean": (4,), "bn.moving_variance": (4,), "fc.weight": (2, 4)}
    theirs = {"fc.weight": (2, 4), "bn.weight": (4,), "bn.bias": (4,), "bn.running_mean": (4,), "bn.running_var": (4,)}
    found = match(ours, theirs, [], [])
    assert (found.how, found.problems) == ("names", ())
    assert {name: str(source) for name, source in found.parameters.items()} == {
        "bn.gamma": "bn.weight",
        "bn.beta": "bn.bias",
        "bn.moving_mean": "bn.running_mean",
        "bn.moving_variance": "bn.running_var",
        "fc.weight": "fc.weight",
    }
    found = match(ours, {**theirs, "fc.weight": (3, 4)}, [], [])
    assert found.problems == ("fc.weight is (2, 4) here, (3, 4) in the reference",)


def matched(net, module):
    shapes = {name: tuple(parameter.shape) for name, parameter in net.parameters_and_names()}
    state = {name: tuple(value.shape) for name, value in module.state_dict().items() if "num_batches" not in name}
    # Equal weights are not needed: who feeds whom shows in one net alone.
    return match(shapes, state, record_cell(net, IMAGES, False), record_torch(module, IMAGES, False))


def test_other_names_in_another_order(ported, reference):
    found = matched(ported(), reference())
    assert (found.how, found.problems) == ("execution order and shapes", ())
    assert len(found.parameters) == 18
    pairs = {
        "stem.weight": "first.weight",
        "short.0.weight": "skip.0.weight",
        "short.1.gamma": "skip.1.weight",
        "body.weight": "inner.weight",
        "bn_b.moving_variance": "inner_norm.running_var",
        "classify.bias": "head.bias",
    }
    assert {name: str(found.parameters[name]) for name in pairs} == pairs
    assert found.layers["body"] == "inner"


def test_what_has_no_counterpart_is_named(ported, reference):
    assert matched(ported(classes=4), reference()).problems == (
        "classify weight [4, 8], bias [4] has no counterpart in the reference",
        "the reference's head weight [5, 8], bias [5] has no counterpart here",
    )
