"""Every layer of a torch module is recorded in the order in which it runs, and the module is left as it was."""

import numpy as np

from resnet_fn.parity.torch_side.record import record_torch

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)


def test_a_modules_layers_are_the_same_kinds(torch):
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU6(), torch.nn.Flatten(), torch.nn.Linear(64, 2)
    ).eval()
    layers = record_torch(net, IMAGES, True)
    assert [layer.kind for layer in layers] == ["conv", "norm", "relu6", "flatten", "dense"]
    assert layers[1].parameters == (("weight", (4,)), ("bias", (4,)), ("running_mean", (4,)), ("running_var", (4,)))
    np.testing.assert_allclose(layers[1].output.mean((0, 2, 3)), 0, atol=1e-6)
    assert not net.training
    assert not net[1].running_mean.any()
