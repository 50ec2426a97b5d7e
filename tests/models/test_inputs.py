"""Masks of stochastic depth and dropout, and normalisation on the device."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.images import normalise as normalise_on_host
from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD, color_spec
from resnet_fn.models import create_model
from resnet_fn.models.inputs import make_masks
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.groups import weight_decay_groups
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.step import StepPlan, make_train_step

pytestmark = pytest.mark.usefixtures("device")

RECIPE = Recipe(model="resnet8", batch_size=12, drop_path=0.5, dropout=0.25, norm="none")


def small_net(norm="none"):
    mindspore.set_seed(1)
    return create_model("resnet8", num_classes=4, in_channels=1, norm=norm)


def masks_of(net, update, workers=Workers(), **changes):
    """The masks of an update of the recipe with these changes, as arrays."""
    masks = make_masks(RECIPE.changed(**changes), net, workers)
    return [None if part is None else part.asnumpy() for part in masks(update)]


def test_masks_drop_their_share_and_scale_the_rest():
    keep, mask = masks_of(small_net(), 0, batch_size=40_000)
    assert (keep.shape, mask.shape) == ((40_000, 3), (40_000, 64))
    assert (keep[:, 0] == 1).all()
    assert set(np.unique(keep[:, 1]).tolist()) == {0, np.float32(1 / 0.75)}
    np.testing.assert_allclose(keep.mean(0), 1, atol=0.02)
    np.testing.assert_allclose((keep == 0).mean(0), [0, 0.25, 0.5], atol=0.01)
    np.testing.assert_allclose(mask.mean(), 1, atol=0.01)


def test_masks_depend_on_seed_update_and_sample_alone():
    net = small_net()
    assert make_masks(Recipe(), net)(3) == ()
    keep, mask = masks_of(net, 3, drop_path=0.0)
    assert (keep, mask.shape) == (None, (12, 64))
    assert masks_of(net, 3, dropout=0.0)[1] is None
    keep, mask = masks_of(net, 5)
    keeps, masks = zip(*(masks_of(net, 5, Workers(rank, 3)) for rank in range(3)), strict=True)
    np.testing.assert_array_equal(np.concatenate(keeps), keep)
    np.testing.assert_array_equal(np.concatenate(masks), mask)
    assert (masks_of(net, 6)[1] != mask).any()
    assert (masks_of(net, 5, seed=1)[1] != mask).any()


def test_a_dropped_block_is_its_shortcut():
    net = small_net()
    net.set_train(False)
    images = Tensor(np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32))
    whole = net(images).asnumpy()
    dropped = net(images, Tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])).asnumpy()
    np.testing.assert_allclose(dropped[0], whole[0], rtol=1e-6)
    x = net.layer1(net.relu(net.bn1(net.conv1(images))))
    x = net.layer3(net.relu(net.layer2[0].downsample(x)))
    shortcut = net.fc(x.mean((2, 3))).asnumpy()
    np.testing.assert_allclose(dropped[1], shortcut[1], rtol=1e-5, atol=1e-6)
    bias = net.fc.bias.asnumpy()
    half = net(images, None, Tensor(np.full((2, 64), 0.5, np.float32))).asnumpy() - bias
    np.testing.assert_allclose(2 * half, whole - bias, rtol=1e-4, atol=1e-6)


SPEC = color_spec("", (), IMAGENET_MEAN, IMAGENET_STD)


def test_updates_from_bytes_equal_those_from_floats():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (8, 3, 6, 5), dtype=np.uint8)
    labels = Tensor(rng.integers(0, 4, 8).astype(np.int32))
    floats = normalise_on_host(images, SPEC, np.empty(images.shape, np.float32))

    def train(given, normalise=None):
        mindspore.set_seed(1)
        net = nn.SequentialCell(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dense(120, 4))
        optimizer = momentum_sgd(weight_decay_groups(net, 5e-4), 0.9)
        plan = StepPlan(micro_batches=2, normalise=normalise)
        step = make_train_step(net, make_loss(0.1), optimizer, plan=plan)
        losses = [float(step(Tensor(given), labels, 0.1).loss) for _ in range(3)]
        return [losses, *(p.asnumpy() for p in net.get_parameters())]

    (losses, *weights), (expected, *others) = train(images, SPEC), train(floats)
    assert losses == pytest.approx(expected, rel=1e-6)
    for ours, theirs in zip(weights, others, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
