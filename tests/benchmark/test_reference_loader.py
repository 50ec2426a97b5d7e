"""The same random numbers from the same seed, so the same crops: it does neither more nor less than torchvision."""

import pytest

from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD

torch = pytest.importorskip("torch")


def test_photographs_pixel_for_pixel(torchvision, folder):
    from resnet_fn.benchmark.reference_loader import photograph

    transforms, pil_loader = torchvision.transforms, torchvision.datasets.folder.pil_loader
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    whole = transforms.Compose([*steps, transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    for path in sorted((folder / "train").rglob("*.JPEG"))[:3]:
        for seed in range(16):
            torch.manual_seed(seed)
            ours = photograph(path)
            torch.manual_seed(seed)
            assert torch.equal(ours, whole(pil_loader(path)))
