"""The loader to compare with: PyTorch's DataLoader over torchvision's transforms of PIL images.

The transforms are those of https://github.com/pytorch/vision/tree/v0.28.0/torchvision, call by
call, without its checks; a test compares the pixels bit for bit. torchvision need not be installed.
The loader needs a process of its own: PyTorch forks its workers, which MindSpore's threads would
not survive.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from interleave import Run, timed
from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD
from resnet_fn.runtime.extras import import_extra

torch = import_extra("torch", "this comparison")


def photograph(path: Path) -> Any:
    """A JPEG through RandomResizedCrop(224), RandomHorizontalFlip, ToTensor, Normalize: float32 [3,
    224, 224].
    """
    from PIL import Image

    with open(path, "rb") as file:  # pil_loader
        image = Image.open(file).convert("RGB")
    left, top, wide, tall = _box(*image.size)
    # resized_crop: a crop, then PIL's resize, which antialiases.
    crop = image.crop((left, top, left + wide, top + tall)).resize(
        (224, 224), Image.Resampling.BILINEAR
    )
    if torch.rand(1) < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    # to_tensor: np.array(copy=True), view, permute + contiguous, to float32, div (not in place).
    tensor = torch.from_numpy(np.array(crop, np.uint8, copy=True)).view(
        crop.size[1], crop.size[0], 3
    )
    tensor = tensor.permute((2, 0, 1)).contiguous().to(dtype=torch.float32).div(255)
    # normalize: clone (inplace=False), the constants as tensors each time, a test of std, two
    # operations in place.
    tensor = tensor.clone()
    mean, std = (
        torch.as_tensor(values, dtype=tensor.dtype) for values in (IMAGENET_MEAN, IMAGENET_STD)
    )
    if (std == 0).any():
        raise ValueError("std: has a zero")
    return tensor.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


def _box(width: int, height: int) -> tuple[int, int, int, int]:
    log_ratio = torch.log(torch.tensor((3 / 4, 4 / 3)))
    for _ in range(10):
        area = width * height * torch.empty(1).uniform_(0.08, 1.0).item()
        ratio = torch.exp(torch.empty(1).uniform_(log_ratio[0], log_ratio[1])).item()
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            top = torch.randint(0, height - tall + 1, size=(1,)).item()
            left = torch.randint(0, width - wide + 1, size=(1,)).item()
            return left, top, wide, tall
    # The central crop of the nearest aspect ratio that is allowed.
    wide, tall = min(width, round(height * 4 / 3)), min(height, round(width / (3 / 4)))
    return (width - wide) // 2, (height - tall) // 2, wide, tall


class Photographs:
    """A Dataset for DataLoader: each file's image, with label 0."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.rglob("*.JPEG"))

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return photograph(self._files[index]), 0


def read_epochs(folder: str, batch_size: int, workers: int) -> Run:
    """A function that reads epochs of a folder of photographs and returns the seconds per image of
    each.
    """
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Photographs(Path(folder, "train")),
        batch_size,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=True,  # this, and twice the default of batches ahead, are in its favour
        prefetch_factor=4,
    )
    run = timed(lambda: list(map(len, loader)))
    return lambda epochs: [seconds / (len(loader) * batch_size) for seconds in run(epochs)]
