"""Two readers of an export's description come to the package's own logits: the documentation's
code, and one with NumPy only.
"""

import base64
import dataclasses
import functools
import hashlib
import io
import json
import re
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Tensor
from PIL import Image, ImageOps

from resnet_fn.config.recipe import FILTERS, Recipe
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.evaluation.export import export
from resnet_fn.evaluation.loaded_net import LoadedNet
from resnet_fn.models import build_net

pytestmark = pytest.mark.usefixtures("device")

OF_FILES = InputSpec(
    name="imagefolder",
    classes=tuple("abcdefghijkl"),
    channels=3,
    image_size=32,
    eval_resize=37,
    full_scale=255.0,
    mean=(0.5, 0.4, 0.3),
    std=(0.2, 0.25, 0.3),
)
IN_MEMORY = dataclasses.replace(OF_FILES, name="cifar10", eval_resize=0)
GREY = {"name": "digits", "channels": 1, "full_scale": 16.0, "mean": (0.3,), "std": (0.37,)}
SPECS = {
    "grey, whole": dataclasses.replace(IN_MEMORY, **GREY),
    "whole": IN_MEMORY,
    **{name: dataclasses.replace(OF_FILES, interpolation=name) for name in FILTERS},
}


@pytest.fixture(scope="module")
def exported(device, tmp_path_factory):
    """exported(name) exports a net with drawn weights, and returns the net and the description."""

    @functools.cache
    def export_net(name):
        mindspore.set_seed(3)
        spec = SPECS[name]
        recipe = Recipe(dataset=spec.name, model="resnet8", image_size=32)
        trained = LoadedNet(build_net(recipe, spec).set_train(False), recipe, spec, None)
        file = tmp_path_factory.mktemp("export") / "net.safetensors"
        export(trained, file, images=np.zeros((2, spec.channels, 32, 32), np.float32))
        return trained, json.loads(Path(f"{file}.json").read_text(encoding="utf-8"))

    return export_net


def as_documented(about, data):
    """With Pillow, by the function in docs/export.md."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    names = {"about": about, "np": np, "Image": Image, "ImageOps": ImageOps}
    exec(re.search(r"^def read_image.*?\n\n\n", page, re.S | re.M)[0], names)
    return names["read_image"](io.BytesIO(data))


KERNELS = {  # of a distance in pixels of the smaller picture: its reach, and its weight
    "nearest": None,
    "bilinear": (1, lambda x: 1 - np.abs(x)),
    "bicubic": (
        2,
        lambda x: np.where(
            np.abs(x) < 1,
            1.5 * np.abs(x) ** 3 - 2.5 * x**2 + 1,
            -0.5 * np.abs(x) ** 3 + 2.5 * x**2 - 4 * np.abs(x) + 2,
        ),
    ),
    "lanczos": (3, lambda x: np.sinc(x) * np.sinc(x / 3)),
}


def weights(old, new, name):
    """How much of each old pixel is in each new pixel, [new, old]."""
    scale = old / new
    centre = ((np.arange(new) + 0.5) * scale)[:, None]
    if KERNELS[name] is None:
        return (np.arange(old) == np.floor(centre)).astype(float)
    reach, kernel = KERNELS[name]
    distance = (np.arange(old) + 0.5 - centre) / max(scale, 1.0)
    matrix = np.where(np.abs(distance) < reach + 1e-9, kernel(distance), 0.0)
    return matrix / matrix.sum(1, keepdims=True)


def with_numpy(about, data):
    """From the description's fields and steps. Only the file is decoded with Pillow."""
    image = Image.open(io.BytesIO(data))
    pixels = np.asarray(image, np.int64)
    if pixels.ndim == 2:  # 16 bits
        pixels = np.stack([(pixels + 128) // 257] * 3, -1)
    if about["exif_orientation"]:
        pixels = np.rot90(pixels, {3: 2, 6: -1, 8: 1}.get(image.getexif().get(0x0112), 0))
    if about["colour_order"] == "grey":
        pixels = ((pixels @ [19595, 38470, 7471] + 32768) >> 16)[..., None]
    (height, width), size, side = pixels.shape[:2], about["image_size"], about["eval_resize"]
    short = min(height, width)
    new = (side * height // short, side * width // short)
    if about["resize"] == "whole picture":
        new = (size, size)
    for equation, old, target in (("ow,hwc->hoc", width, new[1]), ("oh,hwc->owc", height, new[0])):
        matrix = weights(old, target, about["interpolation"])
        if about["rounded_to"] == "uint8":
            matrix = np.trunc(matrix * 2**22 + np.copysign(0.5, matrix)) / 2**22
        pixels = np.einsum(equation, matrix, pixels)
        if about["rounded_to"] == "uint8":
            pixels = np.floor(pixels + 0.5).clip(0, 255)
    if about["crop"] == "centre":
        top, left = (round((length - size) / 2) for length in new)
        pixels = pixels[top : top + size, left : left + size]
    values = (pixels / about["full_scale"] - about["mean"]) / about["std"]
    return values.transpose(2, 0, 1)[None]


READERS = [
    *((as_documented, name) for name in SPECS),
    *((with_numpy, name) for name in ("grey, whole", "whole", "bilinear", "bicubic", "lanczos")),
]


@pytest.mark.parametrize(("read", "name"), READERS)
def test_two_readers_get_the_nets_logits(read, name, exported, make_photograph, encode):
    trained, card = exported(name)
    sample = base64.b64decode(card["sample"]["png_base64"])
    assert hashlib.sha256(sample).hexdigest() == card["sample"]["sha256"]
    turned = Image.Exif()
    turned[0x112] = 8
    jpeg = encode(make_photograph(5, 127, 80), quality=95, exif=turned)
    deep = np.random.default_rng(0).integers(0, 65536, (41, 47), np.uint16)
    pngs = [encode(image, "PNG") for image in (make_photograph(6, 200, 141), Image.fromarray(deep))]
    for data in (sample, jpeg, *pngs):
        Path("picture").write_bytes(data)
        own = trained.preprocess("picture")
        others = read(card["preprocessing"], data).astype(np.float32)
        wanted, logits = (trained.net(Tensor(images)).numpy()[0] for images in (own, others))
        assert np.abs(logits - wanted).max() <= 1e-4 * np.abs(wanted).max()
        if data is sample:
            assert logits[:10] == pytest.approx(card["sample"]["logits"], abs=1e-4)
    assert card["classes"] == list(trained.classes)
    assert (card["input"]["name"], card["input"]["layout"]) == ("images", "NCHW")


def test_the_sample_reveals_any_omitted_preprocessing_step(exported):
    card = exported("bilinear")[1]
    about = card["preprocessing"]
    sample = base64.b64decode(card["sample"]["png_base64"])
    right = with_numpy(about, sample)
    changes = {
        "exif_orientation": False,
        "interpolation": "nearest",  # as without antialiasing
        "eval_resize": 32,
        "crop": "none",
        "mean": [0.485, 0.456, 0.406],
    }
    wrong = {name: with_numpy({**about, name: changes[name]}, sample) for name in changes}
    wrong["crop"] = wrong["crop"][:, :, :32, :32]  # from a corner
    wrong["colour_order"] = right[:, ::-1]
    for name, values in wrong.items():
        assert np.abs(values - right).max() > 0.1, name
