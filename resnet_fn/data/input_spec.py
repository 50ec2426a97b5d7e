"""The input of a net. The data set defines it, every checkpoint stores it, and evaluation and prediction read it."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from resnet_fn.config.hints import few


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputSpec:
    """The classes and images that a net is for."""

    name: str  # the data set's
    classes: tuple[str, ...]  # their names; a label, and a logit's place, is an index into them
    channels: int
    image_size: int  # height and width of an image in evaluation, pixels
    eval_resize: int = 0  # shorter side of an image before its centre is cut, pixels; 0: the whole image is resized
    data_dir: str = ""  # the set's folder, absolute; "": it needs none
    train_list: str = ""  # the list that names its training images, absolute; "": those of its folders
    val_list: str = ""  # the same of the validation images
    full_scale: float  # the pixel value that becomes 1
    mean: tuple[float, ...]  # of each channel, of the training pixels divided by full_scale
    std: tuple[float, ...]

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and std as float32 arrays [C]."""
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, for a checkpoint's "dataset"."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "InputSpec":
        """Rebuild an input from JSON types; absent fields take their default."""
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
        return cls(**values)


def renamed(before: Sequence[str], now: Sequence[str]) -> str:
    """Describe which names have changed; "" if none has."""
    return few([f"{old!r} → {new!r}" for old, new in zip_longest(before, now) if old != new])
