"""Statistics of activations and gradients of one batch."""

import numpy as np
import pytest
from mindspore import Tensor, ops

from resnet_fn.data.feed import make_feed
from resnet_fn.inspect.batch import activations, gradients

pytestmark = pytest.mark.usefixtures("device")


def test_activations_are_the_nets(resnet8):
    (inspected, dataset, arrays), seen = resnet8, {}
    count, rows = activations(
        inspected, dataset, 5, lambda _, name, values: seen.update({name: values})
    )
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
    np.testing.assert_allclose(
        seen["fc"], pooled @ arrays["fc.weight"].T + arrays["fc.bias"], rtol=1e-4, atol=1e-4
    )
    for parameter in inspected.net.get_parameters():
        assert parameter.asnumpy().tobytes() == arrays[parameter.name].tobytes()


def test_gradients_obey_the_chain_rule(resnet8):
    """Each at its layer: what a bias or a beta gets is the sum of the gradient at its layer's
    output.
    """
    (inspected, dataset, arrays), seen = resnet8, {"output_gradients": {}, "gradients": {}}
    found = gradients(
        inspected, dataset, 6, lambda kind, name, values: seen[kind].update({name: values})
    )
    layers, parameters = seen.values()
    for parameter in inspected.net.get_parameters():
        assert parameter.asnumpy().tobytes() == arrays[parameter.name].tobytes(), parameter.name
    assert found.samples == 6
    assert [row.name for row in found.layers][:3] == ["conv1", "bn1", "relu"]
    assert [row.name for row in found.layers][-2:] == ["layer3.0", "fc"]
    assert [row.name for row in found.parameters] == [
        p.name for p in inspected.net.trainable_params()
    ]
    # Softmax minus one-hot over n, for cross-entropy without smoothing: each row sums to zero, the
    # norm follows.
    images, labels = make_feed(dataset, inspected.recipe).batch(0)
    inspected.net.set_train(True)
    probabilities = ops.softmax(inspected.net(Tensor(images[:6]))).asnumpy()
    one_hot = np.eye(10, dtype=np.float32)[labels[:6]]
    np.testing.assert_allclose(layers["fc"], (probabilities - one_hot) / 6, atol=1e-6)
    picked = probabilities[np.arange(6), labels[:6]].astype(np.float64)
    assert found.loss == pytest.approx(-np.log(picked).mean(), rel=1e-5)
    np.testing.assert_allclose(parameters["fc.bias"], layers["fc"].sum(0), atol=1e-6)
    norms = [name.removesuffix(".beta") for name in arrays if name.endswith(".beta")]
    assert len(norms) == 9
    for name in norms:
        given = layers[name].sum((0, 2, 3), dtype=np.float64)
        np.testing.assert_allclose(
            parameters[f"{name}.beta"], given, rtol=1e-3, atol=1e-6, err_msg=name
        )
    # The same ReLU runs twice: the second call's gradient is the block's.
    np.testing.assert_array_equal(layers["layer2.0.relu (2)"], layers["layer2.0"])
    bias, gradient = (of["fc.bias"].astype(np.float64) for of in (arrays, parameters))
    assert found.relative["fc.bias"] == pytest.approx(
        np.linalg.norm(gradient) / np.linalg.norm(bias), rel=1e-12
    )
