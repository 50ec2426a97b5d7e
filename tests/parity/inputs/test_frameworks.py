"""torchvision's and timm's transforms against MindSpore's, MindCV's recipe and this package's."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_fn.data.preprocess import eval_pixels
from resnet_fn.parity.inputs.law import compare_laws
from resnet_fn.parity.inputs.reading import side_of
from resnet_fn.parity.trace.difference import DIFFERS, OK

MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
OF_BYTES = [255 * one for one in MEAN], [255 * one for one in DEVIATION]


@pytest.fixture(scope="session")
def vision():
    return importlib.import_module("mindspore.dataset.vision")


@pytest.fixture(scope="session")
def evaluation(torchvision):
    """evaluation(resize, crop, filter): torchvision's transforms."""

    def build(resize, crop=64, interpolation="bilinear"):
        transforms = torchvision.transforms
        mode = transforms.InterpolationMode(interpolation)
        steps = [transforms.Resize(resize, mode)]
        steps += [transforms.CenterCrop(crop)] if crop else []
        steps += [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
        return transforms.Compose(steps)

    return build


def with_pillow(vision, resize, crop=64, inter=None):
    """MindSpore's transforms on a Pillow picture."""
    options = {} if inter is None else {"interpolation": inter}
    steps = [vision.Decode(to_pil=True), vision.Resize(resize, **options)]
    steps += [vision.CenterCrop(crop)] if crop else []
    return [*steps, vision.ToTensor(), vision.Normalize(MEAN, DEVIATION, is_hwc=False)]


def in_cpp(vision, resize, crop=64, inter=None):
    """MindSpore's transforms on an array, which run in C++, as MindCV's evaluation recipe."""
    options = {} if inter is None else {"interpolation": inter}
    steps = [vision.Decode(), vision.Resize(resize, **options)]
    steps += [vision.CenterCrop(crop)] if crop else []
    return [*steps, vision.Normalize(*OF_BYTES), vision.HWC2CHW()]


def without_16_bits(pictures):
    return [one for one in pictures if "bits16" not in one.features]


def test_torchvision_and_mindspore_on_pillow_agree(evaluation, vision, compared):
    for resize, crop in ((73, 64), ((64, 64), 0)):
        verdict = compared(with_pillow(vision, resize, crop), evaluation(resize, crop))
        assert verdict.agrees
        assert verdict.stages[-1].worst.max_abs < 1e-6


def test_timm_and_mindspore_on_pillow_agree(torchvision, vision, compared):
    data = importlib.import_module("timm.data")
    reference = data.create_transform((3, 64, 64), interpolation="bicubic", crop_pct=0.95)
    port = with_pillow(vision, 67, 64, vision.Inter.BICUBIC)
    assert compared(port, reference).agrees


def test_torchvision_and_this_package_agree(evaluation, compared, twelve):
    """Except for EXIF and 16 bits, which torchvision's loader ignores and cuts."""

    def ours(path):
        pixels = eval_pixels(Path(path).read_bytes(), 73, 64)
        scaled = np.float32(pixels) / np.float32(255)
        return ((scaled - np.float32(MEAN)) / np.float32(DEVIATION)).transpose(2, 0, 1)

    verdict = compared(ours, evaluation(73))
    assert {cause.words.partition(":")[0] for cause in verdict.causes} == {
        "an EXIF orientation",
        "16 bits",
    }
    plain = [one for one in twelve if not one.features & {"turned", "bits16"}]
    assert compared(ours, evaluation(73), pictures=plain).agrees


def test_mindcvs_recipe_lacks_antialiasing_and_rounds_down(evaluation, vision, compared):
    verdict = compared(in_cpp(vision, 73), evaluation(73))
    named = [cause.words for cause in verdict.causes]
    assert any("antialiasing of bilinear: off in the port, on in the" in one for one in named)
    assert any("rounding of the crop's offset: floor in the port, round" in one for one in named)
    assert any("16 bits scaled in the port, 16 bits cut at 255" in one for one in named)


def test_pillows_cubic_filter_in_cpp_agrees(evaluation, vision, compared, twelve):
    port = in_cpp(vision, (64, 64), 0, vision.Inter.PILCUBIC)
    reference = evaluation((64, 64), 0, "bicubic")
    verdict = compared(port, reference, pictures=without_16_bits(twelve))
    assert verdict.agrees
    assert verdict.stages[-1].worst.max_abs < 1e-5


def resized_tensor(torch, path, corners):
    with Image.open(path) as image:
        array = np.asarray(image.convert("RGB"))
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)[None].float()
    resize = torch.nn.functional.interpolate
    return resize(tensor, (64, 64), mode="bilinear", align_corners=corners)[0]


def test_a_resize_without_antialiasing_agrees_within_rounding(torch, vision, compared, twelve):
    port = [vision.Decode(), vision.Resize((64, 64)), vision.HWC2CHW()]
    pictures = without_16_bits(twelve)
    verdict = compared(port, lambda path: resized_tensor(torch, path, False), pictures=pictures)
    assert verdict.agrees, verdict.stages
    verdict = compared(port, lambda path: resized_tensor(torch, path, True), pictures=pictures)
    assert "align_corners: False in the port, True in the" in verdict.causes[0].words


