"""Bytes normalised by the compiled step, against the host's bits."""

import mindspore
import numpy as np
import pytest
from mindspore import nn
from resnet_fn.runtime.tensors import hand_over
from resnet_fn.update.normalise import make_normalise

from resnet_fn.data.images import normalise
from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD, color_spec
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import momentum_sgd, weight_decay_groups
from resnet_fn.update.step import make_train_step

pytestmark = pytest.mark.usefixtures("device")
SPEC = color_spec("", (), IMAGENET_MEAN, IMAGENET_STD)


def images_and_labels(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (8, 3, 6, 5), dtype=np.uint8), rng.integers(0, 4, 8).astype(np.int32)


def on_host(images):
    return normalise(images, SPEC, np.empty(images.shape, np.float32))


def test_all_256_bytes_become_what_the_host_makes_of_them_to_rounding():
    planes = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16).repeat(3, axis=1)
    found = mindspore.jit(make_normalise(SPEC))(hand_over(planes)).asnumpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, on_host(planes), rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_update_from_bytes_equals_one_from_normalised_images_to_rounding(accumulate):
    weights, losses = [], []
    for as_bytes in (False, True):
        mindspore.set_seed(1)
        net = nn.SequentialCell(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dense(120, 4))
        optimizer = momentum_sgd(weight_decay_groups(net, 5e-4), 0.9)
        prepare = make_normalise(SPEC) if as_bytes else None
        step = make_train_step(net, make_loss(0.1), optimizer, accumulate=accumulate, prepare=prepare)
        for seed in range(3):
            images, labels = images_and_labels(seed)
            result = step(hand_over(images if as_bytes else on_host(images)), hand_over(labels), 0.1)
            losses.append(float(result.loss))
        weights.append([p.asnumpy() for p in net.get_parameters()])
    np.testing.assert_allclose(losses[3:], losses[:3], rtol=1e-6)
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
