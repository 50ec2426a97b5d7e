"""What the tests of inputs share: the twelve pictures, and sides that are written out by hand."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from resnet_fn.parity.inputs.comparing import InputsVerdict, compare_pictures
from resnet_fn.parity.inputs.pictures import Picture, make_pictures
from resnet_fn.parity.inputs.reading import read_or_error, side_of

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
RESIZE, SIZE = 73, 64


@dataclasses.dataclass(frozen=True)
class ByHand:
    """A preparation with Pillow and NumPy alone, as torchvision's of an evaluation."""

    mean: Any = dataclasses.field(default_factory=lambda: MEAN)
    deviation: Any = dataclasses.field(default_factory=lambda: DEVIATION)
    filter: Any = Image.Resampling.BILINEAR
    crop: Callable[[float], int] = round
    long: Callable[[float], int] = int
    resize: int = RESIZE

    def __call__(self, path: str) -> np.ndarray:
        return self.normalised(self.pixels(self.opened(path)))

    def opened(self, path: str) -> Image.Image:
        with Image.open(path) as image:
            return image.convert("RGB")

    def pixels(self, image: Image.Image) -> np.ndarray:
        width, height = image.size
        short = min(width, height)
        other = max(1, self.long(self.resize * max(width, height) / short))
        size = (self.resize, other) if width <= height else (other, self.resize)
        resized = image.resize(size, self.filter)
        left, top = (self.crop((one - SIZE) / 2) for one in size)
        return np.asarray(resized.crop((left, top, left + SIZE, top + SIZE)))

    def normalised(self, pixels: np.ndarray) -> np.ndarray:
        scaled = np.asarray(pixels, np.float32) / np.float32(255)
        return np.float32((scaled - self.mean) / self.deviation).transpose(2, 0, 1)


@pytest.fixture(scope="session")
def by_hand() -> ByHand:
    return ByHand()


@pytest.fixture(scope="session")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Picture]:
    """The twelve awkward pictures. Not to be changed."""
    return make_pictures(str(tmp_path_factory.mktemp("inputs")))


@pytest.fixture(scope="session")
def compared(twelve: Sequence[Picture]) -> Callable[..., InputsVerdict]:
    """compared(port, reference, made): the verdict on the twelve pictures, or on `pictures`."""

    def compare(
        port: Any,
        reference: Any,
        made: bool = True,
        pictures: Sequence[Picture] = twelve,
    ) -> InputsVerdict:
        read = []
        for value in (port, reference):
            side = side_of(value, "side.py:read", "--net", "", pictures, 0)
            read.append({picture: read_or_error(side, picture) for picture in pictures})
        return compare_pictures(*read, made=made)

    return compare
