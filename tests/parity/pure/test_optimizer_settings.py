"""The settings that are read of an optimizer's groups."""

import numpy as np

from resnet_fn.parity.record.optimizer_settings import torch_settings


def test_settings_that_are_no_numbers_are_left_out():
    """Adafactor's `eps` is a pair; a learning rate may be one of NumPy's numbers."""
    weight = object()
    group = {"params": [weight], "lr": np.float32(0.5), "eps": (None, 1e-3), "weight_decay": 0}
    settings = torch_settings([group], {id(weight): "fc.weight"})
    assert settings == {
        "learning rate": {"fc.weight": 0.5},
        "weight decay": {"fc.weight": 0.0},
    }
