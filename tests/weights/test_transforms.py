"""From image files to logits: nets of torchvision and timm, with their own transforms and ours."""

import json
from pathlib import Path

import numpy as np
import pytest
from mindspore import Tensor
from PIL import Image

from resnet_fn import recipes
from resnet_fn.checkpoint.tensor_file import write_safetensors
from resnet_fn.evaluation.loaded_net import load_weight_file
from resnet_fn.models import MODELS
from resnet_fn.weights.origin import timm_name
from resnet_fn.weights.preparation import of_release

TIMM = "compares with timm: pip install --no-deps timm pyyaml"
CLASSES = ("bee", "cat")
SIZES = {
    "bee/0.jpg": (501, 375),
    "bee/1.png": (333, 500),
    "cat/2.jpg": (225, 401),
    "cat/3.png": (97, 131),
}


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
    """Give each BatchNorm statistics of its own, so that logits depend on the pictures."""
    torch.manual_seed(0)
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.weight, 0.5, 1)
            torch.nn.init.normal_(layer.running_mean, 0, 0.1)
            torch.nn.init.uniform_(layer.running_var, 0.5, 1)
    return net.eval()


def same_logits(torch, net, transform, file, pictures):
    """Compare a net's logits after its own transform with ours, from the weight file alone."""
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
    difference = np.abs(logits - theirs).max()
    assert difference <= 1e-4 * np.abs(theirs).max()


@pytest.mark.parametrize(
    ("model", "weights"),
    [
        ("resnet18", "IMAGENET1K_V1"),
        ("resnet50", "IMAGENET1K_V1"),
        ("resnext50_32x4d", "IMAGENET1K_V2"),
    ],
)
@pytest.mark.usefixtures("device")
def test_released_weights_get_their_own_transforms(
    torch, model, weights, torchvision, tmp_path, pictures
):
    known = torchvision.models.get_model_weights(model)[weights]
    net = randomise(torch, torchvision.models.get_model(model, num_classes=len(CLASSES)))
    file = tmp_path / known.url.rpartition("/")[2]
    torch.save(net.state_dict(), file)
    same_logits(torch, net, known.transforms(), file, pictures)


@pytest.mark.parametrize(
    ("name", "described_by"),
    [
        ("resnet18.fb_swsl_ig1b_ft_in1k", "config.json"),
        ("resnet18d.ra2_in1k", "config.json"),
        ("resnet34.ra4_e3600_r224_in1k", "metadata"),
        ("resnet50.a1_in1k", "config.json"),
        ("resnet50d.ra4_e3600_r224_in1k", "config.json"),
        ("resnext50_32x4d.tv2_in1k", "config.json"),
        ("seresnet50.a3_in1k", "config.json"),
    ],
)
@pytest.mark.usefixtures("device", "torchvision")
def test_timms_config_gives_timms_transforms(torch, name, described_by, tmp_path, pictures):
    timm = pytest.importorskip("timm", reason=TIMM)

    net = randomise(torch, timm.create_model(name, pretrained=False, num_classes=len(CLASSES)))
    file = tmp_path / "hub" / "model.safetensors"
    config = tmp_path / "hub" / "config.json"
    file.parent.mkdir()
    timm.models._hub.save_config_for_hf(net, config)
    metadata = {"format": "pt"}
    if described_by == "metadata":
        entries = json.loads(config.read_text())
        metadata |= {key: json.dumps(value) for key, value in entries.items()}
        config.unlink()
    arrays = {key: value.numpy() for key, value in net.state_dict().items()}
    write_safetensors(file, arrays, metadata)
    how = timm.data.resolve_model_data_config(net)
    same_logits(torch, net, timm.data.create_transform(**how, is_training=False), file, pictures)


def test_hashes_of_released_files_are_timms_and_torchvisions(torchvision):
    """The preparation of each released file of a net that this package has."""
    timm = pytest.importorskip("timm", reason=TIMM)
    from timm.models.resnet import default_cfgs

    nets = {timm_name(model, stem) for model in MODELS for stem in ("", "d")}
    known = {}
    for name in nets & default_cfgs.keys():
        for config in default_cfgs[name].cfgs.values():
            how = timm.data.resolve_data_config(pretrained_cfg=config.to_dict())
            transform = timm.data.create_transform(**how)
            known[(config.url or "").rpartition("/")[2]] = transform
    for name in nets & set(torchvision.models.list_models()):  # counts more than timm for its files
        for weights in torchvision.models.get_model_weights(name):
            known[weights.url.rpartition("/")[2]] = weights.transforms()
    del known[""]
    for name, transform in known.items():
        preparation = of_release(Path(name))
        if hasattr(transform, "resize_size"):
            (resize,), (size,) = transform.resize_size, transform.crop_size
            filter_, normalise = transform.interpolation, transform
        else:
            resize = transform.transforms[0].size
            size = transform.transforms[1].size[0]
            filter_, normalise = transform.transforms[0].interpolation, transform.transforms[3]
        assert (preparation.resize(size), preparation.eval_size) == (resize, size), name
        assert preparation.interpolation == filter_.value, name
        np.testing.assert_allclose(preparation.mean, normalise.mean, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(preparation.std, normalise.std, rtol=1e-6, err_msg=name)
    assert len(known) > 70
