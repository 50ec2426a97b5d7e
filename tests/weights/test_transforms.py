"""From image files to logits: torchvision's and timm's nets with the transforms of their own weights, and ours."""

import json

import numpy as np
import pytest
from mindspore import Tensor
from PIL import Image

from resnet_fn import recipes
from resnet_fn.evaluation.loaded_net import load_weight_file

CLASSES = ("bee", "cat")
SIZES = {"bee/0.jpg": (501, 375), "bee/1.png": (333, 500), "cat/2.jpg": (225, 401), "cat/3.png": (97, 131)}


@pytest.fixture
def pictures(tmp_path, make_photograph):
    """Photographs of odd sizes as JPEG and PNG, larger and smaller than a net's input."""
    for number, (name, size) in enumerate(SIZES.items()):
        for half in ("train", "val"):
            path = tmp_path / "pictures" / half / name
            path.parent.mkdir(parents=True, exist_ok=True)
            make_photograph(number, *size).save(path, quality=90)
    return tmp_path / "pictures"


def randomise(torch, net):
    """Give each BatchNorm statistics of its own, so that a net with generated weights is no constant."""
    torch.manual_seed(0)
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.weight, 0.5, 1)
            torch.nn.init.normal_(layer.running_mean, 0, 0.1)
            torch.nn.init.uniform_(layer.running_var, 0.5, 1)
    return net.eval()


def same_logits(torch, net, transform, file, pictures):
    """Compare the logits of a net after its own transform with ours, which reads only the weight file."""
    recipe = recipes.finetune(weights=str(file))
    ours, dataset, _ = load_weight_file(file, recipe, data_dir=str(pictures))
    rows = [np.arange(len(SIZES))]
    (images,) = dataset.test.eval_images(rows, dataset.input)
    logits = ours.net.set_train(False)(Tensor(images)).asnumpy()
    paths = [pictures / "val" / name for name in dataset.test.names]
    inputs = torch.stack([transform(Image.open(path).convert("RGB")) for path in paths])
    with torch.no_grad():
        theirs = net(inputs).numpy()
    assert images.shape == inputs.shape
    assert np.abs(logits - theirs).max() <= 1e-4 * np.abs(theirs).max()


@pytest.mark.parametrize(
    ("model", "weights"),
    [
        ("resnet18", "IMAGENET1K_V1"),
        ("resnet50", "IMAGENET1K_V1"),
        ("resnet50", "IMAGENET1K_V2"),
        ("wide_resnet50_2", "IMAGENET1K_V2"),
    ],
)
def test_released_weights_get_their_own_transforms(model, weights, torchvision, device, tmp_path, pictures):
    torch = pytest.importorskip("torch")
    known = torchvision.models.get_model_weights(model)[weights]
    net = randomise(torch, torchvision.models.get_model(model, num_classes=len(CLASSES)))
    file = tmp_path / known.url.rpartition("/")[2]
    torch.save(net.state_dict(), file)
    same_logits(torch, net, known.transforms(), file, pictures)


@pytest.mark.parametrize(
    "name",
    [
        *("resnet18.fb_swsl_ig1b_ft_in1k", "resnet34.ra4_e3600_r224_in1k", "resnet18d.ra2_in1k", "resnet50.a1_in1k"),
        *("resnet50.a3_in1k", "resnet50d.ra4_e3600_r224_in1k", "resnext50_32x4d.tv2_in1k", "seresnet50.a1_in1k"),
    ],
)
@pytest.mark.parametrize("described_by", ["config.json", "metadata"])
def test_timms_config_gives_timms_transforms(name, described_by, torchvision, device, tmp_path, pictures):
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm", reason="compares with timm: pip install --no-deps timm pyyaml")
    from safetensors.torch import save_file

    net = randomise(torch, timm.create_model(name, pretrained=False, num_classes=len(CLASSES)))
    file, config = tmp_path / "hub" / "model.safetensors", tmp_path / "hub" / "config.json"
    file.parent.mkdir()
    timm.models._hub.save_config_for_hf(net, config)
    entries = json.loads(config.read_text())
    metadata = {key: value if isinstance(value, str) else json.dumps(value) for key, value in entries.items()}
    if described_by == "metadata":
        config.unlink()
    save_file(net.state_dict(), file, {"format": "pt", **(metadata if described_by == "metadata" else {})})
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(net), is_training=False)
    same_logits(torch, net, transform, file, pictures)
