import json

import pytest
from PIL import Image

from resnet_fn.benchmark import data, reference_loader
from resnet_fn.benchmark.__main__ import main
from resnet_fn.config import cli


def test_unknown_parts_and_flags_name_the_valid_ones():
    with pytest.raises(cli.UsageError, match=r"part: 'dat' is unknown; .*data"):
        main(["dat"])
    with pytest.raises(cli.UsageError, match="--epochs: 2 is too small; give 3 or more"):
        main(["data", "--epochs", "2"])


@pytest.mark.slow
def test_every_figure_is_measured(capsys):
    assert main(["data", "--images", "64", "--rounds", "1", "--epochs", "3", "--json", "figures.json"]) == 0
    with open("figures.json", encoding="utf-8") as file:
        figures = json.load(file)
    assert all(rate > 0 for rate in figures["rates"].values())
    assert all(cost > 0 for cost in figures["stages"].values())
    assert figures["tasks"][1] <= figures["tasks"][0]
    assert "imagefolder" in capsys.readouterr().out


def test_the_table_says_when_there_is_nothing_to_compare_with():
    result = {"threads": 2, "rates": {"cifar": 5.0}, "stages": {}, "memory_mb": [1.0, 1.0], "tasks": [1, 1]}
    assert "no comparison: PyTorch is not installed; pip install 'resnet_fn[torch]'" in data.table(result)


def test_the_reference_is_torchvisions_pixel_for_pixel(folder):
    """The same random numbers from the same seed, so the same crops: it neither does more nor less."""
    torch = pytest.importorskip("torch")
    transforms = pytest.importorskip("torchvision.transforms")
    pil_loader = pytest.importorskip("torchvision.datasets.folder").pil_loader
    reference = reference_loader.Photographs(str(folder))
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    whole = transforms.Compose([*steps, transforms.Normalize(reference_loader.MEAN, reference_loader.STD)])
    paths = sorted(str(path) for path in (folder / "train").rglob("*.JPEG"))
    for index, path in enumerate(paths):
        torch.manual_seed(index)
        ours, _ = reference[index]
        torch.manual_seed(index)
        assert torch.equal(ours, whole(pil_loader(path)))
    cifar = reference_loader.Cifar(16)
    steps = [transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    whole = transforms.Compose([*steps, transforms.Normalize(reference_loader.MEAN, reference_loader.STD)])
    for index in range(16):
        torch.manual_seed(index)
        ours, _ = cifar[index]
        torch.manual_seed(index)
        assert torch.equal(ours, whole(Image.fromarray(cifar.images[index])))
