"""The loader that people come from: PyTorch's DataLoader over torchvision's transforms of PIL images.

The transforms are written out as torchvision 0.28 has them, call by call, so that no torchvision is needed; where it
is installed, a test compares the pixels bit for bit. Sources, in https://github.com/pytorch/vision/tree/v0.28.0:
torchvision/datasets/folder.py (pil_loader), transforms/transforms.py (RandomResizedCrop.get_params, RandomCrop,
RandomHorizontalFlip), transforms/functional.py (to_tensor, resized_crop), transforms/_functional_pil.py (crop, resize,
hflip, pad), transforms/_functional_tensor.py (normalize). What is left out, because it checks and computes nothing, is
in the reference's favour: nn.Module's and Compose's calls, the tests of types.

Run in a process of its own (PyTorch forks its workers, which MindSpore's threads would not survive):
python -m resnet_fn.benchmark.reference_loader KIND FOLDER BATCH WORKERS EPOCHS, prints images/s of each epoch.
"""

import json
import math
import os
import sys
import time
from typing import Any

import numpy as np

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def _normalised(image: Any) -> Any:
    import torch

    # to_tensor: np.array(copy=True), view, permute + contiguous, to float32, div (not in place).
    tensor = torch.from_numpy(np.array(image, np.uint8, copy=True)).view(image.size[1], image.size[0], 3)
    tensor = tensor.permute((2, 0, 1)).contiguous().to(dtype=torch.float32).div(255)
    # normalize: clone (inplace=False), the constants as tensors each time, a test of std, two operations in place.
    tensor = tensor.clone()
    mean, std = torch.as_tensor(MEAN, dtype=tensor.dtype), torch.as_tensor(STD, dtype=tensor.dtype)
    if (std == 0).any():
        raise ValueError("std: has a zero")
    return tensor.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


def _coin() -> bool:
    import torch

    return bool(torch.rand(1) < 0.5)  # RandomHorizontalFlip.forward


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

        with open(self._paths[index], "rb") as file:  # pil_loader
            image = Image.open(file).convert("RGB")
        left, top, wide, tall = self._box(*image.size)
        # resized_crop: a crop, then PIL's resize, which antialiases.
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
        # The central crop of the nearest aspect ratio that is allowed.
        wide, tall = min(width, round(height * 4 / 3)), min(height, round(width / (3 / 4)))
        return (width - wide) // 2, (height - tall) // 2, wide, tall


class Cifar:
    """Arrays in memory with RandomCrop(32, 4), RandomHorizontalFlip, ToTensor, Normalize."""

    def __init__(self, samples: int) -> None:
        self.images = np.random.default_rng(0).integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch
        from PIL import Image, ImageOps

        image = ImageOps.expand(Image.fromarray(self.images[index]), border=4, fill=(0, 0, 0))  # _functional_pil.pad
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
    # Default collation; memory is pinned for a GPU only. Workers that stay, and twice the default of batches ahead,
    # are in its favour.
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
