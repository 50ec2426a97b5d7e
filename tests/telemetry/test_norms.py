"""Norms of layer groups, against NumPy."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.models import create_model
from resnet_fn.models.parts import group_of
from resnet_fn.telemetry.norms import LayerNorms

pytestmark = pytest.mark.usefixtures("device")


def test_layer_norms_are_the_definition():
    net = create_model("resnet8", num_classes=10, in_channels=1)
    weights = net.trainable_params()
    norms = LayerNorms(weights, every=3)
    squares = Tensor(np.full(len(weights), 4.0, np.float32))
    for update in (1, 2):
        norms.before(update)
        assert norms.after(squares) == {}
    norms.before(3)
    for parameter in weights:
        mindspore.ops.assign(parameter, parameter + 0.5)
    measured = norms.after(squares)
    assert norms.after(squares) == {}  # once
    for group in ("stem", "layer1", "layer2", "layer3", "fc"):
        own = [p.asnumpy().ravel() for p in weights if group_of(p.name) == group]
        values = np.concatenate(own).astype(float)
        assert measured["gradient"][group] == pytest.approx(2.0 * np.sqrt(len(own)))
        assert measured["weight"][group] == pytest.approx(np.linalg.norm(values))
        assert measured["update"][group] == pytest.approx(0.5 * np.sqrt(values.size), rel=1e-5)
    never = LayerNorms(weights, every=0)
    never.before(3)
    assert never.after(squares) == {}
