"""The loader that people come from: PyTorch's DataLoader over PIL transforms as torchvision writes them.

Run in a process of its own (PyTorch forks its workers, which MindSpore's threads would not survive):
python -m resnet_fn.benchmarks.reference_loader KIND FOLDER BATCH WORKERS EPOCHS, prints images/s of each epoch.
"""

import json
import math
import os
import sys
import time
from typing import Any

import numpy as np

_MEAN = np.array((0.485, 0.456, 0.406), np.float32)[:, None, None]
_STD = np.array((0.229, 0.224, 0.225), np.float32)[:, None, None]


def _normalised(image: Any) -> Any:
    import torch

    # ToTensor: a copy, [C, H, W], a division by 255; Normalize: another copy, its constants as tensors, two operations.
    tensor = torch.from_numpy(np.array(image, np.uint8, copy=True)).permute(2, 0, 1).contiguous().float().div(255)
    mean, std = torch.as_tensor(_MEAN), torch.as_tensor(_STD)
    return tensor.clone().sub_(mean).div_(std)


def _coin() -> bool:
    import torch

    return bool(torch.rand(1) < 0.5)


class Photographs:
    """ImageFolder with RandomResizedCrop(224), RandomHorizontalFlip, ToTensor, Normalize."""

    def __init__(self, folder: str) -> None:
        self._paths = sorted(
            os.path.join(place, name) for place, _, names in os.walk(os.path.join(folder, "train")) for name in names
        )

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        with open(self._paths[index], "rb") as file:
            image = Image.open(file).convert("RGB")
        left, top, wide, tall = self._box(*image.size)
        crop = image.crop((left, top, left + wide, top + tall)).resize((224, 224), Image.Resampling.BILINEAR)
        if _coin():
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return _normalised(crop), 0

    @staticmethod
    def _box(width: int, height: int) -> tuple[int, int, int, int]:
        import torch

        log_ratio = torch.log(torch.tensor((3 / 4, 4 / 3)))
        for _ in range(10):
            area = width * height * torch.empty(1).uniform_(0.08, 1.0).item()
            ratio = torch.exp(torch.empty(1).uniform_(log_ratio[0], log_ratio[1])).item()
            wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                top = torch.randint(0, height - tall + 1, size=(1,)).item()
                left = torch.randint(0, width - wide + 1, size=(1,)).item()
                return int(left), int(top), wide, tall
        side = min(width, height)
        return (width - side) // 2, (height - side) // 2, side, side


class Cifar:
    """Arrays in memory with RandomCrop(32, 4), RandomHorizontalFlip, ToTensor, Normalize."""

    def __init__(self, samples: int) -> None:
        self._images = np.random.default_rng(0).integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch
        from PIL import Image, ImageOps

        image = ImageOps.expand(Image.fromarray(self._images[index]), border=4)
        top, left = (int(torch.randint(0, 9, size=(1,)).item()) for _ in range(2))
        image = image.crop((left, top, left + 32, top + 32))
        if _coin():
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return _normalised(image), 0


def main(kind: str, source: str, batch: int, workers: int, epochs: int) -> list[float]:
    """Images per second of each epoch after the first, whose start-up is not counted."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    data: Any = Photographs(source) if kind == "photographs" else Cifar(int(source))
    loader = DataLoader(
        data, batch, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True, prefetch_factor=4
    )
    rates = []
    for _ in range(epochs + 1):
        began, images = time.perf_counter(), 0
        for pictures, _labels in loader:
            images += len(pictures)
        rates.append(images / (time.perf_counter() - began))
    return rates[1:]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], *(int(word) for word in sys.argv[3:6]))))