def test_tensors_and_pillow_agree_within_rounding(torchvision, evaluation, compared):
    transforms = torchvision.transforms
    steps = [transforms.ToTensor(), transforms.Resize(73, antialias=True)]
    steps += [transforms.CenterCrop(64), transforms.Normalize(MEAN, DEVIATION)]
    assert compared(transforms.Compose(steps), evaluation(73)).agrees


def test_data_sets_are_compared_with_labels_and_order(torchvision, twelve, tmp_path):
    from resnet_fn.parity.inputs.command import inputs

    Path("sets.py").write_text(
        "import numpy as np\n"
        "import torchvision.datasets, torchvision.transforms as T\n"
        "def reference(root):\n"
        "    steps = T.Compose([T.Resize((32, 32)), T.ToTensor()])\n"
        "    return torchvision.datasets.ImageFolder(root, steps)\n"
        "def port(root):\n"
        "    import mindspore.dataset as ds\n"
        "    import mindspore.dataset.vision as vision\n"
        "    data = ds.ImageFolderDataset(root, shuffle=True, decode=False)\n"
        "    steps = [vision.Decode(to_pil=True), vision.Resize((32, 32)), vision.ToTensor()]\n"
        "    return data.map(steps, 'image')\n"
    )
    folder = tmp_path / "photos"
    for picture in twelve:
        if not picture.name.endswith(".gif"):
            target = folder / picture.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(Path(picture.path).read_bytes())
    code = inputs(
        [
            "--reference",
            "sets.py:reference",
            "--net",
            "sets.py:port",
            "--json",
            "o.json",
            str(folder),
        ]
    )
    assert code == 0
    order = json.loads(Path("o.json").read_text())["order"]
    assert order.endswith(
        "10/alpha.png, 10/palette.png, 10/turned.jpg, 2/bits16.png and 7 more in the reference"
    )


@pytest.mark.parametrize("in_pillow", [False, True])
def test_training_transforms_agree_but_without_normalize(torchvision, vision, tmp_path, in_pillow):
    transforms = torchvision.transforms
    steps = [transforms.RandomResizedCrop(32, (0.25, 1.0)), transforms.RandomHorizontalFlip()]
    steps += [transforms.ColorJitter(0.4, 0.4, 0.4), transforms.ToTensor()]
    steps += [transforms.Normalize(MEAN, DEVIATION)]
    steps += [transforms.RandomErasing()] if in_pillow else []
    if in_pillow:
        begin = [vision.Decode(to_pil=True), vision.RandomResizedCrop(32, (0.25, 1.0))]
        end = [vision.ToTensor(), vision.Normalize(MEAN, DEVIATION, is_hwc=False)]
        end += [vision.RandomErasing()]
    else:
        begin = [vision.RandomCropDecodeResize(32, (0.25, 1.0))]
        end = [vision.Normalize(*OF_BYTES), vision.HWC2CHW()]
    begin += [vision.RandomHorizontalFlip(), vision.RandomColorAdjust(0.4, 0.4, 0.4)]
    without = [step for step in end if not isinstance(step, vision.Normalize)]
    reference = side_of(transforms.Compose(steps), "side.py:f", "--net", "", (), 0)
    laws = [
        compare_laws(side_of(port, "side.py:f", "--net", "", (), 0), reference, str(tmp_path), 250)
        for port in (begin + end, begin + without)
    ]
    assert laws[0].verdict == OK, laws[0].results
    differing = {one.name for one in laws[1].results if one.verdict == DIFFERS}
    assert {"black", "white"} <= differing


@pytest.mark.parametrize("seeded", [False, True])
def test_random_crops_and_flips_are_compared_in_law(torchvision, vision, tmp_path, seeded):
    """After set_seed, as most training scripts call it, MindSpore's eager transforms repeat a draw."""
    if seeded:
        importlib.import_module("mindspore").set_seed(1)
    transforms = torchvision.transforms
    reference = transforms.Compose(
        [
            transforms.RandomResizedCrop(32, (0.25, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )

    def port(lowest, flip):
        return [
            vision.RandomCropDecodeResize(32, (lowest, 1.0), (3 / 4, 4 / 3)),
            vision.RandomHorizontalFlip(flip),
            vision.Rescale(1 / 255, 0.0),
            vision.HWC2CHW(),
        ]

    def law(value):
        sides = [side_of(one, "side.py:f", "--net", "", (), 0) for one in (value, reference)]
        return compare_laws(*sides, str(tmp_path), 250)

    same, other = law(port(0.25, 0.5)), law(port(0.6, 0.1))
    assert same.verdict == OK, same.results
    assert other.verdict == DIFFERS
    differing = {one.name for one in other.results if one.verdict == DIFFERS}
    assert {"mirrored", "area"} <= differing
