"""torchvision's and timm's transforms against MindSpore's, MindCV's recipe and this package's."""

import importlib
import json
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore.dataset import vision
from PIL import Image

from resnet_fn.data.preprocess import eval_pixels
from resnet_fn.parity.inputs.command import inputs
from resnet_fn.parity.inputs.pictures import make_pictures
from resnet_fn.parity.trace.difference import DIFFERS, OK

MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
OF_BYTES = [255 * mean for mean in MEAN], [255 * deviation for deviation in DEVIATION]


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


def with_pillow(resize, crop=64, **options):
    """MindSpore's transforms on a Pillow picture."""
    steps = [vision.Decode(to_pil=True), vision.Resize(resize, **options)]
    steps += [vision.CenterCrop(crop)] if crop else []
    return [*steps, vision.ToTensor(), vision.Normalize(MEAN, DEVIATION, is_hwc=False)]


def in_cpp(resize, crop=64, **options):
    """MindSpore's transforms on an array, which run in C++, as MindCV's evaluation recipe."""
    steps = [vision.Decode(), vision.Resize(resize, **options)]
    steps += [vision.CenterCrop(crop)] if crop else []
    return [*steps, vision.Normalize(*OF_BYTES), vision.HWC2CHW()]


@pytest.fixture
def without_16_bits(twelve):
    return [picture for picture in twelve if "bits16" not in picture.features]


def test_torchvision_and_mindspore_on_pillow_agree(evaluation, compared):
    for resize, crop in ((73, 64), ((64, 64), 0)):
        verdict = compared(with_pillow(resize, crop), evaluation(resize, crop))
        assert verdict.agrees
        assert verdict.stages[-1].worst.max_abs < 1e-6


def test_timm_and_mindspore_on_pillow_agree(torchvision, compared):
    data = importlib.import_module("timm.data")
    reference = data.create_transform((3, 64, 64), interpolation="bicubic", crop_pct=0.95)
    port = with_pillow(67, interpolation=vision.Inter.BICUBIC)
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
    plain = [picture for picture in twelve if not picture.features & {"turned", "bits16"}]
    assert compared(ours, evaluation(73), pictures=plain).agrees


def test_mindcvs_recipe_lacks_antialiasing_and_rounds_down(evaluation, compared):
    verdict = compared(in_cpp(73), evaluation(73))
    named = "; ".join(cause.words for cause in verdict.causes)
    assert "antialiasing of bilinear: off in the port, on in the" in named
    assert "rounding of the crop's offset: floor in the port, round" in named
    assert "16 bits scaled in the port, 16 bits cut at 255" in named


def test_pillows_cubic_filter_in_cpp_agrees(evaluation, compared, without_16_bits):
    port = in_cpp((64, 64), 0, interpolation=vision.Inter.PILCUBIC)
    reference = evaluation((64, 64), 0, "bicubic")
    verdict = compared(port, reference, without_16_bits)
    assert verdict.agrees
    assert verdict.stages[-1].worst.max_abs < 1e-5


def test_a_resize_without_antialiasing_agrees_within_rounding(torch, compared, without_16_bits):
    port = [vision.Decode(), vision.Resize((64, 64)), vision.HWC2CHW()]
    resize = torch.nn.functional.interpolate

    def compare(corners):
        def reference(path):
            with Image.open(path) as image:
                pixels = torch.from_numpy(np.array(image.convert("RGB")))
            tensor = pixels.permute(2, 0, 1)[None].float()
            return resize(tensor, (64, 64), mode="bilinear", align_corners=corners)[0]

        return compared(port, reference, without_16_bits)

    assert compare(False).agrees
    verdict = compare(True)
    assert "align_corners: False in the port, True in the" in verdict.causes[0].words


def test_tensors_and_pillow_agree_within_rounding(torchvision, evaluation, compared):
    transforms = torchvision.transforms
    steps = [transforms.ToTensor(), transforms.Resize(73, antialias=True)]
    steps += [transforms.CenterCrop(64), transforms.Normalize(MEAN, DEVIATION)]
    assert compared(transforms.Compose(steps), evaluation(73)).agrees


def test_data_sets_are_compared_with_labels_and_order(torchvision):
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
    make_pictures("photos")
    for path in Path("photos").rglob("*.gif"):
        path.unlink()
    flags = "--reference sets.py:reference --net sets.py:port --json o.json photos"
    assert inputs(flags.split()) == 0
    order = json.loads(Path("o.json").read_text())["order"]
    assert order.endswith(
        "10/alpha.png, 10/palette.png, 10/turned.jpg, 2/bits16.png and 7 more in the reference"
    )


def differing(law):
    return {result.name for result in law.results if result.verdict == DIFFERS}


@pytest.mark.parametrize("in_pillow", [False, True])
def test_training_transforms_agree_but_without_normalize(torchvision, law, in_pillow):
    transforms = torchvision.transforms
    steps = [transforms.RandomResizedCrop(32, (0.25, 1.0)), transforms.RandomHorizontalFlip()]
    steps += [transforms.ColorJitter(0.4, 0.4, 0.4), transforms.ToTensor()]
    steps += [transforms.Normalize(MEAN, DEVIATION)]
    if in_pillow:
        steps += [transforms.RandomErasing()]
        begin = [vision.Decode(to_pil=True), vision.RandomResizedCrop(32, (0.25, 1.0))]
        end = [vision.ToTensor(), vision.Normalize(MEAN, DEVIATION, is_hwc=False)]
        end += [vision.RandomErasing()]
    else:
        begin = [vision.RandomCropDecodeResize(32, (0.25, 1.0))]
        end = [vision.Normalize(*OF_BYTES), vision.HWC2CHW()]
    begin += [vision.RandomHorizontalFlip(), vision.RandomColorAdjust(0.4, 0.4, 0.4)]
    without = [step for step in end if not isinstance(step, vision.Normalize)]
    reference = transforms.Compose(steps)
    assert law(begin + end, reference, 250).verdict == OK
    assert {"black", "white"} <= differing(law(begin + without, reference, 250))


def test_random_crops_and_flips_are_compared_in_law(torchvision, law):
    """After set_seed, as most training scripts call it, MindSpore's eager transforms repeat a draw."""
    mindspore.set_seed(1)
    transforms = torchvision.transforms
    steps = [transforms.RandomResizedCrop(32, (0.25, 1.0)), transforms.RandomHorizontalFlip()]
    reference = transforms.Compose([*steps, transforms.ToTensor()])

    def port(lowest, flip):
        return [
            vision.RandomCropDecodeResize(32, (lowest, 1.0), (3 / 4, 4 / 3)),
            vision.RandomHorizontalFlip(flip),
            vision.Rescale(1 / 255, 0.0),
            vision.HWC2CHW(),
        ]

    assert law(port(0.25, 0.5), reference, 250).verdict == OK
    other = law(port(0.6, 0.1), reference, 250)
    assert other.verdict == DIFFERS
    assert {"mirrored", "area"} <= differing(other)
