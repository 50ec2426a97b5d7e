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
    weights = create_model("resnet8", num_classes=10, in_channels=1).trainable_params()
    squares = Tensor(np.full(len(weights), 4.0, np.float32))

    def measured(every, update):
        norms = LayerNorms(weights, every)
        norms.before(update)
        for parameter in weights:
            mindspore.ops.assign(parameter, parameter + 0.5)
        shown = norms.after(squares)
        assert norms.after(squares) == {}  # once
        return shown

    assert measured(3, 2) == measured(0, 3) == {}
    norms = measured(3, 3)
    for group in ("stem", "layer1", "layer2", "layer3", "fc"):
        arrays = [p.asnumpy().ravel() for p in weights if group_of(p.name) == group]
        values = np.concatenate(arrays).astype(float)
        assert norms["gradient"][group] == pytest.approx(2.0 * np.sqrt(len(arrays)))
        assert norms["weight"][group] == pytest.approx(np.linalg.norm(values))
        assert norms["update"][group] == pytest.approx(0.5 * np.sqrt(values.size), rel=1e-5)
