"""The same random numbers from the same seed, so the same crops: it does neither more nor less than torchvision."""

import numpy as np
import pytest
from PIL import Image

from resnet_fn.data.sources.folders import IMAGENET_MEAN, IMAGENET_STD

torch = pytest.importorskip("torch")


def both(transforms, crop, ours, image, open_image):
    steps = [crop, transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    whole = transforms.Compose([*steps, transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    for seed in range(16):
        torch.manual_seed(seed)
        found = ours(image)
        torch.manual_seed(seed)
        assert torch.equal(found, whole(open_image(image)))


def test_photographs_pixel_for_pixel(torchvision, folder):
    from resnet_fn.benchmark.reference_loader import photograph

    transforms, pil_loader = torchvision.transforms, torchvision.datasets.folder.pil_loader
    for path in sorted((folder / "train").rglob("*.JPEG"))[:3]:
        both(transforms, transforms.RandomResizedCrop(224), photograph, path, pil_loader)


def test_cifar_pixel_for_pixel(torchvision):
    from resnet_fn.benchmark.reference_loader import cifar

    transforms = torchvision.transforms
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    both(transforms, transforms.RandomCrop(32, 4), cifar, pixels, Image.fromarray)


def test_a_flip_and_normalised_values():
    """Without torchvision: a border of 4 black pixels, a window of it or its mirror image, ImageNet's mean and std."""
    from resnet_fn.benchmark.reference_loader import cifar

    pixels = np.random.default_rng(1).integers(1, 256, (32, 32, 3), dtype=np.uint8)
    mean, std = np.reshape(IMAGENET_MEAN, (3, 1, 1)), np.reshape(IMAGENET_STD, (3, 1, 1))
    padded = np.pad(pixels, ((4, 4), (4, 4), (0, 0)))
    windows = [padded[top : top + 32, left : left + 32] for top in range(9) for left in range(9)]
    windows += [window[:, ::-1] for window in windows]
    expected = {window.tobytes(): place for place, window in enumerate(windows)}
    seen = set()
    for seed in range(40):
        torch.manual_seed(seed)
        found = np.rint((cifar(pixels).numpy() * std + mean) * 255).astype(np.uint8).transpose(1, 2, 0)
        seen.add(expected[np.ascontiguousarray(found).tobytes()] // 81)
    assert seen == {0, 1}
