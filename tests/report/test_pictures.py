"""Pictures in a report show what the net was given."""

import dataclasses
import io

import mindspore
import numpy as np
import pytest
from mindspore import Tensor
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.preprocess import eval_pixels
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.models import build_net
from resnet_fn.report.pictures import class_maps, heat_picture, sample_name, sample_pictures

pytestmark = pytest.mark.usefixtures("device")


def decode(data):
    image = Image.open(io.BytesIO(data))
    return image.format, np.asarray(image)


def test_a_small_picture_has_every_pixel():
    digits = load_digits()
    kinds, pixels = zip(*map(decode, sample_pictures(digits, [3, 77])), strict=True)
    assert kinds == ("PNG", "PNG")
    np.testing.assert_allclose(pixels, digits.test.images[[3, 77], ..., 0] * (255 / 16), atol=0.51)
    assert sample_name(digits, 7) == "validation-00007"


@pytest.mark.parametrize(("size", "kind", "tolerance"), [(64, "PNG", 0), (65, "JPEG", 12)])
def test_photographs_are_shown_as_the_net_gets_them(photographs, size, kind, tolerance):
    recipe = Recipe(dataset="imagefolder", image_size=size, eval_resize=80)
    dataset = open_dataset(recipe, str(photographs))
    files = sorted((photographs / "val").glob("*/*"))
    for index, data in zip([3, 77], sample_pictures(dataset, [3, 77]), strict=True):
        found, pixels = decode(data)
        assert found == kind
        wanted = eval_pixels(files[index].read_bytes(), 80, size)
        assert pixels.shape == wanted.shape
        assert np.abs(pixels.astype(int) - wanted).mean() <= tolerance
        assert sample_name(dataset, index) == f"{files[index].parent.name}/{files[index].name}"
    test = dataclasses.replace(dataset.test, names=["\udcff.JPEG"])
    # no UTF-8: the report could not be written
    assert sample_name(dataclasses.replace(dataset, test=test), 0) == "\\xff.JPEG"


@pytest.mark.parametrize("model", ["resnet8", "resnet18"])
def test_maps_are_grad_cam_by_its_definition(model):
    """arXiv 1610.02391, equations 1 and 2: the gradient of the logit, its mean over the pixels, the
    weighted sum.
    """
    net = build_net(Recipe(model=model, image_size=32), load_digits().input)
    net.set_train(False)
    images = np.random.default_rng(0).normal(size=(10, 1, 32, 32)).astype(np.float32)
    classes = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    chosen = np.eye(10, dtype=np.float32)[classes]
    features = net.maxpool(net.relu(net.bn1(net.conv1(Tensor(images)))))
    for name, cell in net.name_cells().items():
        if name.startswith("layer"):
            features = cell(features)

    def logits(activations):  # of one class for each image
        return (net.fc(activations.mean((2, 3))) * Tensor(chosen)).sum()

    alpha = mindspore.grad(logits)(features).asnumpy().mean((2, 3), keepdims=True)
    expected = np.maximum((alpha * features.asnumpy()).sum(1), 0)
    largest = expected.max((1, 2), keepdims=True)
    assert (largest > 0).sum() >= 3  # an untrained net has evidence for some classes only
    expected /= np.maximum(largest, 1e-12)
    np.testing.assert_allclose(class_maps(net, images, classes), expected, atol=1e-5)


def test_a_map_reddens_pictures_where_it_is_1():
    picture = io.BytesIO()
    Image.fromarray(np.full((16, 16), 100, np.uint8)).save(picture, "PNG")
    heat = np.float32([[0, 0, 1, 1]] * 4)
    kind, pixels = decode(heat_picture(picture.getvalue(), heat))
    assert (kind, pixels.shape) == ("PNG", (16, 16, 3))
    assert (pixels[:, :4] == 100).all()
    assert np.abs(pixels[:, 12:] - [208, 58, 30]).max() <= 1
