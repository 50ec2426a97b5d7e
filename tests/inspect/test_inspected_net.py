"""A checkpoint is looked into with the right weights, in float32, on its own data set."""

import dataclasses

import numpy as np
import pytest
from mindspore import Parameter, Tensor

from resnet_fn.checkpoint.folder import save_checkpoint
from resnet_fn.config.fields import to_dict
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.inspect.batch import activations, gradients, open_net
from resnet_fn.models import create_model
from resnet_fn.recipes import recipe

pytestmark = pytest.mark.usefixtures("device")

UPDATE = 2


@pytest.fixture
def checkpoint(tmp_path):
    """Makes a checkpoint folder of a half-precision run whose averaged weights are twice its own."""

    def save(name):
        use = dataclasses.replace(recipe("digits"), model="resnet8", precision="fp16", ema=0.9)
        net = create_model("resnet8", num_classes=10, in_channels=1)
        weights = list(net.get_parameters())
        averages = [Parameter(Tensor(2 * p.asnumpy()), name=f"ema.{p.name}") for p in weights]
        state = {"update": UPDATE, "recipe": to_dict(use), "dataset": load_dataset(use).input.to_dict()}
        folder = save_checkpoint(tmp_path / "run" / "checkpoints" / name, weights, averages, state)
        return folder, {p.name: p.asnumpy().copy() for p in weights}

    return save


@pytest.mark.parametrize("name", ["step-00000002", "a copy under another name"])
def test_activations_are_of_the_average_and_gradients_of_the_weights(checkpoint, name):
    folder, weights = checkpoint(name)
    inspected, dataset = open_net(folder)
    assert (inspected.update, inspected.recipe.precision) == (UPDATE, "fp32")
    assert (len(dataset.train), len(dataset.test)) == (1437, 360)
    seen = {}
    gradients(inspected, dataset, 4, lambda *_: None)
    assert inspected.net.fc.weight.asnumpy().tobytes() == weights["fc.weight"].tobytes()
    activations(inspected, dataset, 4, lambda _, name, values: seen.update({name: values}))
    expected = seen["layer3.0"].mean((2, 3)) @ (2 * weights["fc.weight"]).T + 2 * weights["fc.bias"]
    np.testing.assert_allclose(seen["fc"], expected, rtol=1e-4, atol=1e-4)
