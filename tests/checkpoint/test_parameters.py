"""A checkpoint is restored into a net and its optimizer completely or not at all."""

import numpy as np
import pytest
from mindspore import nn

from resnet_fn import adamw, make_state, momentum_sgd, restore_state
from resnet_fn.checkpoint.folder import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.usefixtures("device")


def made(optimizer):
    net = nn.Dense(3, 2)
    return net, make_state(net, optimizer(net.trainable_params()))


@pytest.mark.parametrize("fault", ["another optimizer", "NaN"])
def test_a_rejected_checkpoint_changes_no_weight(tmp_path, fault):
    _, saved = made(momentum_sgd if fault == "NaN" else adamw)
    folder = save_checkpoint(tmp_path / "a", saved.weights, saved.training, {"update": 1})
    checkpoint = load_checkpoint(folder)
    if fault == "NaN":
        next(iter(checkpoint.training.values()))[...] = np.nan
    net, state = made(momentum_sgd)
    before = net.weight.numpy().copy()
    with pytest.raises(ValueError, match=r"belongs to another net|contains NaN"):
        restore_state(state, checkpoint)
    assert np.array_equal(net.weight.numpy(), before)
    assert not np.array_equal(checkpoint.weights["weight"], before)
