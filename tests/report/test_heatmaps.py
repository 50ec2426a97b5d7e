"""The maps against the definition of Grad-CAM by gradients, and what they look like."""

import io

import mindspore
import numpy as np
import pytest
from mindspore import Tensor
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.digits import load_digits
from resnet_fn.models.build import build_net
from resnet_fn.report.pictures import class_maps, heat_picture

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("model", ["resnet8", "resnet18"])
def test_maps_are_grad_cam_by_its_definition(model):
    """arXiv 1610.02391, equations 1 and 2: the gradient of the logit, its mean over the pixels, the weighted sum."""
    net = build_net(Recipe(model=model, image_size=32), load_digits().input)
    net.set_train(False)
    stages = [cell for name, cell in net.name_cells().items() if name.startswith("layer")]
    images = np.random.default_rng(0).normal(size=(10, 1, 32, 32)).astype(np.float32)
    classes = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    features = net.maxpool(net.relu(net.bn1(net.conv1(Tensor(images)))))
    for stage in stages:
        features = stage(features)

    def logit(activations, of):
        return net.fc(activations.mean((2, 3)))[:, of].sum()

    found, shown = class_maps(net, images, classes), 0
    for index, of in enumerate(classes):
        activations = features[index : index + 1]
        alpha = mindspore.grad(logit)(activations, of).asnumpy().mean((2, 3), keepdims=True)
        expected = np.maximum((alpha * activations.asnumpy()).sum(1)[0], 0)
        shown += int(expected.max() > 0)
        np.testing.assert_allclose(found[index], expected / max(expected.max(), 1e-12), atol=1e-5)
    assert shown >= 3  # an untrained net has evidence for some classes only


def test_a_map_reddens_the_picture_where_it_is_1_and_leaves_it_where_it_is_0():
    picture, heat = io.BytesIO(), np.zeros((4, 4), np.float32)
    Image.fromarray(np.full((16, 16), 100, np.uint8)).save(picture, "PNG")
    heat[:, 2:] = 1
    image = Image.open(io.BytesIO(heat_picture(picture.getvalue(), heat)))
    pixels = np.asarray(image)
    assert (image.format, pixels.shape) == ("PNG", (16, 16, 3))
    assert (pixels[:, :4] == 100).all()
    np.testing.assert_allclose(pixels[:, 12:], np.broadcast_to([208, 58, 30], (16, 4, 3)), atol=1)
