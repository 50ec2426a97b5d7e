"""This module describes the input of a net.

Checkpoints contain this description, for example for `load_run`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from resnet_fn.config.wording import first_few

_MOST_PIXELS = 1 << 16  # of the side of an image


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Describes the classes and the input images of a net."""

    name: str  # name of the data set
    classes: tuple[str, ...]  # class names, in the order of labels and logits
    channels: int
    image_size: int  # height and width of an image in evaluation, in pixels
    # shorter side of an image before the centre crop, in pixels, or 0 to resize without a crop
    eval_resize: int = 0
    interpolation: str = "bilinear"  # filter that resizes an image in evaluation, named as in timm
    data_dir: str = ""  # absolute path of the data set's folder, or "" for sets without a folder
    train_list: str = ""  # absolute path of the list of training images, or "" without a list
    val_list: str = ""  # absolute path of the list of validation images, or "" without a list
    full_scale: float  # divisor of the pixel values
    mean: tuple[float, ...]  # mean of (pixel / full_scale) for each channel
    std: tuple[float, ...]  # standard deviation of (pixel / full_scale) for each channel

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the standard deviation of each channel, as two float32 arrays [C]."""
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "InputSpec":
        """Make an `InputSpec` from the dict that `config.values.to_dict` returns.

        Optional fields may be absent. Raises ValueError if the dict is another one.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("the description of the net's input is not a JSON object")
        values: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()
        }
        try:
            spec = cls(**values)
        except TypeError as error:  # a field is missing or unknown
            raise ValueError(f"the description of the net's input is wrong ({error})") from None
        spec.check()
        return spec

    def check(self) -> None:
        """Raise ValueError if a value cannot describe images, as in a stranger's file."""
        lists = (self.classes, self.mean, self.std)
        texts = (self.name, self.interpolation, self.data_dir, self.train_list, self.val_list)
        sizes = (self.channels, self.image_size, self.eval_resize)
        is_right = (
            all(isinstance(values, tuple) for values in lists)
            and all(isinstance(text, str) for text in (*texts, *self.classes))
            and all(type(size) is int and 0 <= size <= _MOST_PIXELS for size in sizes)
            and all(map(_is_finite, (self.full_scale, *self.mean, *self.std)))
            and {len(self.mean), len(self.std)} == {self.channels}
            and min((self.full_scale, *self.std)) > 0
        )
        if not is_right:
            raise ValueError("the description of the net's input has a wrong value")


def _is_finite(number: Any) -> bool:
    return type(number) in (int, float) and abs(number) < math.inf


def renamed(before: Sequence[str], now: Sequence[str]) -> str:
    """Describe the first class names that differ, for example "'cat' → 'dog'".

    Return "" if all are equal.
    """
    return first_few([f"{old!r} → {new!r}" for old, new in zip_longest(before, now) if old != new])
