"""A recipe's net: for the data's classes and channels, from the recipe's seed."""

import dataclasses

import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.digits import load_digits
from resnet_fn.models import build_net

pytestmark = pytest.mark.usefixtures("device")

SPEC = load_digits().input
RECIPE = Recipe(model="resnet8", image_size=8, zero_init_residual=True)


def bits(net):
    return {parameter.name: parameter.asnumpy().tobytes() for parameter in net.get_parameters()}


def test_it_fits_the_data():
    net = build_net(RECIPE, dataclasses.replace(SPEC, channels=2, classes=("a", "b", "c")))
    assert net(Tensor(np.zeros((5, 2, 8, 8), np.float32))).shape == (5, 3)
    assert not net.layer1[0].bn2.gamma.asnumpy().any()


def test_the_seed_alone_decides_the_weights():
    first = bits(build_net(RECIPE, SPEC))
    assert bits(build_net(RECIPE, SPEC)) == first
    other = bits(build_net(dataclasses.replace(RECIPE, seed=1), SPEC))
    assert other["conv1.weight"] != first["conv1.weight"]


def test_a_net_that_fits_one_size_is_not_evaluated_at_another():
    recipe = Recipe(model="genet50", image_size=32, eval_size=48)
    message = r"^model: genet50 fits one image size only, and is evaluated at 48 instead of 32; give --eval-size 32$"
    with pytest.raises(ValueError, match=message):
        build_net(recipe, SPEC)
