"""Activations are those of the net, at the right layer."""

import numpy as np
import pytest

from resnet_fn.inspect.activations import activations

pytestmark = pytest.mark.usefixtures("device")


def test_activations_are_the_nets(resnet8):
    (inspected, arrays), seen = resnet8, {}
    count, rows = activations(inspected, 5, lambda name, values: seen.update({name: values}))
    assert (count, [row.name for row in rows]) == (5, list(seen))
    assert list(seen)[:5] == ["conv1", "bn1", "relu", "maxpool", "layer1.0.conv1"]
    assert seen["layer3.0.relu (2)"].shape == (5, 64, 4, 4)
    # Evaluation mode: bn1 is an affine map by the stored statistics.
    scale = arrays["bn1.gamma"] / np.sqrt(arrays["bn1.moving_variance"] + 1e-5)
    shift = arrays["bn1.beta"] - arrays["bn1.moving_mean"] * scale
    expected = seen["conv1"] * scale[:, None, None] + shift[:, None, None]
    np.testing.assert_allclose(seen["bn1"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen["relu"], np.maximum(seen["bn1"], 0))
    pooled = seen["layer3.0"].mean((2, 3))
    np.testing.assert_allclose(seen["fc"], pooled @ arrays["fc.weight"].T + arrays["fc.bias"], rtol=1e-4, atol=1e-4)
    for parameter in inspected.net.get_parameters():
        assert parameter.asnumpy().tobytes() == arrays[parameter.name].tobytes()
