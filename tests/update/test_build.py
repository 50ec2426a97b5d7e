"""Each recipe's optimizer, with the recipe's numbers."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn import recipes
from resnet_fn.config.fields import to_dict
from resnet_fn.config.recipe import Recipe, recipe_from_dict
from resnet_fn.update.optimizer import adam, adamw, lamb, lars, make_optimizer, momentum_sgd, weight_decay_groups

pytestmark = pytest.mark.usefixtures("device")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.norm = nn.Dense(4, 3), nn.LayerNorm([3])


def updated(net, optimizer):
    """The weights after two updates from the same start."""
    rng = np.random.default_rng(0)
    for parameter in net.trainable_params():
        ops.assign(parameter, Tensor(rng.normal(size=parameter.shape).astype(np.float32)))
    update = optimizer.update

    @mindspore.jit
    def step(*gradients):
        update(gradients, Tensor(0.1, mindspore.float32))

    for _ in range(2):
        step(*(Tensor(rng.normal(size=p.shape).astype(np.float32)) for p in net.trainable_params()))
    return [parameter.asnumpy() for parameter in net.trainable_params()]


@pytest.mark.parametrize(
    ("fields", "make"),
    [
        ({"optimizer": "sgd", "nesterov": True}, lambda groups: momentum_sgd(groups, 0.8, True)),
        ({"optimizer": "adam", "beta2": 0.9}, lambda groups: adam(groups, 0.8, 0.9, 1e-8)),
        ({"optimizer": "adamw", "epsilon": 0.1}, lambda groups: adamw(groups, 0.8, 0.999, 0.1)),
        ({"optimizer": "lars", "trust_coefficient": 0.1}, lambda groups: lars(groups, 0.8, 0.1)),
        ({"optimizer": "lamb"}, lambda groups: lamb(groups, 0.8, 0.999, 1e-6)),
        ({"optimizer": "lamb", "beta2": 0.9, "epsilon": 0.1}, lambda groups: lamb(groups, 0.8, 0.9, 0.1)),
    ],
)
@pytest.mark.parametrize("decay_all", [False, True])
def test_the_recipes_optimizer_has_its_numbers(fields, make, decay_all):
    net = Net()
    recipe = Recipe(**{"nesterov": False, "momentum": 0.8, "weight_decay": 0.3, "decay_all": decay_all, **fields})
    expected = updated(net, make(weight_decay_groups(net, 0.3, decay_all)))
    for ours, theirs in zip(updated(net, make_optimizer(recipe, net)), expected, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_recipes_of_earlier_versions_keep_their_meaning():
    """They do not know Adam's numbers: `momentum` was LAMB's beta1, beta2 0.999 and epsilon 1e-6."""
    a3 = recipes.recipe("imagenet_resnet50_a3")
    old = {name: value for name, value in to_dict(a3).items() if name not in ("beta2", "epsilon")}
    assert recipe_from_dict(old) == a3
    assert (a3.momentum, a3.beta2, a3.epsilon) == (0.9, 0.999, 0.0)
